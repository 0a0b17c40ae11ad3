//! A program that serves its pages: what is switched on, what was lost.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

use super::findings::{Finding, Section};
use crate::Failure;

/// How long a server may take for each step, and for all of an answer.
const TIME: Duration = Duration::from_secs(10);

/// The longest answer, in bytes.
const LONGEST: u64 = 16 << 20;

/// Where pages are served.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Base {
    /// As in the URL, with the port.
    host: String,
    /// What comes before `/metrics`; without a slash at its end.
    path: String,
}

/// Whether what somebody typed is meant as a URL: it has a scheme, or is a host with a port and no
/// file's name.
pub(super) fn is_one(subject: &str) -> bool {
    if subject.starts_with("http://") || subject.starts_with("https://") {
        return true;
    }
    let host = subject.split('/').next().unwrap_or(subject);
    let has_port = host.rsplit_once(':').is_some_and(|(host, port)| {
        !host.is_empty() && port.parse::<u16>().is_ok_and(|port| port != 0)
    });
    has_port && !std::path::Path::new(subject).exists()
}

/// What the pages say.
///
/// # Errors
/// It is not a URL that is understood, or nobody answers.
pub(super) fn section(url: &str) -> Result<Section, Failure> {
    let base = Base::parse(url).map_err(|cause| Failure::new(url, cause))?;
    let fail = |cause: String| Failure::new(url, cause);
    let index = base.get("/debug/pprof/").map_err(fail)?;
    let metrics = base.get("/metrics").map_err(fail)?;
    Ok(Section {
        title: format!("pages at http://{}{}", base.host, base.path),
        findings: findings(&index, &metrics),
    })
}

/// An answer: its status and body.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Answer {
    status: u16,
    body: String,
}

impl Base {
    fn parse(url: &str) -> Result<Self, &'static str> {
        if url.starts_with("https://") {
            return Err("https is not spoken: name the program's own address, with http");
        }
        let rest = url.strip_prefix("http://").unwrap_or(url);
        let rest = rest.split(['?', '#']).next().unwrap_or(rest);
        let (host, path) = rest
            .split_once('/')
            .map_or((rest, ""), |(host, path)| (host, path));
        if host.contains('@') {
            return Err("names and passwords in URLs are not understood");
        }
        let is_text = |text: &str| text.bytes().all(|byte| byte.is_ascii_graphic());
        if host.is_empty() || !is_text(host) || !is_text(path) {
            return Err("is not a URL");
        }
        let mut path = format!("/{path}");
        // The page that somebody looks at as well.
        for page in ["/debug/pprof", "/metrics", "/debug/vars"] {
            if let Some(at) = path.find(page) {
                path.truncate(at);
            }
        }
        let after_brackets = host.rsplit(']').next().unwrap_or(host);
        Ok(Self {
            host: match after_brackets.contains(':') {
                true => host.to_owned(),
                false => format!("{host}:80"),
            },
            path: path.trim_end_matches('/').to_owned(),
        })
    }

    fn get(&self, page: &str) -> Result<Answer, String> {
        let says = |error: std::io::Error| match error.kind() {
            std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut => {
                format!("no answer within {} s", TIME.as_secs())
            }
            _ => error.to_string(),
        };
        let mut stream = self.connect().map_err(says)?;
        stream.set_write_timeout(Some(TIME)).map_err(says)?;
        // Of HTTP 1.0, so that the answer is not sent in chunks.
        let request = format!(
            "GET {}{page} HTTP/1.0\r\nHost: {}\r\nAccept: text/plain, text/html\r\n\
             Connection: close\r\n\r\n",
            self.path, self.host
        );
        stream.write_all(request.as_bytes()).map_err(says)?;
        let answer = read_all(&mut stream, TIME).map_err(says)?;
        Answer::parse(&answer).ok_or_else(|| "does not answer in HTTP".into())
    }

    fn connect(&self) -> std::io::Result<TcpStream> {
        let mut last = std::io::Error::other("the name has no address");
        for address in self.host.to_socket_addrs()? {
            match TcpStream::connect_timeout(&address, TIME) {
                Ok(stream) => return Ok(stream),
                Err(error) => last = error,
            }
        }
        Err(last)
    }
}

