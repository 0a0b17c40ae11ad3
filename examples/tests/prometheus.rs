//! The example as Prometheus sees it: a real server scrapes it and answers queries, and `promtool`
//! checks the page.

mod running;

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use plimsoll_testkit::tools::prometheus as program;
use running::prometheus::Prometheus;
use running::{Running, get};

/// Starts a server that scrapes one target twice a second.
fn scrape(program: &Path, target: &str) -> Prometheus {
    let config = format!(
        "global:\n  scrape_interval: 500ms\n  scrape_timeout: 500ms\n\
         scrape_configs:\n- job_name: search\n  static_configs:\n  - targets: ['{target}']\n"
    );
    Prometheus::start(program, &[("prometheus.yml", &config)])
}

/// Returns the page as text.
fn page(search: &Running) -> String {
    let (head, body) = get(&search.profiles, "/metrics").expect("it serves");
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
    String::from_utf8(body).expect("text")
}

/// Returns the value of a sample in the page, by its name and labels as written there.
fn on_page(page: &str, sample: &str) -> f64 {
    let mut lines = page.lines();
    let value = lines.find_map(|line| line.strip_prefix(sample)?.strip_prefix(' '));
    let value = value.unwrap_or_else(|| panic!("no {sample} in {page}"));
    value.parse().expect("a number")
}

#[test]
fn a_server_gets_every_series_with_its_value() {
    let Some(server) = program("prometheus") else {
        return;
    };
    let search = Running::search("go_names=on,task_times=on,block_rate=1us");
    let server = scrape(&server, &search.profiles);
    server.value_when("up{job=\"search\"}", |up| up == 1.0);

    // Prometheus has every sample on the page, and no others.
    let samples = page(&search)
        .lines()
        .filter(|line| !line.starts_with('#'))
        .count();
    // After a scrape that took too long, there are no samples.
    for count in [
        "scrape_samples_scraped{job=\"search\"}",
        "count({job=\"search\", __name__!~\"up|scrape_.*\"})",
    ] {
        server.value_when(count, |count| count == samples as f64);
    }

    // A count lies between its values before and after.
    for sample in [
        "plimsoll_gc_heap_allocs_bytes_total",
        "plimsoll_gc_heap_allocs_by_size_bytes_bucket{le=\"64.0\"}",
        "go_memstats_mallocs_total",
        "process_cpu_seconds_total",
    ] {
        let before = on_page(&page(&search), sample);
        let between = server.value_when(sample, |value| value >= before);
        let after = on_page(&page(&search), sample);
        assert!(
            between <= after && before > 0.0,
            "{sample}: {before} {between} {after}"
        );
    }

    // All samples of one scrape belong to one instant, under load.
    let mut last = 0.0;
    for _ in 0..5 {
        let time = "timestamp(plimsoll_gc_heap_allocs_bytes_total)";
        last = server.value_when(time, |time| time > last);
        for zero in [
            "go_memstats_alloc_bytes_total - plimsoll_gc_heap_allocs_bytes_total",
            "go_memstats_alloc_bytes_total - plimsoll_gc_heap_frees_bytes_total - go_memstats_alloc_bytes",
            "go_memstats_mallocs_total - go_memstats_frees_total - go_memstats_heap_objects",
            "plimsoll_gc_heap_allocs_by_size_bytes_count - plimsoll_gc_heap_allocs_objects_total",
            "plimsoll_gc_heap_allocs_by_size_bytes_sum - plimsoll_gc_heap_allocs_bytes_total",
        ] {
            let zero = zero.replace(" - ", " - ignoring(__name__) ");
            assert_eq!(server.value(&zero), 0.0, "{zero}");
        }
    }

    // Typical queries.
    let rate = "rate(plimsoll_gc_heap_allocs_bytes_total[5s])";
    server.value_when(rate, |rate| rate > 0.0);
    let size = "histogram_quantile(0.9, rate(plimsoll_gc_heap_allocs_by_size_bytes_bucket[5s]))";
    server.value_when(size, |size| size > 0.0 && size <= 32768.0);
    let (labels, value) = server.row_when("go_info", |_| true);
    assert_eq!(value, 1.0);
    assert!(
        labels["version"]
            .as_str()
            .expect("text")
            .starts_with("plimsoll ")
    );
    let process = server.value("process_start_time_seconds");
    let now = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap();
    assert!((0.0..600.0).contains(&(now.as_secs_f64() - process)));

    // The metadata of each metric.
    let known = server.ask("/api/v1/metadata");
    for (name, kind, unit) in [
        ("plimsoll_gc_heap_allocs_bytes", "counter", "bytes"),
        (
            "plimsoll_gc_heap_allocs_by_size_bytes",
            "histogram",
            "bytes",
        ),
        ("go_memstats_alloc_bytes", "gauge", "bytes"),
        ("go_gc_duration_seconds", "summary", "seconds"),
    ] {
        let said = &known[name][0];
        assert_eq!(
            (&said["type"], &said["unit"]),
            (&kind.into(), &unit.into()),
            "{name}"
        );
        assert_ne!(said["help"], "", "{name}");
    }
}

/// Collections of scripts are visible.
#[test]
fn a_server_sees_the_collections_of_scripts() {
    let Some(server) = program("prometheus") else {
        return;
    };
    let lisp = Running::start("lisp", &[], "go_names=on");
    let server = scrape(&server, &lisp.profiles);
    let cycles = "plimsoll_gc_collector_cycles_gc_cycles_total{collector=\"lisp\"}";
    let first = server.value_when(cycles, |cycles| cycles > 0.0);
    server.value_when(cycles, |cycles| cycles > first);
    server.value_when("plimsoll_gc_heap_live_bytes", |live| live > 0.0);
    server.value_when("go_memstats_last_gc_time_seconds", |time| time > 1.7e9);
    let pauses = "rate(go_gc_duration_seconds_sum[5s])";
    server.value_when(pauses, |rate| rate > 0.0);
    // These figures belong to one instant.
    for zero in [
        "plimsoll_gc_cycles_total - go_gc_duration_seconds_count",
        "plimsoll_gc_heap_goal_bytes - go_memstats_next_gc_bytes",
        "plimsoll_gc_completed_pauses_seconds_total - go_gc_duration_seconds_sum",
    ] {
        let zero = zero.replace(" - ", " - ignoring(__name__) ");
        assert_eq!(server.value(&zero), 0.0, "{zero}");
    }
    if let Some(promtool) = program("promtool") {
        let complaints = check(&promtool, &page(&lisp));
        assert!(complaints.is_empty(), "{complaints}");
    }
}

#[test]
fn promtool_accepts_the_page() {
    let Some(program) = program("promtool") else {
        return;
    };
    for settings in ["go_names=off", "go_names=on"] {
        let search = Running::search(settings);
        let page = page(&search);
        let complaints = check(&program, &page);
        assert!(complaints.is_empty(), "{settings}: {complaints}\n{page}");
        // `promtool` does report a flaw.
        let wrong = check(&program, &format!("{page}no_help_total 1\n"));
        assert!(wrong.contains("no_help_total no help text"), "{wrong}");
    }
}

/// Returns the output of `promtool check metrics`.
fn check(program: &Path, page: &str) -> String {
    let mut process = Command::new(program)
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it can be run");
    let mut input = process.stdin.take().expect("piped");
    input.write_all(page.as_bytes()).expect("it reads");
    drop(input);
    let output = process.wait_with_output().expect("it ends");
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said).into_owned();
    assert_eq!(output.status.success(), said.is_empty(), "{said}");
    said
}
