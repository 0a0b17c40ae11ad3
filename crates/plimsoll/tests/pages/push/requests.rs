//! The requests, byte by byte.

use std::collections::BTreeSet;
use std::hint::black_box;
use std::sync::{Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use plimsoll::profile;
use plimsoll::push::{Pushing, pyroscope};
use plimsoll_testkit::{child, pprof};

use super::server::{OK, Request, Server};
use super::{LONG, SHORT, threads};

#[inline(never)]
fn allocates(size: usize) -> Vec<u8> {
    black_box(Vec::with_capacity(size))
}

fn now() -> u128 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap()
        .as_nanos()
}

/// Splits a body by the protocol's form: names, file names and contents of its parts.
fn parts(request: &Request) -> Vec<(String, String, Vec<u8>)> {
    let kind = request.header("Content-Type");
    let boundary = kind.strip_prefix("multipart/form-data; boundary=").unwrap();
    let mut rest = &request.body[..];
    let mut parts = Vec::new();
    loop {
        rest = rest
            .strip_prefix(format!("--{boundary}").as_bytes())
            .expect("a boundary");
        if rest == b"--\r\n" {
            return parts;
        }
        let end = rest
            .windows(4)
            .position(|window| window == b"\r\n\r\n")
            .unwrap();
        let head = std::str::from_utf8(&rest[..end]).unwrap();
        let names = head
            .strip_prefix("\r\nContent-Disposition: form-data; name=\"")
            .and_then(|rest| rest.strip_suffix("\"\r\nContent-Type: application/octet-stream"))
            .expect("the head of a part");
        let (name, file) = names.split_once("\"; filename=\"").unwrap();
        let next = format!("\r\n--{boundary}");
        let content = &rest[end + 4..];
        let length = content
            .windows(next.len())
            .position(|window| window == next.as_bytes())
            .unwrap();
        parts.push((name.into(), file.into(), content[..length].to_vec()));
        rest = &content[length + 2..];
    }
}

/// Returns the profile of a request.
fn profile_of(request: &Request) -> pprof::Profile {
    let (name, file, content) = parts(request).remove(0);
    assert_eq!((&*name, &*file), ("profile", "profile.pprof"));
    pprof::Profile::read(&content)
}

/// Sums the values of the samples within a function.
fn sum(profile: &pprof::Profile, function: &str) -> Vec<i64> {
    let mut sums = vec![0; profile.sample_type.len()];
    for sample in &profile.sample {
        if profile
            .names(sample)
            .iter()
            .any(|name| name.contains(function))
        {
            for (sum, value) in sums.iter_mut().zip(&sample.value) {
                *sum += value;
            }
        }
    }
    sums
}

#[test]
fn pyroscope_gets_a_form_with_the_profile_and_its_time() {
    child::run(
        "pyroscope_gets_a_form_with_the_profile_and_its_time",
        "heap_rate=1",
        || {
            let server = Server::with(OK);
            let before = now();
            let earlier = allocates(1024);
            let pushing = pyroscope(format!("{}/base/", server.url()), "my/shop.web")
                .profiles(["heap"])
                .interval(LONG)
                .label("region", "eu west")
                .label("version", "1.2")
                .basic_auth("user", "pass:word")
                .tenant("team-1")
                .header("X-Other", "a b")
                .start()
                .unwrap();
            let (dropped, kept) = (allocates(2048), allocates(3072));
            drop(dropped);
            let counts = pushing.counts();
            assert_eq!((counts.sent, counts.failed), (0, 0));
            drop(pushing);
            let request = server.next();
            let head = &request.head;
            let query = head.split(' ').nth(1).unwrap();
            let value = |name: &str| -> u128 {
                let value = query.split(&format!("&{name}=")).nth(1).unwrap();
                value.split('&').next().unwrap().parse().unwrap()
            };
            let (from, until) = (value("from"), value("until"));
            assert!(before < from && from < until && until < now(), "{head}");
            let length = request.body.len();
            let kind = request.header("Content-Type");
            let expected = format!(
                "POST /base/ingest?name=my%2Fshop.web%7Bregion%3Deu%20west%2Cversion%3D1.2%7D&from={from}&until={until}\
             &spyName=plimsoll&sampleRate=100 HTTP/1.1\r\nHost: {}\r\nUser-Agent: plimsoll/{}\r\nContent-Length: {length}\r\n\
             Connection: close\r\nContent-Type: {kind}\r\nAuthorization: Basic dXNlcjpwYXNzOndvcmQ=\r\n\
             X-Scope-OrgID: team-1\r\nX-Other: a b\r\n\r\n",
                server.url().strip_prefix("http://").unwrap(),
                env!("CARGO_PKG_VERSION"),
            );
            assert_eq!(*head, expected);
            let names: Vec<_> = parts(&request).into_iter().map(|(name, ..)| name).collect();
            assert_eq!(names, ["profile"]);
            let profile = profile_of(&request);
            // Events of the interval, and all memory in use.
            assert_eq!(sum(&profile, "requests::allocates"), [2, 5120, 2, 4096]);
            assert_eq!(profile.time_nanos as u128, from);
            assert_eq!((profile.time_nanos + profile.duration_nanos) as u128, until);
            drop((earlier, kept));
            server.is_done();
        },
    );
}

