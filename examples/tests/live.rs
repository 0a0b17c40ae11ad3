//! The example as its users run it: started as a program, under its own load, and looked into over
//! HTTP. If there is a Go toolchain (`PLIMSOLL_GO`, or `go` in `PATH`), its tool looks as well.

mod search;

use std::path::PathBuf;
use std::process::Command;

use search::Search;

fn go() -> Option<PathBuf> {
    let promised = std::env::var_os("PLIMSOLL_GO");
    let go = PathBuf::from(promised.as_deref().unwrap_or("go".as_ref()));
    match Command::new(&go).arg("version").output() {
        Ok(output) if output.status.success() => Some(go),
        _ if promised.is_some() => panic!("PLIMSOLL_GO={} does not run", go.display()),
        _ => {
            eprintln!("go was not found: its tool is not tried");
            None
        }
    }
}

#[test]
fn the_running_example_shows_what_is_in_it() {
    let search = Search::start("heap_rate=16k,block_rate=1us,mutex_fraction=1");
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
    assert!(
        !text.contains("plimsoll::symbol"),
        "what Plimsoll needs is not"
    );

    // Every request takes the lock of the cache, and that of the counts.
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
            text.contains("search::store::Snapshot") && text.contains("search::popular::Popular")
        });
        assert!(text.starts_with(begins), "{text}");
    }

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
        let url = format!("http://{}/debug/pprof/{page}", search.profiles);
        // The tool keeps a copy of what it fetches.
        let keep = std::env::temp_dir().join(format!("plimsoll-live-{}", std::process::id()));
        let output = Command::new(&go)
            .args(["tool", "pprof"])
            .args(arguments)
            .arg(&url)
            .env("PPROF_TMPDIR", &keep)
            .output()
            .expect("go can be run");
        let _ = std::fs::remove_dir_all(&keep);
        let said = String::from_utf8_lossy(&output.stdout);
        let complained = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{url}: {said}{complained}");
        assert!(
            said.contains(expected),
            "{url}: no {expected} in {said}{complained}"
        );
    }
}
