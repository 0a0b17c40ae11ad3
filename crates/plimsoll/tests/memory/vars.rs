//! `/debug/vars` in the form of Go's `expvar`, read by a JSON parser independent of Plimsoll.

use std::process::Command;

use plimsoll::http::{self, Response};
use plimsoll::{MemStats, mem_stats};
use serde_json::{Map, Value};

fn answer() -> Response {
    http::handle("GET", "/debug/vars", "")
}

fn read(response: Response) -> Map<String, Value> {
    assert_eq!(response.status, 200);
    let content_type = (
        "Content-Type",
        "application/json; charset=utf-8".to_string(),
    );
    assert!(response.headers.contains(&content_type));
    match serde_json::from_slice(&response.body) {
        Ok(Value::Object(vars)) => vars,
        other => panic!("{other:?}"),
    }
}

fn numbers(value: &Value) -> Vec<u64> {
    let list = value.as_array().expect("a list");
    list.iter().map(|value| value.as_u64().unwrap()).collect()
}

/// Returns Go's fields in Go's order, each with its value in `stats`.
fn fields(stats: &MemStats) -> Vec<(&'static str, Value)> {
    let by_size = stats.by_size.iter().map(|class| {
        serde_json::json!({"Size": class.size, "Mallocs": class.mallocs, "Frees": class.frees})
    });
    vec![
        ("Alloc", stats.alloc.into()),
        ("TotalAlloc", stats.total_alloc.into()),
        ("Sys", stats.sys.into()),
        ("Lookups", stats.lookups.into()),
        ("Mallocs", stats.mallocs.into()),
        ("Frees", stats.frees.into()),
        ("HeapAlloc", stats.heap_alloc.into()),
        ("HeapSys", stats.heap_sys.into()),
        ("HeapIdle", stats.heap_idle.into()),
        ("HeapInuse", stats.heap_inuse.into()),
        ("HeapReleased", stats.heap_released.into()),
        ("HeapObjects", stats.heap_objects.into()),
        ("StackInuse", stats.stack_inuse.into()),
        ("StackSys", stats.stack_sys.into()),
        ("MSpanInuse", stats.mspan_inuse.into()),
        ("MSpanSys", stats.mspan_sys.into()),
        ("MCacheInuse", stats.mcache_inuse.into()),
        ("MCacheSys", stats.mcache_sys.into()),
        ("BuckHashSys", stats.buck_hash_sys.into()),
        ("GCSys", stats.gc_sys.into()),
        ("OtherSys", stats.other_sys.into()),
        ("NextGC", stats.next_gc.into()),
        ("LastGC", stats.last_gc.into()),
        ("PauseTotalNs", stats.pause_total_ns.into()),
        ("PauseNs", stats.pause_ns.to_vec().into()),
        ("PauseEnd", stats.pause_end.to_vec().into()),
        ("NumGC", stats.num_gc.into()),
        ("NumForcedGC", stats.num_forced_gc.into()),
        ("GCCPUFraction", stats.gc_cpu_fraction.into()),
        ("EnableGC", stats.enable_gc.into()),
        ("DebugGC", stats.debug_gc.into()),
        ("BySize", by_size.collect::<Vec<_>>().into()),
    ]
}

/// Reports whether a field counts memory of Plimsoll itself, which changes from reading to reading.
fn is_its_own(field: &str) -> bool {
    ["Sys", "OtherSys", "MCacheInuse", "MCacheSys", "BuckHashSys"].contains(&field)
}

#[test]
fn every_field_has_gos_name_and_the_number_of_the_statistics() {
    let (stats, vars) = loop {
        let (before, response, after) = (mem_stats(), answer(), mem_stats());
        // Other threads may allocate or end between the readings.
        let lists = [&before, &after].map(|stats| {
            let fields = fields(stats).into_iter();
            fields
                .filter(|(name, _)| !is_its_own(name))
                .collect::<Vec<_>>()
        });
        if lists[0] == lists[1] {
            break (after, read(response));
        }
    };
    assert_eq!(vars.len(), 2);
    let memory = vars["memstats"].as_object().expect("an object");
    let fields = fields(&stats);
    for (name, value) in &fields {
        if is_its_own(name) {
            assert!(memory[*name].is_u64(), "{name}");
        } else if value.is_f64() {
            assert_eq!(memory[*name].as_f64(), value.as_f64(), "{name}");
        } else {
            assert_eq!(&memory[*name], value, "{name}");
        }
    }
    assert_eq!(memory.len(), fields.len());
    assert_eq!(numbers(&memory["PauseNs"]).len(), 256);
    let text = String::from_utf8(answer().body).unwrap();
    let places: Vec<_> = fields
        .iter()
        .map(|(name, _)| text.find(&format!("\"{name}\":")).expect(name))
        .collect();
    assert!(places.is_sorted(), "in Go's order");
}

/// Characters that JSON must escape, or that a browser would interpret.
const HOSTILE: &str = "\"\\\n\r\t\u{1}\u{7f}\u{2028}</script>&\u{1F600}";

#[test]
fn arguments_are_read_back_as_they_are() {
    const MARK: &str = "PLIMSOLL_TEST_ARGUMENTS";
    if std::env::var_os(MARK).is_none() {
        let name = "arguments_are_read_back_as_they_are";
        let status = Command::new(std::env::current_exe().unwrap())
            .args([
                &*plimsoll_testkit::child::full_name(name),
                "--exact",
                HOSTILE,
            ])
            .env(MARK, "1")
            .status();
        return assert!(status.unwrap().success());
    }
    let arguments: Vec<String> = std::env::args().collect();
    assert_eq!(arguments.last().map(String::as_str), Some(HOSTILE));
    assert_eq!(read(answer())["cmdline"], Value::from(arguments));
    let text = String::from_utf8(answer().body).unwrap();
    assert!(!text.contains(['<', '&', '\u{2028}']));
}
