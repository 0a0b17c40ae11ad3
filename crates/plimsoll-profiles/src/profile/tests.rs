//! Tests of the list of kinds and its documentation.

use std::fmt::Write;
use std::path::Path;

use plimsoll_pprof::kinds;

use super::*;

#[test]
fn the_built_in_profiles_are_those_of_the_list() {
    let built_in: Vec<ProfileKind> = BUILT_IN.iter().map(|source| source.kind()).collect();
    let listed = kinds::ALL.into_iter();
    let listed = listed.filter(|kind| kind.feature != Some("mmap") || cfg!(feature = "mmap"));
    assert_eq!(built_in, listed.collect::<Vec<_>>());
    assert!(built_in.is_sorted_by_key(|kind| kind.name));
    assert_eq!(OWN.kind(), kinds::SELFCONTENTION);
}

/// A new type must be in one of the two lists, since a push treats them differently.
#[test]
fn every_value_counts_events_or_shows_a_state() {
    const OF_STATES: [&str; 10] = [
        "goroutine",
        "goroutineleak",
        "inuse_objects",
        "inuse_space",
        "memory_space",
        "peak_objects",
        "peak_space",
        "probable",
        "sparse_space",
        "threadcreate",
    ];
    for source in BUILT_IN.iter().chain([&OWN]) {
        for kind in source.read().sample_types {
            let lists = [&delta::OF_EVENTS[..], &OF_STATES];
            let found = lists.iter().filter(|list| list.contains(&kind.name));
            assert_eq!(found.count(), 1, "{} of {}", kind.name, source.kind().name);
        }
    }
}

/// With `PLIMSOLL_WRITE_DOCS`, this test writes the pages.
#[test]
fn the_documentation_lists_all_kinds() {
    let mut table = String::from("\n| profile | content |\n|---|---|\n");
    for kind in kinds::ALL.into_iter().chain([kinds::SELFCONTENTION]) {
        let feature = kind.feature.map(|name| format!(" Feature `{name}`."));
        let (name, feature) = (kind.name, feature.unwrap_or_default());
        let description = kind
            .description
            .replace("selfcontention", "`selfcontention`");
        writeln!(table, "| `{name}` | {description}{feature} |").unwrap();
    }
    let reference = format!(
        "# Profiles\n\nThe profiles are pages below `/debug/pprof/`. `selfcontention` is not in their list. How each \
         counts: [memory](memory-profiles.md), [waits](waits.md), [threads and tasks](threads-and-tasks.md).\n{table}"
    );
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    for (path, expected) in [
        ("../plimsoll/src/profile_kinds.md", &table),
        ("../../docs/reference/profiles.md", &reference),
    ] {
        let path = root.join(path);
        if std::env::var_os("PLIMSOLL_WRITE_DOCS").is_some() {
            std::fs::write(&path, expected).unwrap();
        }
        assert_eq!(
            &std::fs::read_to_string(&path).unwrap(),
            expected,
            "{}",
            path.display()
        );
    }
}
