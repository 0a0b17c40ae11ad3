//! The example as users run it: started as a program, under its own load, and read over HTTP. Go's
//! tool reads it, too, if there is a Go toolchain (`PLIMSOLL_GO`, or `go` in `PATH`).

mod running;

use std::sync::atomic::{AtomicBool, Ordering};

use plimsoll_testkit::tools::go;
use running::{Running, get};

#[test]
fn the_running_example_serves_its_profiles() {
    let search = Running::search("heap_rate=16k,block_rate=1us,mutex_fraction=1");
    let (head, index) = search.get("");
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
    let index = String::from_utf8(index).unwrap();
    assert!(index.contains("Types of profiles available:") && index.contains("heap?debug=1"));

    let (head, body) = search.get("heap");
    assert!(
        head.contains("Content-Type: application/octet-stream")
            && head.contains("Content-Disposition: attachment; filename=\"heap\""),
        "{head}"
    );
    assert!(body.starts_with(&[0x1f, 0x8b]), "it is gzip");

    let (_, text) = search.get("heap?debug=1");
    let text = String::from_utf8(text).unwrap();
    assert!(text.starts_with("heap profile: ") && text.contains("# HeapAlloc = "));
    assert!(text.contains("search::index::"), "the index is in its heap");
    for own in ["plimsoll_profiles::symbol", "plimsoll_symbolize::"] {
        assert!(!text.contains(own), "what Plimsoll needs is not: {own}");
    }

    // Every request takes the locks of the cache and of the counts. A request for the counts holds
    // its lock so long that another request finds it taken, even on few processors.
    let service = search.service.as_deref().expect("it says where it serves");
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        struct Over<'a>(&'a AtomicBool);
        impl Drop for Over<'_> {
            fn drop(&mut self) {
                self.0.store(true, Ordering::Relaxed);
            }
        }
        let _over = Over(&is_over);
        for _ in 0..2 {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    get(service, "/popular").expect("it serves");
                }
            });
        }
        for (page, begins) in [
            (
                "block?debug=1",
                "--- contention:\ncycles/second=1000000000\n",
            ),
            (
                "mutex?debug=1",
                "--- mutex:\ncycles/second=1000000000\nsampling period=1\n",
            ),
        ] {
            let text = search.text_when(page, |text| {
                text.contains("search::store::Snapshot")
                    && text.contains("search::popular::Popular")
            });
            assert!(text.starts_with(begins), "{text}");
        }
    });

    // Tasks have names, and requests their route.
    let text = search.text_when("goroutine?debug=1", |text| {
        let tasks = ["client", "reindexing", "server"];
        tasks
            .iter()
            .all(|name| text.contains(&format!("\"{name}\"")))
    });
    assert!(text.starts_with("goroutine profile: total "), "{text}");
    search.text_when("allocs?debug=1", |text| {
        text.contains("\"route\":\"/search\"")
    });

    let (head, _) = search.get("allocs?seconds=1");
    assert!(head.contains("filename=\"allocs-delta\""), "{head}");
    let (head, body) = search.get("heap?seconds=soon");
    assert!(head.starts_with("HTTP/1.1 400"), "{head}");
    assert_eq!(
        String::from_utf8(body).unwrap(),
        "invalid value for \"seconds\" - must be a positive integer\n"
    );

    let Some(go) = go() else { return };
    for (page, arguments, expected) in [
        ("heap", &["-top"][..], "search::index::"),
        (
            "heap",
            &["-raw"],
            "PeriodType: space bytes\nPeriod: 16384\n",
        ),
        ("allocs", &["-top", "-cum"], "Type: alloc_space"),
        ("allocs?seconds=1", &["-top"], "Duration: 1"),
        ("mutex", &["-top"], "Type: delay"),
        ("block", &["-raw"], "contentions/count delay/nanoseconds"),
        (
            "mutex?seconds=1",
            &["-top", "-sample_index=contentions"],
            "Type: contentions",
        ),
    ] {
        let said = search.pprof(&go, arguments, page);
        assert!(said.contains(expected), "{page}: no {expected} in {said}");
    }
}
