//! Programs with a limited address space: Plimsoll leaves it to them, and ends none that has used all of it.

use std::path::Path;
use std::process::{Command, Output};

use crate::scene::{Scene, number, reports, run};

/// Allocates until the system refuses, prints the number of blocks of 64 KiB, and ends with status 3.
const FILLS: &str = r#"
    #include <stdio.h>
    #include <stdlib.h>
    #include <unistd.h>
    int main(void) {
        unsigned long blocks = 0;
        char *block, text[40];
        while ((block = malloc(65536))) *block = 1, blocks++;
        int length = snprintf(text, sizeof text, "%lu\n", blocks);
        write(1, text, length);
        return 3;
    }
"#;

/// More than the mappings of the library's code and data, and of the library that it needs, in bytes.
const LIBRARY: u64 = 8 << 20;

/// Executes a program with an address space of `kib`.
const LIMITED: &str = r#"ulimit -v $1; exec "$0""#;

fn blocks(output: &Output) -> u64 {
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{errors}");
    let text = String::from_utf8_lossy(&output.stdout);
    text.trim().parse().unwrap()
}

fn alone(program: &Path, kib: &str) -> u64 {
    let mut command = Command::new("/bin/sh");
    command.args(["-c", LIMITED]).arg(program).arg(kib);
    blocks(&command.output().unwrap())
}

#[test]
fn programs_keep_98_percent_of_a_limited_address_space_and_report() {
    let scene = Scene::new("address-space");
    let program = scene.c("fills", FILLS);
    let name = program.to_str().unwrap();
    for mib in [64_u64, 256, 1024] {
        let kib = (mib << 10).to_string();
        let all = alone(&program, &kib);
        let output = run(&["--json"], "/bin/sh", &["-c", LIMITED, name, &kib])
            .output()
            .unwrap();
        let with = blocks(&output);
        let taken = all.saturating_sub(with) << 16;
        assert!(
            taken <= (mib << 20) / 50 + LIBRARY,
            "{mib} MiB: {taken} bytes"
        );
        let (errors, reports) = reports(&output);
        assert_eq!((errors.as_str(), reports.len()), ("", 1), "{mib} MiB");
        assert!(number(&reports[0], "mallocs") >= with, "{mib} MiB");
        assert_eq!(number(&reports[0], "address_space_limit"), mib << 20);
    }
    let output = run(&[], "/bin/sh", &["-c", LIMITED, name, "65536"])
        .output()
        .unwrap();
    let summary = String::from_utf8_lossy(&output.stderr);
    assert!(
        summary.contains("limited    address space of 64.0 MiB"),
        "{summary}"
    );
}
