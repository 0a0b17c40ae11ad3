//! `PLIMSOLL=help`.

use super::{child, lines};
use plimsoll::profile;

#[test]
fn help_prints_every_word_and_the_program_goes_on() {
    let test = || {
        let _plimsoll = plimsoll::start();
        assert_eq!(profile::heap_rate(), 64 << 10, "other words hold");
    };
    let name = "help::help_prints_every_word_and_the_program_goes_on";
    let Some(said) = child::said(name, "help,heap_rate=64k,colour=blue", test) else {
        return;
    };
    let lines = lines(&said);
    let (complaint, help) = lines.split_first().unwrap();
    let (_, names) = complaint
        .split_once("no setting `colour`; there are ")
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
        help[0].starts_with("plimsoll: settings: PLIMSOLL="),
        "{said}"
    );
    for line in &help[1..] {
        assert!(line.contains(" (default: ") && line.len() < 200, "{line}");
    }
}
