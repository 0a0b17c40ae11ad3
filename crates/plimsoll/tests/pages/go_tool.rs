//! `go tool pprof` reads the profiles that Plimsoll writes. `PLIMSOLL_GO` is the path of the
//! command `go`, which is otherwise taken from `PATH`. Without Go, a test fails only if that
//! variable is set.

mod nameless;

use plimsoll_testkit::child;
use plimsoll_testkit::tools::go;
use std::hint::black_box;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

use plimsoll::profile::{self, Detail, Format};

/// Runs the tool and returns its standard output.
fn pprof(go: &Path, arguments: &[&str]) -> String {
    let output = Command::new(go)
        .args(["tool", "pprof"])
        .args(arguments)
        .output()
        .expect("go can be run");
    let (said, complained) = (
        String::from_utf8_lossy(&output.stdout).into_owned(),
        String::from_utf8_lossy(&output.stderr),
    );
    assert!(
        output.status.success(),
        "{arguments:?}: {}\n{said}\n{complained}",
        output.status
    );
    for trouble in ["malformed", "error", "warning", "unrecognized"] {
        assert!(!complained.to_lowercase().contains(trouble), "{complained}");
    }
    said
}

#[inline(never)]
fn index_of_everything() -> Vec<Vec<u8>> {
    (0..1000).map(|_| black_box(vec![0; 4096])).collect()
}

#[inline(never)]
fn second_index() -> Vec<Vec<u8>> {
    (0..500).map(|_| black_box(vec![0; 8192])).collect()
}

