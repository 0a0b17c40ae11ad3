//! Reports of generated programs, and properties of their files.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use crate::commands::{command, rust_libraries, succeed};
use crate::form::say;
use crate::package::c_library;

/// The output of a program: `key=value` pairs, separated by spaces.
#[derive(Debug, PartialEq, Eq)]
pub struct Report {
    pub linked: bool,
    pub waits: usize,
    pub wakes: usize,
    pub exported: Option<bool>,
}

impl Report {
    pub fn parse(text: &str) -> Self {
        let values: BTreeMap<_, _> = text
            .split_whitespace()
            .filter_map(|word| word.split_once('='))
            .collect();
        let number = |key| values[key].parse().expect("a number");
        Self {
            linked: values["linked"] == "true",
            waits: number("waits"),
            wakes: number("wakes"),
            exported: values.get("exported").map(|&value| value == "true"),
        }
    }

    pub fn of(command: &mut Command) -> Self {
        Self::parse(&succeed(command))
    }

    pub fn saw_the_lock(&self) -> bool {
        self.waits >= 1 && self.wakes >= 1
    }

    pub fn saw_anything(&self) -> bool {
        self.waits + self.wakes > 0
    }
}

/// Asserts that the hook sees the program's own lock and the calls of a C library that it loads.
pub fn is_interposed(case: &str, program: &Path) {
    let libraries = rust_libraries();
    let report = Report::of(command(program).env("LD_LIBRARY_PATH", &libraries));
    say(&format!("{case}: {report:?}"));
    assert!(report.linked && report.saw_the_lock(), "{case}: {report:?}");

    let Some(library) = c_library(case) else {
        return;
    };
    let report = Report::of(
        command(program)
            .arg(library)
            .env("LD_LIBRARY_PATH", &libraries),
    );
    assert_eq!((report.waits, report.wakes), (1, 2), "{case}, C library");
}

/// Returns whether the file contains these bytes.
pub fn holds(file: &Path, bytes: &[u8]) -> bool {
    let content = fs::read(file).expect("it was built");
    content.windows(bytes.len()).any(|window| window == bytes)
}

/// Returns whether the file names a dynamic linker.
pub fn has_interpreter(file: &Path) -> bool {
    const PT_INTERP: u32 = 3;
    let content = fs::read(file).expect("it was built");
    let half = |at: usize| u16::from_le_bytes([content[at], content[at + 1]]) as usize;
    let start = u32::from_le_bytes(content[32..36].try_into().expect("four")) as usize;
    (0..half(56)).any(|index| {
        let at = start + index * half(54);
        content[at..at + 4] == PT_INTERP.to_le_bytes()
    })
}