#[test]
fn intervals_follow_each_other_without_gap_or_overlap() {
    let name = "intervals_follow_each_other_without_gap_or_overlap";
    child::run(name, "heap_rate=1", || {
        let server = Server::with(OK);
        let push = pyroscope(server.url(), "shop").profiles(["heap"]);
        let pushing = push.interval(SHORT).start().unwrap();
        let (mut ends, mut allocated, mut in_use) = (None, 0, 0);
        let mut add = |request: &Request| {
            let profile = profile_of(request);
            assert!(ends.is_none_or(|end| end == profile.time_nanos));
            ends = Some(profile.time_nanos + profile.duration_nanos);
            let sums = sum(&profile, "requests::allocates");
            assert!(sums[2] >= in_use, "{sums:?}");
            (allocated, in_use) = (allocated + sums[0], sums[2]);
            assert_eq!(allocated, in_use, "nothing is freed");
            for name in ["plimsoll_serve::push", "plimsoll_profiles::export"] {
                let own = sum(&profile, name);
                assert_eq!(own, [0; 4], "Plimsoll's memory is not the program's");
            }
            allocated
        };
        let mut kept = Vec::new();
        for _ in 0..5 {
            kept.push(allocates(1024));
            add(&server.next());
        }
        let threads = plimsoll::thread::threads();
        assert!(
            threads
                .iter()
                .all(|thread| thread.name() != "plimsoll-push")
        );
        drop(pushing);
        let mut all = 0;
        while let Some(request) = server.taken() {
            all = add(&request);
        }
        assert_eq!(all, 5);
    });
}

#[inline(never)]
fn waits(lock: &Mutex<()>) {
    drop(lock.lock());
}

#[inline(never)]
fn releases(held: MutexGuard<'_, ()>) {
    drop(held);
}

/// Makes a thread wait for a lock, most times.
fn contend() {
    let lock = Mutex::new(());
    let held = lock.lock().unwrap();
    thread::scope(|scope| {
        scope.spawn(|| waits(&lock));
        thread::sleep(Duration::from_millis(5));
        releases(held);
    });
}

#[test]
fn block_and_mutex_have_the_names_that_the_server_distinguishes() {
    child::run(
        "block_and_mutex_have_the_names_that_the_server_distinguishes",
        "block_rate=1ns,mutex_fraction=1",
        || {
            let _plimsoll = plimsoll::start();
            let server = Server::with(OK);
            let profiles = ["block", "mutex", "goroutine", "longpoll"];
            let push = pyroscope(server.url(), "shop")
                .profiles(profiles)
                .interval(SHORT);
            let pushing = push.start().unwrap();
            let mut missing = BTreeSet::from(["block", "mutex", "goroutine"]);
            while !missing.is_empty() {
                contend();
                assert_eq!(pushing.counts().failed, 0);
                let Some(request) = server.taken() else {
                    continue;
                };
                let profile = profile_of(&request);
                let (name, file, content) = parts(&request).remove(1);
                assert_eq!(
                    (&*name, &*file),
                    ("sample_type_config", "sample_type_config.json")
                );
                let config: serde_json::Value = serde_json::from_slice(&content).unwrap();
                let name = |kind: &str| config[kind]["display-name"].clone();
                // No poll is long.
                let kind = match profile.sample_types()[0].0 {
                    "goroutine" => {
                        assert_eq!(name("goroutine"), "goroutines");
                        assert_eq!(config["goroutine"]["aggregation"], "average");
                        "goroutine"
                    }
                    "contentions" => {
                        let has = |function| sum(&profile, function)[0] > 0;
                        let kind = match (has("requests::waits"), has("requests::releases")) {
                            (true, false) => "block",
                            (false, true) => "mutex",
                            // Other waits only.
                            _ => continue,
                        };
                        assert_eq!(name("contentions"), format!("{kind}_count"));
                        assert_eq!(name("delay"), format!("{kind}_duration"));
                        kind
                    }
                    other => panic!("{other}"),
                };
                missing.remove(kind);
            }
        },
    );
}

#[inline(never)]
fn burns() {
    for _ in 0..1_000_000 {
        black_box(1);
    }
}

/// Waits for a CPU profile with `burns` in it.
fn burn(server: &Server, pushing: &Pushing) -> pprof::Profile {
    loop {
        burns();
        if let Some(request) = server.taken() {
            let profile = profile_of(&request);
            if sum(&profile, "requests::burns")[0] > 0 {
                return profile;
            }
        }
        assert_eq!(pushing.counts().failed, 0);
    }
}

