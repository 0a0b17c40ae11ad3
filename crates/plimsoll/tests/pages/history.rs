//! The history: readings each second, kept heap profiles, and their pages.

use std::hint::black_box;
use std::net::SocketAddr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use plimsoll::history::{self, SERIES};
use plimsoll_testkit::child;
use plimsoll_testkit::client::request;
use plimsoll_testkit::pprof::Profile;
use serde_json::Value;

const MIB: usize = 1 << 20;

fn heap() -> plimsoll::profile::Profile {
    plimsoll::profile::lookup("heap").expect("built in")
}

#[inline(never)]
fn fills_a_cache() -> Vec<Vec<u8>> {
    (0..200).map(|_| black_box(vec![1; MIB / 10])).collect()
}

/// Waits until the history fulfils a condition.
fn wait_until(mut holds: impl FnMut(&history::History) -> bool) {
    while !holds(&history::read()) {
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Returns the bytes in use that the function above allocated, and those of the whole profile.
fn bytes_of(profile: &Profile, function: &str) -> (i64, i64) {
    let sum = |wanted: &dyn Fn(&[&str]) -> bool| {
        let samples = profile.sample.iter();
        let samples = samples.filter(|sample| wanted(&profile.names(sample)));
        samples.map(|sample| sample.value[1]).sum()
    };
    let named = |names: &[&str]| names.iter().any(|name| name.ends_with(function));
    (sum(&named), sum(&|_| true))
}

fn json(address: SocketAddr, path: &str) -> Value {
    let answer = request(address, "GET", path);
    assert_eq!(answer.status, 200, "{}", answer.text());
    serde_json::from_slice(&answer.body).expect("JSON")
}

fn seconds(time: SystemTime) -> f64 {
    time.duration_since(UNIX_EPOCH).unwrap().as_secs_f64()
}

/// All blocks are sampled, so the estimates are exact.
#[test]
fn maxima_of_the_heap_can_be_read_later() {
    child::run(
        "maxima_of_the_heap_can_be_read_later",
        "heap_rate=1,http=127.0.0.1:0",
        || {
            let plimsoll = plimsoll::start();
            let address = plimsoll.http_address().unwrap();
            wait_until(|history| !history.heaps.is_empty());
            let before = SystemTime::now();
            let mut caches = vec![fills_a_cache()];
            // A reading at an interval may be as large.
            let is_large =
                |heap: &history::HeapReading| heap.is_maximum && heap.bytes > 20 * MIB as u64;
            loop {
                let filled = SystemTime::now();
                wait_until(|history| history.steps[0].points.last().unwrap().time > filled);
                if history::read().heaps.iter().any(is_large) {
                    break;
                }
                // A maximum of a part of the cache was read: the whole is not so much more that it is another one.
                caches.push(fills_a_cache());
            }
            drop(caches);
            let after = SystemTime::now();
            wait_until(|history| {
                let last = history.steps[0].points.last().unwrap();
                last.time > after && last.value("heap_bytes").unwrap() < 20.0 * MIB as f64
            });

            let history = history::read();
            let maximum = history.heaps.iter().find(|heap| is_large(heap)).unwrap();
            assert!(maximum.time >= before, "{maximum:?}");
            let at = seconds(maximum.time);
            let answer = request(address, "GET", &format!("/debug/pprof/heap?at={at}"));
            let profile = Profile::read(&answer.body);
            assert_eq!(
                profile.sample_types(),
                [("inuse_objects", "count"), ("inuse_space", "bytes")]
            );
            let (of_cache, all) = bytes_of(&profile, "::fills_a_cache");
            // 200 blocks of a size class above 102.4 KiB, and the list of them.
            assert!(of_cache >= 20 * MIB as i64, "{of_cache} of {all}");
            assert!((of_cache as u64) <= maximum.bytes, "{of_cache} {maximum:?}");

            let first = seconds(history.heaps[0].time);
            let path = format!("/debug/pprof/heap?from={first}&to={at}");
            let growth = Profile::read(&request(address, "GET", &path).body);
            assert_eq!(bytes_of(&growth, "::fills_a_cache").0, of_cache);
            assert!(growth.duration_nanos > 0);
            let snapshot =
                history::profile_between(&heap(), history.heaps[0].time, maximum.time).unwrap();
            let bytes = snapshot
                .records()
                .filter_map(|record| record.value("inuse_space"));
            assert_eq!(bytes.sum::<i64>(), bytes_of(&growth, "::fills_a_cache").1);
        },
    );
}

#[test]
fn the_page_has_the_readings_of_a_window() {
    child::run(
        "the_page_has_the_readings_of_a_window",
        "http=127.0.0.1:0,memory_limit=1g",
        || {
            let plimsoll = plimsoll::start();
            let address = plimsoll.http_address().unwrap();
            wait_until(|history| history.steps[0].points.len() >= 3);
            let all = json(address, "/debug/plimsoll/history");
            assert_eq!(all["version"], 1);
            assert_eq!(all["pid"], std::process::id());
            let names: Vec<&str> = (all["series"].as_array().unwrap().iter())
                .map(|name| name.as_str().unwrap())
                .collect();
            assert_eq!(names, SERIES);
            let started = all["started"].as_f64().unwrap();
            let points = all["steps"][0]["points"].as_array().unwrap();
            let now = all["now"].as_f64().unwrap();
            let mut before = started - 1.0;
            for point in points {
                let point = point.as_array().unwrap();
                assert_eq!(point.len(), 1 + SERIES.len());
                let time = point[0].as_f64().unwrap();
                assert!(before < time && time <= now, "{before} {time} {now}");
                before = time;
                for (name, value) in SERIES.iter().zip(&point[1..]) {
                    // The program has no account.
                    let is_absent = *name == "declared_bytes" && value.is_null();
                    assert!(is_absent || value.as_f64().is_some(), "{name}: {value}");
                }
                let value = |name: &str| {
                    let at = SERIES.iter().position(|series| *series == name).unwrap();
                    point[1 + at].as_f64().unwrap()
                };
                assert_eq!(
                    value("allocated_bytes") - value("freed_bytes"),
                    value("heap_bytes")
                );
                assert_eq!(value("limit_bytes"), (1 << 30) as f64);
                assert!(value("resident_bytes") > value("heap_bytes"));
            }
            let second = points[1][0].as_f64().unwrap();
            // Times are written to the millisecond.
            let (from, to) = (second - 0.002, second + 0.002);
            let path = format!("/debug/plimsoll/history?from={from}&to={to}");
            let one = json(address, &path);
            assert_eq!(one["steps"][0]["points"], serde_json::json!([points[1]]));
            for (path, status) in [
                ("/debug/plimsoll/history?from=yesterday", 400),
                ("/debug/plimsoll/history?to=nan", 400),
                ("/debug/pprof/heap?at=yesterday", 400),
                ("/debug/pprof/heap?at=-1e300", 200),
                ("/debug/pprof/heap?at=1e300", 404),
                ("/debug/pprof/heap?from=5&to=4", 404),
                ("/debug/pprof/allocs?at=1", 200),
                ("/debug/pprof/goroutine?at=1", 404),
                ("/debug/pprof/peak?from=1&to=2", 404),
            ] {
                assert_eq!(request(address, "GET", path).status, status, "{path}");
            }
        },
    );
}

/// The page records for 30 seconds without these parameters.
#[test]
fn cpu_samples_of_the_past_are_read_from_the_history() {
    child::run(
        "cpu_samples_of_the_past_are_read_from_the_history",
        "http=127.0.0.1:0,cpu_rate=1000",
        || {
            let plimsoll = plimsoll::start();
            let address = plimsoll.http_address().unwrap();
            let cpu = plimsoll::profile::lookup("profile").expect("built in");
            // A recording would have the time of this thread.
            std::thread::spawn(|| {
                loop {
                    black_box((0..1_000_000_u64).sum::<u64>());
                }
            });
            let nanoseconds = |history: &history::History| {
                let last = history.steps[0].points.last()?.time;
                let snapshot = history::profile_at(&cpu, last)?;
                let values = snapshot.records().filter_map(|record| record.value("cpu"));
                Some((last, values.sum::<i64>()))
            };
            let mut past = None;
            wait_until(|history| {
                past = nanoseconds(history);
                past.is_some()
            });
            let (time, sum) = past.unwrap();
            let path = format!("/debug/pprof/profile?at={}", seconds(time));
            let answer = request(address, "GET", &path);
            assert_eq!(answer.status, 200);
            let cpu = Profile::read(&answer.body);
            let values = cpu.sample.iter().map(|sample| sample.value[1]);
            assert_eq!(values.sum::<i64>(), sum);
            for query in ["at=1e300", "from=5&to=4"] {
                let answer = request(address, "GET", &format!("/debug/pprof/profile?{query}"));
                assert_eq!(answer.status, 404, "{query}");
            }
        },
    );
}

#[test]
fn it_can_be_off() {
    child::run("it_can_be_off", "http=127.0.0.1:0,history=off", || {
        let plimsoll = plimsoll::start();
        let address = plimsoll.http_address().unwrap();
        assert!(history::read().steps.is_empty());
        assert!(history::profile_at(&heap(), SystemTime::now()).is_none());
        let answer = request(address, "GET", "/debug/plimsoll/history");
        assert_eq!(answer.status, 404);
        assert!(
            answer.text().contains("the history is off"),
            "{}",
            answer.text()
        );
        assert_eq!(
            request(address, "GET", "/debug/pprof/heap?at=1").status,
            404
        );
    });
}

/// The child has the readings up to the fork, and adds some once it starts Plimsoll.
#[test]
#[cfg(target_os = "linux")]
fn the_child_of_a_fork_has_its_parents_history() {
    child::run("the_child_of_a_fork_has_its_parents_history", "", || {
        let _plimsoll = plimsoll::start();
        wait_until(|history| !history.steps[0].points.is_empty());
        // SAFETY: the child does what Plimsoll allows after a fork, and ends.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let inherited = history::read().steps[0].points.len();
            assert!(inherited > 0);
            let _plimsoll = plimsoll::start();
            wait_until(|history| history.steps[0].points.len() > inherited);
            // SAFETY: ends the process.
            unsafe { libc::_exit(0) };
        }
        let status = plimsoll_testkit::child::wait(child);
        assert_eq!(status, 0);
    });
}