/// Everything until the other side closes, as far as it may be: in length and in time.
fn read_all(stream: &mut TcpStream, time: Duration) -> std::io::Result<Vec<u8>> {
    use std::io::ErrorKind::{Interrupted, TimedOut, WouldBlock};
    let until = Instant::now() + time;
    let mut answer = Vec::new();
    let mut part = [0; 16 * 1024];
    while (answer.len() as u64) < LONGEST {
        let left = until.saturating_duration_since(Instant::now());
        let read = match left.is_zero() {
            true => Err(TimedOut.into()),
            false => {
                stream.set_read_timeout(Some(left))?;
                stream.read(&mut part)
            }
        };
        match read {
            Ok(0) => break,
            Ok(length) => answer.extend_from_slice(&part[..length]),
            Err(error) if error.kind() == Interrupted => {}
            Err(error) if matches!(error.kind(), TimedOut | WouldBlock) && !answer.is_empty() => {
                return Err(std::io::Error::other(format!(
                    "the answer is not complete after {:.0} s: {} bytes of it came",
                    time.as_secs_f64(),
                    answer.len()
                )));
            }
            Err(error) => return Err(error),
        }
    }
    Ok(answer)
}

impl Answer {
    fn parse(bytes: &[u8]) -> Option<Self> {
        let text = String::from_utf8_lossy(bytes);
        let (head, body) = text.split_once("\r\n\r\n")?;
        let status = head.strip_prefix("HTTP/1.")?.get(1..)?.trim_start();
        let status = status.get(..3)?.parse().ok()?;
        Some(Self {
            status,
            body: body.to_owned(),
        })
    }
}

/// The numbers without labels of a page for Prometheus, by their names.
fn numbers(page: &str) -> HashMap<&str, f64> {
    page.lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| line.split_once(' '))
        .filter(|(name, _)| !name.contains('{'))
        .filter_map(|(name, rest)| Some((name, rest.split(' ').next()?.parse().ok()?)))
        .collect()
}

/// The profiles that the index lists, with how much is in each.
fn profiles(index: &str) -> Vec<String> {
    let rows = index.split("<tr><td>").skip(1);
    rows.filter_map(|row| {
        let (count, rest) = row.split_once('<')?;
        let (_, rest) = rest.split_once("href=")?;
        let (_, rest) = rest.split_once('>')?;
        let (name, _) = rest.split_once('<')?;
        count.parse::<u64>().ok()?;
        // Pages that are no profiles.
        (!matches!(name, "cmdline" | "symbol" | "trace" | "profile"))
            .then(|| format!("{name} ({count})"))
    })
    .collect()
}

/// What may have been lost: the metric, what that means, and what to do.
const LOST: [(&str, &str, &str); 9] = [
    (
        "plimsoll_lost_table_full_events_total",
        "events have no stack, because the table of stacks was full",
        "PLIMSOLL=table=256m",
    ),
    (
        "plimsoll_lost_without_stack_events_total",
        "events have no stack, because all memory for capturing was in use",
        "PLIMSOLL=heap_rate=2m, or other rates that sample less",
    ),
    (
        "plimsoll_lost_cut_stacks_events_total",
        "stacks lack their outer frames, because they lead through code that cannot be unwound",
        "",
    ),
    (
        "plimsoll_lost_untracked_events_total",
        "sampled blocks are left out of what is in use, because there was no memory to note them",
        "PLIMSOLL=heap_rate=2m",
    ),
    (
        "plimsoll_lost_waits_events_total",
        "waits were not noted, because too many threads waited at once",
        "",
    ),
    (
        "plimsoll_lost_labels_events_total",
        "labels were not added, because there were too many sets of them",
        "labels with fewer values",
    ),
    (
        "plimsoll_lost_tasks_events_total",
        "tasks are in no profile, because there was no memory to note them",
        "",
    ),
    (
        "plimsoll_lost_mappings_events_total",
        "mappings are counted as gone although they may be there, because there were too many",
        "",
    ),
    (
        "plimsoll_gc_lost_events_total",
        "pauses and collections are in none of the figures",
        "",
    ),
];