fn tool_reads_profiles() {
    let Some(go) = go() else { return };
    let dir = std::env::temp_dir().join(format!("plimsoll-go-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let file = |name: &str| dir.join(name).to_str().unwrap().to_owned();
    let heap = profile::lookup("heap").unwrap();
    let first = index_of_everything();
    heap.write_to_file(file("before"), Format::Pprof).unwrap();
    let second = second_index();
    heap.write_to_file(file("after"), Format::Pprof).unwrap();
    heap.write_to_file(file("text"), Format::Text).unwrap();
    for detail in [Detail::Names, Detail::Addresses] {
        let mut bytes = Vec::new();
        heap.write_with(&mut bytes, Format::Pprof, detail).unwrap();
        std::fs::write(file(&format!("{detail:?}")), bytes).unwrap();
    }
    let allocs = profile::lookup("allocs").unwrap();
    allocs.write_to_file(file("allocs"), Format::Pprof).unwrap();

    let raw = pprof(&go, &["-raw", &file("after")]);
    assert!(
        raw.contains("PeriodType: space bytes\nPeriod: 1\n"),
        "{raw}"
    );
    assert!(
        raw.contains("alloc_objects/count alloc_space/bytes inuse_objects/count inuse_space/bytes"),
        "{raw}"
    );
    assert!(raw.contains("bytes:[4096]"), "{raw}");
    assert!(
        raw.contains("[FN][FL][LN][IN]"),
        "the flags of this program's mapping: {raw}"
    );

    let top = pprof(&go, &["-top", "-unit=b", &file("after")]);
    assert!(top.contains("Type: inuse_space"), "{top}");
    let row = |text: &str, function: &str| -> Vec<String> {
        let line = text.lines().find(|line| line.ends_with(function));
        let line = line.unwrap_or_else(|| panic!("no {function} in {text}"));
        line.split_whitespace().map(str::to_owned).collect()
    };
    // The blocks and the list that holds them, rounded up to their size classes.
    assert_eq!(row(&top, "pages::go_tool::second_index")[3], "4108288B");
    assert_eq!(
        row(&top, "pages::go_tool::index_of_everything")[3],
        "4120576B"
    );

    let top = pprof(
        &go,
        &[
            "-top",
            "-unit=b",
            "-diff_base",
            &file("before"),
            &file("after"),
        ],
    );
    assert_eq!(row(&top, "pages::go_tool::second_index")[3], "4108288B");
    assert!(!top.contains("index_of_everything"), "{top}");

    let top = pprof(
        &go,
        &["-top", "-sample_index=alloc_objects", &file("after")],
    );
    assert!(top.contains("Type: alloc_objects"), "{top}");
    let top = pprof(&go, &["-top", &file("allocs")]);
    assert!(top.contains("Type: alloc_space"), "{top}");
    let lines = pprof(&go, &["-lines", "-top", &file("after")]);
    assert!(lines.contains("pages/go_tool.rs:"), "{lines}");
    let listed = pprof(&go, &["-list", "second_index", &file("after")]);
    assert!(
        listed.contains("ROUTINE ====") && listed.contains("8192"),
        "{listed}"
    );
    let comments = pprof(&go, &["-comments", &file("after")]);
    assert!(comments.contains("plimsoll: in use: "), "{comments}");
    let traces = pprof(&go, &["-traces", &file("after")]);
    assert!(
        traces.contains("bytes:  4kB") || traces.contains("bytes:"),
        "{traces}"
    );

    // The outermost frames of the memory profile are categories.
    let memory = profile::lookup("memory").unwrap();
    memory.write_to_file(file("memory"), Format::Pprof).unwrap();
    let top = pprof(&go, &["-top", "-cum", "-unit=b", &file("memory")]);
    assert!(top.contains("Type: memory_space"), "{top}");
    for category in ["[heap]", "[heap: blocks in use]", "[files]", "second_index"] {
        assert!(top.contains(category), "{category}: {top}");
    }
    let tree = pprof(&go, &["-tree", &file("memory")]);
    assert!(tree.contains("[heap: blocks in use]"), "{tree}");

    // The tool also reads the text format.
    let text = pprof(&go, &["-raw", "-symbolize=none", &file("text")]);
    assert!(
        text.contains("inuse_objects/count inuse_space/bytes"),
        "{text}"
    );

    let names = pprof(&go, &["-top", "-symbolize=none", &file("Names")]);
    assert!(names.contains("pages::go_tool::second_index"), "{names}");
    let addresses = pprof(&go, &["-raw", "-symbolize=none", &file("Addresses")]);
    assert!(!addresses.contains("second_index"), "{addresses}");
    assert!(
        addresses.contains("pages-"),
        "the mapping's file: {addresses}"
    );
    drop((first, second));
    std::fs::remove_dir_all(&dir).unwrap();
}

#[inline(never)]
fn waits_for_the_end(over: &std::sync::Barrier) {
    over.wait();
}

fn tool_reads_threads() {
    let Some(go) = go() else { return };
    let dir = std::env::temp_dir().join(format!("plimsoll-go-threads-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let file = |name: &str| dir.join(name).to_str().unwrap().to_owned();
    let over = std::sync::Barrier::new(4);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| waits_for_the_end(&over));
        }
        let goroutine = profile::lookup("goroutine").unwrap();
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(120);
        // A thread that is starting has no stack yet.
        let rows = loop {
            assert!(std::time::Instant::now() < deadline, "they never wait");
            goroutine.write_to_file(file("all"), Format::Pprof).unwrap();
            let rows = pprof(&go, &["-top", &file("all")]);
            let all_wait = rows.lines().any(|line| {
                line.ends_with("pages::go_tool::waits_for_the_end")
                    && line.split_whitespace().nth(3) == Some("3")
            });
            let tags = pprof(&go, &["-tags", &file("all")]);
            if all_wait && tags.contains("barrier") {
                break rows;
            }
        };
        over.wait();
        assert!(rows.contains("Type: goroutine"), "{rows}");
        let row = rows
            .lines()
            .find(|line| line.ends_with("pages::go_tool::waits_for_the_end"));
        let row: Vec<_> = row.expect(&rows).split_whitespace().collect();
        assert_eq!(row[3], "3", "{rows}");
        let raw = pprof(&go, &["-raw", &file("all")]);
        assert!(
            raw.contains("PeriodType: goroutine count\nPeriod: 1\n"),
            "{raw}"
        );
        goroutine.write_to_file(file("text"), Format::Text).unwrap();
        let text = pprof(&go, &["-raw", "-symbolize=none", &file("text")]);
        assert!(text.contains("goroutine/count"), "{text}");
    });
    std::fs::remove_dir_all(&dir).unwrap();
}

#[inline(never)]
fn work_of(tenant: &'static str, bytes: usize) -> Vec<u8> {
    let _tenant = plimsoll::label::with([("tenant", tenant), ("odd", "a \"b\"\n")]);
    black_box(Vec::with_capacity(bytes))
}

