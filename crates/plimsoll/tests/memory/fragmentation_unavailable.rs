//! Allocators that do not report their pages return an error.

use plimsoll::stats::{Unavailable, fragmentation};
use plimsoll::{http, profile};
use plimsoll_checks::profile::read_profile;

#[test]
fn the_c_librarys_allocator_cannot_tell() {
    let unavailable = fragmentation().unwrap_err();
    assert_eq!(unavailable, Unavailable::ByBackend("system"));
    let why = "the program's allocator, system, cannot report the contents of its pages";
    assert_eq!(unavailable.to_string(), why);
    for query in ["", "format=json"] {
        let page = http::handle("GET", "/debug/plimsoll/fragmentation", query);
        assert_eq!(page.status, 501);
        assert_eq!(page.body, format!("{why}\n").into_bytes());
    }
    assert_eq!(
        http::handle("POST", "/debug/plimsoll/fragmentation", "").status,
        405
    );
}

#[test]
fn the_profile_is_empty_and_names_the_reason() {
    assert_eq!(profile::lookup("fragmentation").unwrap().count(), 0);
    let profile = read_profile("fragmentation");
    assert!(profile.sample.is_empty());
    assert!(
        profile
            .comments()
            .iter()
            .any(|comment| comment.contains("system, cannot report"))
    );
    let text = http::handle("GET", "/debug/pprof/fragmentation", "debug=1");
    let text = String::from_utf8(text.body).unwrap();
    assert!(text.contains("system, cannot report"), "{text}");
}