fn findings(index: &Answer, metrics: &Answer) -> Vec<Finding> {
    let mut findings = vec![of_index(index)];
    let found = numbers(&metrics.body);
    let is_plimsoll = found.keys().any(|name| name.starts_with("plimsoll_"));
    if metrics.status != 200 || !is_plimsoll {
        let says = match metrics.status {
            200 => "/metrics is not Plimsoll's".into(),
            status => format!("/metrics answers {status}"),
        };
        findings.push(
            Finding::bad(
                "metrics",
                format!("{says}: nothing is known of what is switched on"),
            )
            .so("put the crate plimsoll in, with http, or start it with plimsoll run"),
        );
        return findings;
    }
    findings.push(Finding::ok("metrics", format!("{} of them", found.len())));
    let of = |name: &str| found.get(name).copied();
    findings.extend(heap(
        of("plimsoll_gc_heap_allocs_objects_total"),
        of("plimsoll_heap_sample_rate_bytes"),
    ));
    findings.extend(waits(of("plimsoll_sync_waits_total")));
    if let (Some(threads), Some(tasks)) = (of("plimsoll_threads"), of("plimsoll_tasks")) {
        let says = format!("{threads} of the program, and {tasks} tracked tasks");
        findings.push(Finding::ok("threads", says));
    }
    let before = findings.len();
    for (name, means, what_to_do) in LOST {
        if let Some(events) = of(name).filter(|&events| events > 0.0) {
            findings.push(Finding::note("lost", format!("{events} {means}")).so(what_to_do));
        }
    }
    if findings.len() == before {
        findings.push(Finding::ok("lost", "nothing"));
    }
    if let Some(seconds) = of("plimsoll_self_cpu_seconds_total") {
        let says = format!("took {seconds:.3} s of processor time itself");
        findings.push(Finding::ok("plimsoll", says));
    }
    findings
}

fn of_index(index: &Answer) -> Finding {
    const SUBJECT: &str = "profiles";
    let profiles = profiles(&index.body);
    match (index.status, profiles.is_empty()) {
        (200, false) => Finding::ok(SUBJECT, profiles.join(", ")),
        (200, true) => Finding::bad(SUBJECT, "/debug/pprof/ lists none"),
        (status, _) => Finding::bad(SUBJECT, format!("/debug/pprof/ answers {status}")),
    }
}

fn heap(allocated: Option<f64>, rate: Option<f64>) -> Vec<Finding> {
    let mut findings = Vec::new();
    if let Some(blocks) = allocated {
        findings.push(match blocks > 0.0 {
            true => Finding::ok("heap", format!("{blocks} allocations were counted")),
            false => Finding::bad("heap", "no allocation was ever counted")
                .so("make plimsoll::Alloc the #[global_allocator], or start it with plimsoll run"),
        });
    }
    if let Some(rate) = rate {
        findings.push(match rate > 0.0 {
            true => Finding::ok(
                "heap profile",
                format!("a sample each {rate} bytes, in the mean"),
            ),
            false => Finding::note("heap profile", "is switched off").so("PLIMSOLL=heap_rate=512k"),
        });
    }
    findings
}

