//! Findings about a program that serves its pages: enabled features and losses.

use std::collections::HashMap;
use std::time::Duration;

use super::findings::{Finding, Section};
use plimsoll_command::failure::Failure;
use plimsoll_command::http::{self, Server};

/// The timeout of a request.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The address of the pages.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Base {
    /// The host as in the URL, with the port.
    host: String,
    /// The path before `/metrics`, without a trailing slash.
    path: String,
}

/// Returns whether the subject is a URL. A URL has a scheme, or is a host with a port that is not
/// the name of a file.
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

/// Returns findings about the pages at a URL.
///
/// # Errors
/// The URL is invalid, or no server responds.
pub(super) fn section(url: &str, server: Server) -> Result<Section, Failure> {
    let base = Base::parse(url).map_err(|cause| Failure::new(url, cause))?;
    let fail = |cause: String| Failure::new(url, cause);
    let index = base.get(server, "/debug/pprof/").map_err(fail)?;
    let metrics = base.get(server, "/metrics").map_err(fail)?;
    let title = format!("pages at http://{}{}", base.host, base.path);
    let findings = match (index.status, metrics.status) {
        (401, _) | (_, 401) => vec![needs_token(server, url)],
        _ => findings(&index, &metrics),
    };
    Ok(Section { title, findings })
}

/// A response: its status and body.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Answer {
    status: u16,
    body: String,
}

impl Base {
    fn parse(url: &str) -> Result<Self, &'static str> {
        if url.starts_with("https://") {
            return Err("https is not supported: give the program's own address, with http");
        }
        let rest = url.strip_prefix("http://").unwrap_or(url);
        let rest = rest.split(['?', '#']).next().unwrap_or(rest);
        let (host, path) = rest
            .split_once('/')
            .map_or((rest, ""), |(host, path)| (host, path));
        if host.contains('@') {
            return Err(
                "user names and passwords in URLs are not supported; set PLIMSOLL_TOKEN to the token",
            );
        }
        let is_text = |text: &str| text.bytes().all(|byte| byte.is_ascii_graphic());
        if host.is_empty() || !is_text(host) || !is_text(path) {
            return Err("is not a URL");
        }
        let mut path = format!("/{path}");
        // Pages that users open in a browser: a URL of one of them stands for its server.
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

    fn get(&self, server: Server, page: &str) -> Result<Answer, String> {
        let url = format!("http://{}{}{page}", self.host, self.path);
        let answer = http::request(server, &url, TIMEOUT, |_| {});
        let answer = answer.map_err(|failure| failure.cause().to_owned())?;
        Ok(Answer {
            status: answer.status,
            body: String::from_utf8_lossy(&answer.body).into_owned(),
        })
    }
}

/// Returns the numbers of a Prometheus page by name, without those that have labels.
fn numbers(page: &str) -> HashMap<&str, f64> {
    page.lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| line.split_once(' '))
        .filter(|(name, _)| !name.contains('{'))
        .filter_map(|(name, rest)| Some((name, rest.split(' ').next()?.parse().ok()?)))
        .collect()
}

/// Returns the profiles that the index lists, with their numbers of entries.
fn profiles(index: &str) -> Vec<String> {
    let rows = index.split("<tr><td>").skip(1);
    rows.filter_map(|row| {
        let (count, rest) = row.split_once('<')?;
        let (_, rest) = rest.split_once("href=")?;
        let (_, rest) = rest.split_once('>')?;
        let (name, _) = rest.split_once('<')?;
        count.parse::<u64>().ok()?;
        // These pages are not profiles with counts.
        (!matches!(name, "cmdline" | "symbol" | "trace" | "profile" | "wall"))
            .then(|| format!("{name} ({count})"))
    })
    .collect()
}

