//! The requests of Parca and Grafana Alloy by default, and the requirements on the answers, as their
//! sources and documentation state them (Parca `pkg/config`, `pkg/scrape` and `pkg/normalizer`; Alloy
//! `pyroscope.scrape`, and its `validate.go`). These are fixtures of a documented protocol: neither
//! program runs here.

use std::net::SocketAddr;
use std::thread::ScopedJoinHandle;

use plimsoll_testkit::client::{Answer, exchange};
use plimsoll_testkit::pprof::Profile;

use crate::running::Running;

/// The header of Parca's scraper in a build without a version.
pub const PARCA_AGENT: &str = "conprof/";
/// The header of Alloy in a container.
pub const ALLOY_AGENT: &str = "Alloy/v1.20.0 (linux; docker)";

/// The profiles that both scrape by default: name, path, and the types of profiles in Pyroscope,
/// `name:sample type:unit:period type:unit`, as of a Go program.
pub const DEFAULTS: [(&str, &str, &[&str]); 5] = [
    (
        "memory",
        "/debug/pprof/allocs",
        &[
            "memory:alloc_objects:count:space:bytes",
            "memory:alloc_space:bytes:space:bytes",
            "memory:inuse_objects:count:space:bytes",
            "memory:inuse_space:bytes:space:bytes",
        ],
    ),
    (
        "block",
        "/debug/pprof/block",
        &[
            "block:contentions:count:contentions:count",
            "block:delay:nanoseconds:contentions:count",
        ],
    ),
    (
        "goroutine",
        "/debug/pprof/goroutine",
        &["goroutine:goroutine:count:goroutine:count"],
    ),
    (
        "mutex",
        "/debug/pprof/mutex",
        &[
            "mutex:contentions:count:contentions:count",
            "mutex:delay:nanoseconds:contentions:count",
        ],
    ),
    (
        "process_cpu",
        "/debug/pprof/profile",
        &[
            "process_cpu:samples:count:cpu:nanoseconds",
            "process_cpu:cpu:nanoseconds:cpu:nanoseconds",
        ],
    ),
];

/// Returns the bytes of a request as Go's client writes them.
fn request(host: &str, agent: &str, target: &str, token: Option<&str>) -> String {
    let token = token.map(|token| format!("Authorization: Bearer {token}\r\n"));
    format!(
        "GET {target} HTTP/1.1\r\nHost: {host}\r\nUser-Agent: {agent}\r\n{}Accept-Encoding: gzip\r\n\r\n",
        token.unwrap_or_default()
    )
}

pub fn answer(host: &str, agent: &str, target: &str, token: Option<&str>) -> Answer {
    let address: SocketAddr = host.parse().expect("an address");
    let request = request(host, agent, target, token);
    exchange(address, request.as_bytes()).expect("an answer")
}

/// Checks an answer by the rules of both scrapers, and returns the profile.
pub fn profile(target: &str, answer: &Answer) -> Profile {
    assert_eq!(answer.status, 200, "{target}: {:?}", answer.headers);
    let kind = answer.header("content-type").expect("a type");
    assert!(
        kind.starts_with("application/octet-stream"),
        "{target}: {kind}"
    );
    // Go's client would remove such a compression, and the profile is compressed already.
    assert_eq!(answer.header("content-encoding"), None, "{target}");
    assert!(answer.body.starts_with(&[0x1f, 0x8b]), "{target}");
    // This checks Parca's rules for the content, too.
    let profile = Profile::read(&answer.body);
    assert!(profile.time_nanos > 0, "{target}");
    profile
}

/// Returns the names of the profile's types in Pyroscope.
fn types(name: &str, profile: &Profile) -> Vec<String> {
    let period = profile.period_type.as_ref().expect("a period");
    let period = format!(
        "{}:{}",
        profile.text(period.name),
        profile.text(period.unit)
    );
    let types = profile.sample_types().into_iter();
    types
        .map(|(kind, unit)| format!("{name}:{kind}:{unit}:{period}"))
        .collect()
}

/// Requests a profile, and checks its types and its content.
fn scrape(host: &str, agent: &str, seconds: i64, (name, path, expected): (&str, &str, &[&str])) {
    let is_cpu = name == "process_cpu";
    let target = match is_cpu {
        true => format!("{path}?seconds={seconds}"),
        false => path.to_owned(),
    };
    let profile = profile(&target, &answer(host, agent, &target, None));
    assert_eq!(types(name, &profile), expected);
    if is_cpu {
        let duration = profile.duration_nanos;
        assert!(duration >= seconds * 1_000_000_000, "{target}: {duration}");
    }
    let is_off = ["block", "mutex"].contains(&name);
    assert_eq!(profile.sample.is_empty(), is_off, "{target}");
}

/// Sends the requests of a scraper without a configuration of profiles, all at once as it does.
fn scrape_by_default(agent: &str, seconds: i64) {
    // The example sets these rates.
    let search = Running::search("block_rate=0,mutex_fraction=0");
    let host = &search.profiles;
    std::thread::scope(|scope| {
        let requests =
            DEFAULTS.map(|profile| scope.spawn(move || scrape(host, agent, seconds, profile)));
        requests.into_iter().for_each(join);
    });
}

/// Waits for a thread, and panics as it did, so that its message is the last one.
fn join(thread: ScopedJoinHandle<'_, ()>) {
    if let Err(panic) = thread.join() {
        std::panic::resume_unwind(panic);
    }
}

/// A fixture of the protocol: Parca records CPU time for its interval of 10 seconds, Alloy for a second
/// less than its interval of 15. The programs have default settings.
#[test]
fn the_default_scrapes_of_parca_and_alloy_succeed() {
    std::thread::scope(|scope| {
        let scrapers = [(PARCA_AGENT, 10), (ALLOY_AGENT, 14)];
        let scrapers =
            scrapers.map(|(agent, seconds)| scope.spawn(move || scrape_by_default(agent, seconds)));
        scrapers.into_iter().for_each(join);
    });
}