fn waits(waits: Option<f64>) -> Option<Finding> {
    let waits = waits?;
    Some(match waits > 0.0 {
        true => Finding::ok("block, mutex", format!("{waits} waits were noted")),
        false => Finding::note(
            "block, mutex",
            "no waits were noted: nobody has waited yet, or these profiles are switched off",
        )
        .so("PLIMSOLL=block_rate=1ms,mutex_fraction=100"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_told_from_files_and_numbers() {
        for yes in [
            "http://localhost",
            "https://example.org/",
            "localhost:6060",
            "127.0.0.1:6060/metrics",
            "[::1]:6060",
        ] {
            assert!(is_one(yes), "{yes}");
        }
        for no in [
            "ls", "./a:b", "/bin/ls", "1234", ":80", "a:0", "a:99999", "a/b:80",
        ] {
            assert!(!is_one(no), "{no}");
        }
    }

    #[test]
    fn a_page_s_url_is_as_good_as_the_server_s() {
        let parse = |url| Base::parse(url).map(|base| (base.host, base.path));
        let of = |host: &str, path: &str| Ok((host.to_owned(), path.to_owned()));
        assert_eq!(
            parse("http://a:6060/debug/pprof/heap?debug=1"),
            of("a:6060", "")
        );
        assert_eq!(parse("a:6060/metrics"), of("a:6060", ""));
        assert_eq!(parse("http://a/inner/debug/pprof/"), of("a:80", "/inner"));
        assert_eq!(parse("http://[::1]"), of("[::1]:80", ""));
        assert_eq!(parse("http://[::1]:6060/"), of("[::1]:6060", ""));
        for bad in [
            "https://a",
            "http://",
            "http:///x",
            "http://a b/",
            "http://u:p@a/",
            "http://a/\r\nX: y",
        ] {
            assert!(Base::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn an_answer_that_drips_is_given_up_in_time() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let mut stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut server, _) = listener.accept().unwrap();
        let dripping = std::thread::spawn(move || {
            // Until the other side closes.
            while server.write_all(b"x").is_ok() {
                std::thread::sleep(Duration::from_millis(5));
            }
        });
        let error = read_all(&mut stream, Duration::from_millis(300)).unwrap_err();
        assert!(
            error.to_string().contains("is not complete after 0 s: "),
            "{error}"
        );
        drop(stream);
        dripping.join().unwrap();
    }

    #[test]
    fn answers_are_read_or_refused() {
        let answer = Answer::parse(b"HTTP/1.1 404 Not Found\r\nA: b\r\n\r\nbody\r\n\r\n").unwrap();
        assert_eq!((answer.status, &*answer.body), (404, "body\r\n\r\n"));
        for bad in [
            &b""[..],
            b"SSH-2.0\r\n\r\n",
            b"HTTP/1.1 abc\r\n\r\n",
            b"HTTP/1.\r\n\r\n",
        ] {
            assert_eq!(Answer::parse(bad), None);
        }
    }

    #[test]
    fn numbers_are_those_without_labels() {
        let page = "# TYPE a counter\na 12\nb{le=\"3\"} 4\nc 0.5 1700000000\nd\ne x\n";
        let found = numbers(page);
        assert_eq!(found.len(), 2);
        assert_eq!((found["a"], found["c"]), (12.0, 0.5));
    }

    #[test]
    fn the_index_of_go_and_of_plimsoll_is_read() {
        let plimsoll = "<tr><td>15</td><td><a href='heap?debug=1'>heap</a></td></tr>\n\
            <tr><td>0</td><td><a href='cmdline'>cmdline</a></td></tr>";
        assert_eq!(profiles(plimsoll), ["heap (15)"]);
        let go = "<tr><td>3</td><td><a href='block?debug=1'>block</a></td></tr>\n\
            <tr><td>7</td><td><a href=\"goroutine?debug=1\">goroutine</a></td></tr>";
        assert_eq!(profiles(go), ["block (3)", "goroutine (7)"]);
        assert!(profiles("<tr><td><tr><td>x<a href=>").is_empty());
    }

    #[test]
    fn whatever_was_lost_is_said() {
        let index = Answer {
            status: 200,
            body: "<tr><td>1</td><td><a href='heap?debug=1'>heap</a></td></tr>".into(),
        };
        for (name, means, _) in LOST {
            let metrics = Answer {
                status: 200,
                body: format!("plimsoll_gc_heap_allocs_objects_total 5\n{name} 3\n"),
            };
            let findings = findings(&index, &metrics);
            let lost = findings
                .iter()
                .find(|finding| finding.subject == "lost")
                .unwrap();
            assert_eq!(lost.says, format!("3 {means}"));
        }
    }
}
