//! Profile names and parameters of all kinds.

use crate::http_server::harness::{BINARY, TEXT, get, page, server};
use plimsoll_testkit::child;

fn parameters_of_all_kinds() {
    const NOT_POSITIVE: &str = "invalid value for \"seconds\" - must be a positive integer\n";
    const INCOMPATIBLE: &str = "seconds and debug params are incompatible\n";
    let (_server, address) = server();
    let digits = "9".repeat(20);
    let many = "7".repeat(10_000);
    let zeros = "0".repeat(10_000);
    for profile in ["heap", "allocs"] {
        for seconds in [
            "0", "-1", "abc", "1.5", "1s", "%ff", "%00", "+1", "1%20", "0x1", &digits, &many,
            &zeros,
        ] {
            for rest in ["", "&debug=1", "&debug=x", "&gc=1", "&seconds=1"] {
                let answer = page(address, &format!("{profile}?seconds={seconds}{rest}"));
                assert_eq!(
                    (answer.status, answer.text()),
                    (400, NOT_POSITIVE),
                    "{seconds}{rest}"
                );
            }
        }
        for seconds in ["3601", "99999", "9223372036854775807"] {
            let answer = page(address, &format!("{profile}?seconds={seconds}"));
            let at_most = "invalid value for \"seconds\" - must be at most 3600\n";
            assert_eq!((answer.status, answer.text()), (400, at_most), "{seconds}");
        }
        // A number out of range becomes the nearest one in range.
        for debug in ["1", "2", "-1", "%31", &digits, &many, &format!("-{many}")] {
            for query in [
                format!("seconds=1&debug={debug}"),
                format!("debug={debug}&seconds=1"),
            ] {
                let answer = page(address, &format!("{profile}?{query}"));
                assert_eq!(
                    (answer.status, answer.text()),
                    (400, INCOMPATIBLE),
                    "{query:.60}"
                );
            }
        }
    }
    for (query, content_type) in [
        ("debug", BINARY),
        ("debug=x", BINARY),
        ("debug=%ff%fe", BINARY),
        ("debug=%", BINARY),
        ("%64ebug=1", TEXT),
        ("debug=1&debug=0", TEXT),
        ("debug=0&debug=1", BINARY),
        ("debug=1;seconds=x", BINARY),
        (&format!("debug={digits}"), TEXT),
        (&format!("debug={many}"), TEXT),
        (&format!("debug=-{many}"), BINARY),
        (&format!("gc={many}"), BINARY),
        ("seconds=", BINARY),
        ("seconds=&seconds=x", BINARY),
        ("%ff=%ff", BINARY),
        ("?", BINARY),
        (&"&".repeat(10_000), BINARY),
    ] {
        let answer = page(address, &format!("heap?{query}"));
        assert_eq!(answer.status, 200, "{query:.60}");
        assert_eq!(
            answer.header("content-type"),
            Some(content_type),
            "{query:.60}"
        );
    }
    for query in ["seconds=x", "seconds=1&debug=1", "debug=1", &many] {
        let answer = page(address, &format!("none?{query}"));
        assert_eq!(
            (answer.status, answer.text()),
            (404, "Unknown profile\n"),
            "{query:.60}"
        );
    }
    for query in [
        "",
        "0",
        "0x",
        "%30",
        &digits,
        &many,
        &"1+".repeat(5000),
        "é",
    ] {
        let answer = page(address, &format!("symbol?{query}"));
        assert_eq!(
            (answer.status, answer.text()),
            (200, "num_symbols: 1\n"),
            "{query:.60}"
        );
    }
    assert_eq!(page(address, "heap").status, 200);
}

/// Records no stacks, so that the many requests need not resolve names.
#[test]
fn parameters_are_checked_in_gos_order_whatever_they_are() {
    child::run(
        "targets::parameters_are_checked_in_gos_order_whatever_they_are",
        "stack_depth=0",
        parameters_of_all_kinds,
    );
}

#[test]
fn an_unknown_name_is_not_repeated() {
    let (_server, address) = server();
    for name in [
        "<script>alert(1)</script>",
        "%3Cscript%3Ealert(1)%3C/script%3E",
        "heap/",
        "heap%2f",
        "heap%00",
        "%ff%fe",
        "../heap",
        "Heap",
        "heap%20",
        &"a".repeat(10_000),
    ] {
        let answer = page(address, name);
        assert_eq!(
            (answer.status, answer.text()),
            (404, "Unknown profile\n"),
            "{name:.60}"
        );
        assert_eq!(answer.header("content-type"), Some(TEXT));
        assert_eq!(answer.header("x-content-type-options"), Some("nosniff"));
    }
}

/// As in Go, the path is decoded, and a request whose path cannot be decoded is invalid.
#[test]
fn escapes_in_the_path_are_undone() {
    let (_server, address) = server();
    for path in [
        "/debug/pprof/he%61p",
        "/debug/pprof/%68%65%61%70",
        "/%64ebug/pprof%2Fheap",
    ] {
        let answer = get(address, path);
        assert_eq!(answer.status, 200, "{path}");
        assert_eq!(
            answer.header("content-disposition"),
            Some("attachment; filename=\"heap\"")
        );
    }
    for path in [
        "/debug/pprof/%",
        "/debug/pprof/%6",
        "/debug/pprof/%zz",
        "/debug/pprof/%+1",
    ] {
        assert_eq!(get(address, path).status, 400, "{path}");
    }
    assert_eq!(page(address, "he+ap").status, 404);
}