#[test]
fn cpu_samples_are_recorded_while_they_are_pushed() {
    child::run("cpu_samples_are_recorded_while_they_are_pushed", "", || {
        let server = Server::with(OK);
        let push = || {
            pyroscope(server.url(), "shop")
                .profiles(["profile"])
                .interval(SHORT)
        };
        let pushing = push().start().unwrap();
        assert_eq!(profile::cpu::rate(), profile::cpu::DEFAULT_RATE);
        let cpu = burn(&server, &pushing);
        assert_eq!(
            cpu.sample_types(),
            [("samples", "count"), ("cpu", "nanoseconds")]
        );
        assert_eq!(cpu.period, 10_000_000);
        let [samples, nanoseconds] = sum(&cpu, "")[..] else {
            panic!()
        };
        assert_eq!(nanoseconds, samples * 10_000_000);
        drop(pushing);
        assert_eq!(profile::cpu::rate(), 0);
        // The rate of the program is neither changed nor ended.
        profile::cpu::set_rate(19).unwrap();
        drop(push().start().unwrap());
        assert_eq!(profile::cpu::rate(), 19);
    });
}

#[cfg(feature = "otlp")]
#[test]
fn a_collector_gets_an_export_request() {
    use opentelemetry_proto::tonic::collector::profiles::v1development::ExportProfilesServiceRequest;
    use prost::Message as _;

    child::run("a_collector_gets_an_export_request", "heap_rate=1", || {
        let server = Server::with(OK);
        let pushing = plimsoll::push::otlp(server.url(), "shop")
            .profiles(["heap"])
            .interval(LONG)
            .label("service.version", "1.2")
            .bearer_token("t0k3n")
            .start()
            .unwrap();
        drop(allocates(2048));
        drop(pushing);
        let request = server.next();
        let expected = format!(
            "POST /v1development/profiles HTTP/1.1\r\nHost: {}\r\nUser-Agent: plimsoll/{}\r\nContent-Length: {}\r\n\
             Connection: close\r\nContent-Type: application/x-protobuf\r\nContent-Encoding: gzip\r\n\
             Authorization: Bearer t0k3n\r\n\r\n",
            server.url().strip_prefix("http://").unwrap(),
            env!("CARGO_PKG_VERSION"),
            request.body.len(),
        );
        assert_eq!(request.head, expected);
        let mut body = Vec::new();
        std::io::Read::read_to_end(
            &mut flate2::read::GzDecoder::new(&request.body[..]),
            &mut body,
        )
        .unwrap();
        let request = ExportProfilesServiceRequest::decode(&body[..]).unwrap();
        let dictionary = request.dictionary.unwrap();
        let string = |index: i32| &*dictionary.string_table[index as usize];
        let [resource] = &request.resource_profiles[..] else {
            panic!()
        };
        let attributes = &resource.resource.as_ref().unwrap().attributes;
        let keys: Vec<_> = attributes.iter().map(|attribute| &*attribute.key).collect();
        assert_eq!(
            keys,
            [
                "service.version",
                "service.name",
                "telemetry.sdk.name",
                "telemetry.sdk.language",
                "telemetry.sdk.version"
            ]
        );
        let profiles = &resource.scope_profiles[0].profiles;
        let sums = profiles.iter().map(|profile| {
            let samples = profile.samples.iter().filter(|sample| {
                let stack = &dictionary.stack_table[sample.stack_index as usize];
                let locations = stack.location_indices.iter();
                let mut lines =
                    locations.flat_map(|&at| &dictionary.location_table[at as usize].lines);
                lines.any(|line| {
                    let function = &dictionary.function_table[line.function_index as usize];
                    string(function.name_strindex).contains("requests::allocates")
                })
            });
            let sum: i64 = samples.map(|sample| sample.values[0]).sum();
            (string(profile.sample_type.unwrap().type_strindex), sum)
        });
        let sums: Vec<_> = sums.collect();
        assert_eq!(
            sums,
            [
                ("alloc_objects", 1),
                ("alloc_space", 2048),
                ("inuse_objects", 0),
                ("inuse_space", 0)
            ]
        );
        server.is_done();
    });
}

#[test]
fn unusable_settings_are_refused_with_their_reason() {
    let server = Server::with(OK);
    for (push, reason) in [
        (
            pyroscope("https://profiles.example.com", "shop"),
            "an agent or a collector",
        ),
        (
            pyroscope("pyroscope:4040", "shop"),
            "does not begin with http://",
        ),
        (
            pyroscope(server.url(), "my shop"),
            "name or label of \"my shop\"",
        ),
        (
            threads(&server).label("a-b", "c"),
            "\"a-b\" is not the name of a label",
        ),
        (
            threads(&server).profiles(["heap", "no-such"]),
            "profile \"no-such\": it does not exist",
        ),
        (
            threads(&server).interval(Duration::ZERO),
            "interval \"0ns\"",
        ),
        (threads(&server).header("a b", ""), "header \"a b\""),
        (
            threads(&server).bearer_token("secret\r\nX: y"),
            "header \"Authorization\"",
        ),
    ] {
        let error = push.start().unwrap_err().to_string();
        assert!(
            error.starts_with("cannot push profiles: ") && error.contains(reason),
            "{error}"
        );
        assert!(!error.contains("secret"), "{error}");
    }
    let shown = format!("{:?}", threads(&server).bearer_token("secret"));
    assert!(!shown.contains("secret"), "{shown}");
    server.is_done();
}