fn tool_filters_by_label() {
    let Some(go) = go() else { return };
    let dir = std::env::temp_dir().join(format!("plimsoll-go-labels-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let file = |name: &str| dir.join(name).to_str().unwrap().to_owned();
    let kept = [work_of("acme", 300_000), work_of("other", 20_000_000)];
    let open = profile::Profile::new("go_tool.open").unwrap();
    let _labelled = plimsoll::label::with([("tenant", "acme")]);
    let entries = [open.add(0).unwrap(), open.add(0).unwrap()];
    for name in ["heap", "go_tool.open"] {
        let profile = profile::lookup(name).unwrap();
        profile.write_to_file(file(name), Format::Pprof).unwrap();
        let text = format!("{name}.text");
        profile.write_to_file(file(&text), Format::Text).unwrap();
        // The tool rejects lines that it does not know.
        pprof(&go, &["-raw", "-symbolize=none", &file(&text)]);
    }
    for (filter, expected) in [
        ("-tagfocus=tenant=acme", "300000B"),
        ("-tagfocus=tenant=other", "20000000B"),
        ("-tagignore=tenant=acme", "20000000B"),
    ] {
        let top = pprof(&go, &["-top", "-unit=b", filter, &file("heap")]);
        let row = top
            .lines()
            .find(|line| line.ends_with("pages::go_tool::work_of"))
            .unwrap_or_else(|| panic!("{top}"));
        assert_eq!(row.split_whitespace().nth(3), Some(expected), "{top}");
    }
    let raw = pprof(&go, &["-raw", &file("heap")]);
    assert!(raw.contains("tenant:[acme]"), "{raw}");
    let raw = pprof(
        &go,
        &["-raw", "-tagfocus=tenant=acme", &file("go_tool.open")],
    );
    assert!(
        raw.contains("PeriodType: go_tool.open count\nPeriod: 1\n"),
        "{raw}"
    );
    assert!(raw.contains("go_tool.open/count"), "{raw}");
    let counts = raw
        .lines()
        .filter_map(|line| line.split_once(": ")?.0.trim().parse::<i64>().ok());
    assert_eq!(counts.take(2).sum::<i64>(), 2, "{raw}");
    drop((kept, entries));
    std::fs::remove_dir_all(&dir).unwrap();
}

#[inline(never)]
fn computes(over: &AtomicBool) {
    while !over.load(Ordering::Relaxed) {
        std::hint::spin_loop();
    }
}

/// The tool fetches the pages itself, and waits for their seconds.
fn tool_records_time() {
    let Some(go) = go() else { return };
    let over = AtomicBool::new(false);
    let server = plimsoll::http::serve("127.0.0.1:0").unwrap();
    // The tool keeps what it fetches.
    let kept = std::env::temp_dir().join(format!("plimsoll-go-time-{}", std::process::id()));
    std::thread::scope(|scope| {
        scope.spawn(|| computes(&over));
        for (page, types) in [("profile", "Type: cpu"), ("wall", "Type: time")] {
            let url = format!("http://{}/debug/pprof/{page}?seconds=2", server.address());
            let output = Command::new(&go)
                .env("PPROF_TMPDIR", &kept)
                .args(["tool", "pprof", "-top", "-cum", &url])
                .output()
                .unwrap();
            let top = String::from_utf8_lossy(&output.stdout);
            assert!(output.status.success(), "{page}: {output:?}");
            assert!(top.contains(types), "{top}");
            assert!(top.contains("Duration: 2"), "{top}");
            assert!(top.contains("pages::go_tool::computes"), "{top}");
        }
        over.store(true, Ordering::Relaxed);
    });
    std::fs::remove_dir_all(&kept).unwrap();
}

#[test]
fn gos_tool_records_cpu_and_elapsed_time() {
    child::run(
        "gos_tool_records_cpu_and_elapsed_time",
        "",
        tool_records_time,
    );
}

#[test]
fn gos_tool_filters_by_label() {
    child::run(
        "gos_tool_filters_by_label",
        "heap_rate=1",
        tool_filters_by_label,
    );
}

#[test]
fn gos_tool_reads_the_threads() {
    child::run("gos_tool_reads_the_threads", "", tool_reads_threads);
}

#[test]
fn gos_tool_reads_every_profile() {
    child::run(
        "gos_tool_reads_every_profile",
        "heap_rate=1",
        tool_reads_profiles,
    );
}
