//! The growth of allocation sites: its page, its metric and its callback.

use std::hint::black_box;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use plimsoll::history::{self, Verdict};
use plimsoll::metrics::{self, Sample, Value};
use plimsoll_testkit::child;
use plimsoll_testkit::client::request;
use serde_json::Value as Json;

const PATH: &str = "/debug/plimsoll/growth";

#[inline(never)]
fn leaks() -> Vec<u8> {
    black_box(vec![1; 1000])
}

#[inline(never)]
fn replaces() -> Vec<u8> {
    black_box(vec![1; 1000])
}

/// Leaks 20 blocks for each reading of the growth, and replaces 20 of 100 others, however fast or slow
/// this thread and the readings are.
fn works(stop: &AtomicBool) {
    let mut kept: Vec<Vec<u8>> = (0..100).map(|_| replaces()).collect();
    let mut at = 0;
    let mut readings = 0;
    while !stop.load(Ordering::Relaxed) {
        let now = history::growth().readings;
        for _ in 0..20 * (now - readings) {
            std::mem::forget(leaks());
            kept[at] = replaces();
            at = (at + 1) % kept.len();
        }
        readings = now;
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn page(address: SocketAddr) -> Json {
    let answer = request(address, "GET", PATH);
    assert_eq!(answer.status, 200, "{}", answer.text());
    serde_json::from_slice(&answer.body).expect("JSON")
}

/// Returns the entries of sites with a function.
fn of<'a>(page: &'a Json, function: &str) -> Vec<&'a Json> {
    let sites = page["sites"].as_array().unwrap().iter();
    let has = |site: &&Json| {
        let mut frames = site["stack"].as_array().unwrap().iter();
        frames.any(|frame| frame["function"].as_str().unwrap().ends_with(function))
    };
    sites.filter(has).collect()
}

/// All blocks are sampled.
#[test]
fn a_leak_is_found_beside_a_site_of_constant_size() {
    child::run(
        "a_leak_is_found_beside_a_site_of_constant_size",
        "heap_rate=1,growth=20ms,memory_limit=4g,http=127.0.0.1:0",
        || {
            let plimsoll = plimsoll::start();
            let address = plimsoll.http_address().unwrap();
            let (sender, receiver) = mpsc::channel();
            let callback = history::on_growth(1.0, move |growth| {
                let leaks: Vec<Vec<usize>> =
                    growth.leaks().map(|site| site.stack.clone()).collect();
                let _ = sender.send((growth.bytes_per_second, leaks));
            });
            static STOP: AtomicBool = AtomicBool::new(false);
            let works = std::thread::spawn(|| works(&STOP));

            let (rate, leaks) = receiver.recv().expect("the callback runs");
            assert!(rate > 1.0 && !leaks.is_empty());
            drop(callback);
            let page = page(address);
            for site in of(&page, "::replaces") {
                assert_ne!(site["verdict"], "leaking", "{site}");
            }
            let site = of(&page, "::leaks")[0];
            assert_eq!(site["verdict"], "leaking", "{site}");
            // Blocks of 1000 bytes have the size class of 1024.
            let number = |name: &str| site[name].as_f64().unwrap();
            let of_blocks = number("mallocs") * 1024.0 / number("window");
            let error = number("error").max(of_blocks / 10.0);
            let slope = number("bytes_per_second");
            assert!(
                (slope - of_blocks).abs() <= 2.0 * error,
                "{of_blocks}: {site}"
            );
            assert_eq!(site["frees"], 0);
            assert_eq!(site["lifetime"], Json::Null);
            assert!(number("chance") <= 1e-4);
            let course = site["course"].as_array().unwrap();
            let bytes = |at: usize| course[at][1].as_u64().unwrap();
            assert!(bytes(0) < bytes(course.len() - 1), "{site}");
            assert!(page["seconds_to_limit"].as_f64().unwrap() > 0.0);

            let mut samples = [Sample::new("/plimsoll/growth:bytes-per-second")];
            metrics::read(&mut samples);
            assert!(matches!(samples[0].value, Value::Float64(rate) if rate > 1.0));
            let answer = request(address, "GET", "/metrics");
            let metrics = answer.text();
            assert!(
                metrics.contains("\nplimsoll_growth_bytes_per_second "),
                "{metrics}"
            );

            STOP.store(true, Ordering::Relaxed);
            works.join().unwrap();
            let growth = history::growth();
            assert!(growth.readings >= history::READINGS_NEEDED);
            assert!(
                growth
                    .sites
                    .iter()
                    .any(|site| site.verdict != Verdict::Leaking)
            );
        },
    );
}

#[test]
fn the_page_says_that_growth_is_off() {
    for settings in ["growth=off", "history=off"] {
        child::run(
            "the_page_says_that_growth_is_off",
            &format!("{settings},http=127.0.0.1:0"),
            || {
                let plimsoll = plimsoll::start();
                let address = plimsoll.http_address().unwrap();
                let answer = request(address, "GET", PATH);
                assert_eq!(answer.status, 404);
                assert!(answer.text().contains("growth=off"), "{}", answer.text());
                assert_eq!(history::growth().readings, 0);
            },
        );
    }
}

#[test]
fn before_the_first_verdict_the_page_has_no_sites() {
    child::run(
        "before_the_first_verdict_the_page_has_no_sites",
        "http=127.0.0.1:0",
        || {
            let plimsoll = plimsoll::start();
            let address = plimsoll.http_address().unwrap();
            while history::growth().readings == 0 {
                std::thread::sleep(Duration::from_millis(10));
            }
            let page = page(address);
            assert_eq!(page["readings_needed"], history::READINGS_NEEDED);
            assert_eq!(page["sites"], Json::Array(Vec::new()));
            assert_eq!(page["bytes_per_second"].to_string(), "0");
        },
    );
}