/// Possible losses: the metric, its meaning, and the recommended action.
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
        "stacks lack their outer frames, because they pass through code that cannot be unwound",
        "",
    ),
    (
        "plimsoll_lost_untracked_events_total",
        "sampled blocks are missing from the memory in use, because no memory was available to \
         record them",
        "PLIMSOLL=heap_rate=2m",
    ),
    (
        "plimsoll_lost_waits_events_total",
        "waits were not recorded, because too many threads waited at once",
        "",
    ),
    (
        "plimsoll_lost_labels_events_total",
        "labels were not added, because there were too many sets of them",
        "labels with fewer values",
    ),
    (
        "plimsoll_lost_tasks_events_total",
        "tasks are missing from all profiles, because no memory was available to record them",
        "",
    ),
    (
        "plimsoll_lost_mappings_events_total",
        "mappings are counted as unmapped although they may exist, because there were too many",
        "",
    ),
    (
        "plimsoll_gc_lost_events_total",
        "pauses and collections are missing from all figures",
        "",
    ),
];

fn findings(index: &Answer, metrics: &Answer) -> Vec<Finding> {
    let mut findings = vec![of_index(index)];
    let found = numbers(&metrics.body);
    let is_plimsoll = found.keys().any(|name| name.starts_with("plimsoll_"));
    if metrics.status != 200 || !is_plimsoll {
        let says = match metrics.status {
            200 => "/metrics is not a page of Plimsoll".into(),
            status => format!("/metrics returns status {status}"),
        };
        findings.push(
            Finding::bad(
                "metrics",
                format!("{says}: the enabled profiles are unknown"),
            )
            .so("add the crate plimsoll with the feature http, or start it with plimsoll run"),
        );
        return findings;
    }
    findings.push(Finding::ok("metrics", format!("{} metrics", found.len())));
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
        let says = format!("used {seconds:.3} s of CPU time itself");
        findings.push(Finding::ok("plimsoll", says));
    }
    findings
}

/// Returns the finding about pages that require a token. It is sent only to a URL that the user names.
fn needs_token(server: Server, url: &str) -> Finding {
    let finding = Finding::bad("pages", "they require a token");
    match server {
        Server::Named => finding.so("set PLIMSOLL_TOKEN to the token"),
        _ => finding.so(format!("PLIMSOLL_TOKEN=TOKEN plimsoll doctor {url}")),
    }
}

fn of_index(index: &Answer) -> Finding {
    const SUBJECT: &str = "profiles";
    let profiles = profiles(&index.body);
    match (index.status, profiles.is_empty()) {
        (200, false) => Finding::ok(SUBJECT, profiles.join(", ")),
        (200, true) => Finding::bad(SUBJECT, "/debug/pprof/ lists no profiles"),
        (status, _) => Finding::bad(SUBJECT, format!("/debug/pprof/ returns status {status}")),
    }
}

fn heap(allocated: Option<f64>, rate: Option<f64>) -> Vec<Finding> {
    let mut findings = Vec::new();
    if let Some(blocks) = allocated {
        findings.push(match blocks > 0.0 {
            true => Finding::ok("heap", format!("{blocks} allocations were counted")),
            false => Finding::bad("heap", "no allocation was counted")
                .so("make plimsoll::Alloc the #[global_allocator], or start it with plimsoll run"),
        });
    }
    if let Some(rate) = rate {
        findings.push(match rate > 0.0 {
            true => Finding::ok(
                "heap profile",
                format!("one sample per {rate} bytes on average"),
            ),
            false => Finding::note("heap profile", "is disabled").so("PLIMSOLL=heap_rate=512k"),
        });
    }
    findings
}

fn waits(waits: Option<f64>) -> Option<Finding> {
    let waits = waits?;
    Some(match waits > 0.0 {
        true => Finding::ok("block, mutex", format!("{waits} waits were recorded")),
        false => Finding::note(
            "block, mutex",
            "no waits recorded: none has happened yet, or these profiles are off",
        )
        .so("PLIMSOLL=block_rate=1ms,mutex_fraction=100"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_distinguished_from_files_and_numbers() {
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
    fn all_losses_are_reported() {
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
