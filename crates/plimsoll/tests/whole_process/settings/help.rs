//! `PLIMSOLL=help`.

use std::fmt::Write;
use std::path::Path;

use plimsoll::profile;

use super::{child, lines};

#[test]
fn help_prints_every_word_and_the_program_goes_on() {
    let test = || {
        let _plimsoll = plimsoll::start();
        assert_eq!(profile::heap_rate(), 64 << 10, "other words hold");
    };
    let name = "help::help_prints_every_word_and_the_program_goes_on";
    let Some(stderr) = child::stderr_of(name, "help,heap_rate=64k,colour=blue", test) else {
        return;
    };
    let lines = lines(&stderr);
    let (complaint, help) = lines.split_first().unwrap();
    let (_, names) = complaint
        .split_once("no setting `colour`; available: ")
        .unwrap();
    let printed: Vec<&str> = help[1..]
        .iter()
        .map(|line| {
            line["plimsoll: ".len()..]
                .split_whitespace()
                .next()
                .unwrap()
        })
        .collect();
    assert_eq!(names.split(", ").collect::<Vec<_>>(), printed);
    assert!(printed.len() > 10 && printed.contains(&"postmortem"));
    assert!(
        help[0].starts_with("plimsoll: settings: PLIMSOLL=off, or PLIMSOLL="),
        "{stderr}"
    );
    for line in &help[1..] {
        assert!(line.contains(" (default: ") && line.len() < 200, "{line}");
    }
}

/// The reference page equals the help text. `PLIMSOLL_WRITE_DOCS=1` writes the page.
#[test]
fn the_reference_lists_every_setting() {
    let name = "help::the_reference_lists_every_setting";
    let Some(stderr) = child::stderr_of(name, "help", || drop(plimsoll::start())) else {
        return;
    };
    let mut text = String::from(
        "# Settings\n\n`PLIMSOLL=word=value,word=value` in the environment, or `plimsoll::Config` in the program. \
         Sizes take `k`, `m` and `g`;\ntimes take `ns`, `us`, `ms` and `s`. An invalid setting prints one warning that \
         names it, and the others hold. With an\nunknown word, no pages are served: it may be a misspelt `http_token`.\n\n`PLIMSOLL=off`, \
         alone or among other words, records no samples, starts no thread, serves no page and writes no file. Exact counts go on.\n\nThis page is written from the output of `PLIMSOLL=help`.\n\n\
         | word | meaning | default |\n|---|---|---|\n",
    );
    for line in &lines(&stderr)[1..] {
        let line = line.trim_start_matches("plimsoll:").trim();
        let (word, rest) = line.split_once(' ').unwrap();
        let (meaning, default) = rest.trim().rsplit_once(" (default: ").unwrap();
        let default = default.trim_end_matches(')');
        writeln!(text, "| `{word}` | {meaning} | {default} |").unwrap();
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/settings.md");
    if std::env::var_os("PLIMSOLL_WRITE_DOCS").is_some() {
        std::fs::write(&path, &text).unwrap();
    }
    assert!(
        std::fs::read_to_string(&path).unwrap_or_default() == text,
        "docs/reference/settings.md differs from the help: write it with PLIMSOLL_WRITE_DOCS=1"
    );
}
