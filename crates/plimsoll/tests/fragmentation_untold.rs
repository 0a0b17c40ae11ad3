//! Allocators that cannot tell what is in their pages say so.

use plimsoll::stats::{Untold, fragmentation};
use plimsoll::{http, profile};

#[global_allocator]
static ALLOC: plimsoll::Alloc = plimsoll::Alloc::system();

mod pprof;

#[test]
fn the_c_librarys_allocator_cannot_tell() {
    let untold = fragmentation().unwrap_err();
    assert_eq!(untold, Untold::ByBackend("system"));
    let why = "the program's allocator, system, cannot tell what is in its pages";
    assert_eq!(untold.to_string(), why);
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
fn the_profile_is_empty_and_says_why() {
    assert_eq!(profile::lookup("fragmentation").unwrap().count(), 0);
    let profile = pprof::Profile::of("fragmentation");
    assert!(profile.sample.is_empty());
    assert!(
        profile
            .comments()
            .iter()
            .any(|comment| comment.contains("system, cannot tell"))
    );
    let text = http::handle("GET", "/debug/pprof/fragmentation", "debug=1");
    let text = String::from_utf8(text.body).unwrap();
    assert!(text.contains("system, cannot tell"), "{text}");
}
