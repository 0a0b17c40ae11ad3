//! A real Prometheus scrapes live programs with the configuration of `contrib`. Each query of the
//! dashboard and of the alerts has data there, and each metric that they and the guide name exists.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, Instant};

use plimsoll_testkit::tools::prometheus as program;
use serde_json::{Value, json};

use crate::contrib::{self, Pod, document, list, string, text};
use crate::dashboard::{self, DASHBOARD};
use crate::discovery;
use crate::rules::{self, RULES, promtool};
use crate::running::Running;
use crate::running::prometheus::{HANG, Prometheus, escaped};
use crate::service;

const CONFIG: &str = "contrib/prometheus/prometheus.yml";
const TOKEN: &str = "fleet-token";

/// The interval between scrapes.
const INTERVAL: &str = "500ms";
/// The value of Grafana's `$__rate_interval`: four scrapes, or one more than the interval of the points
/// in a diagram, whichever is longer. Points are 4 s apart in a diagram of an hour with 900 points.
const RATE_INTERVAL: &str = "4500ms";

/// Returns the configuration with these targets, and shorter intervals.
fn configuration(fixed: &[&str], pods: Vec<Value>) -> String {
    let mut config = document(CONFIG);
    for key in ["scrape_interval", "scrape_timeout", "evaluation_interval"] {
        config["global"][key] = INTERVAL.into();
    }
    let jobs = config["scrape_configs"].as_array_mut().expect("a list");
    let [programs, of_pods] = &mut jobs[..] else {
        panic!("two jobs");
    };
    programs["static_configs"] = json!([{ "targets": fixed }]);
    let entries = of_pods.as_object_mut().expect("a map");
    let discovery = entries.remove("kubernetes_sd_configs");
    assert_eq!(discovery, Some(json!([{ "role": "pod" }])));
    of_pods["static_configs"] = pods.clone().into();
    jobs.extend(discovery::jobs(&pods));
    config.to_string()
}

fn check_config(files: &[(&str, &str)]) {
    let Some(program) = program("promtool") else {
        return;
    };
    let name = format!("plimsoll-config-{}", std::process::id());
    let directory = std::env::temp_dir().join(name);
    std::fs::create_dir_all(&directory).expect("a directory");
    for (name, text) in files {
        std::fs::write(directory.join(name), text).expect("a file");
    }
    let arguments = ["check", "config", "prometheus.yml"];
    let (is_valid, said) = promtool(&program, &arguments, &directory);
    std::fs::remove_dir_all(&directory).expect("the directory exists");
    assert!(is_valid, "{said}");
}

/// A query, and the labels that its legend shows.
struct Query {
    text: String,
    labels: Vec<String>,
}

/// Returns the names in double braces.
fn legend(text: &str) -> Vec<String> {
    let parts = text.split("{{").skip(1);
    let names = parts.map(|part| part.split("}}").next().expect("it ends"));
    names.map(|name| name.trim().to_owned()).collect()
}

/// Returns the queries of all panels, with the variables replaced as Grafana does: several values
/// become alternatives of a regular expression, and all values become `allValue`.
fn panel_queries(jobs: &[&str]) -> Vec<Query> {
    let dashboard = dashboard::read();
    let panels = dashboard::panels(&dashboard).into_iter();
    let targets = panels.flat_map(|panel| list(&panel["targets"]));
    let jobs = format!("({})", jobs.join("|"));
    targets
        .map(|target| {
            let query = string(&target["expr"]);
            let query = query.replace("$__rate_interval", RATE_INTERVAL);
            let query = query.replace("$job", &jobs).replace("$instance", ".*");
            assert!(!query.contains('$'), "{query}");
            Query {
                text: query,
                labels: legend(string(&target["legendFormat"])),
            }
        })
        .collect()
}

/// Returns an alert's expression as a query that has data in any state: comparisons return 0 or 1, and
/// times fit the seconds for which the test runs.
fn without_state(expression: &str) -> String {
    let mut query = expression
        .replace(" > ", " > bool ")
        .replace(" == ", " == bool ");
    for (before, after, short) in [("[", "]", "4500ms"), (" offset ", ")", "1s")] {
        let mut parts = query.split(before);
        let mut changed = parts.next().unwrap().to_owned();
        for part in parts {
            let end = part.find(after).expect("it ends");
            changed.extend([before, short, &part[end..]]);
        }
        query = changed;
    }
    query
}

fn alert_queries() -> Vec<Query> {
    let alerts = rules::alerts().into_values();
    alerts
        .map(|expression| Query {
            text: without_state(&expression),
            labels: vec!["job".to_owned(), "instance".to_owned()],
        })
        .collect()
}

#[test]
fn comparisons_and_times_of_alerts_are_replaced() {
    let query = without_state("a == 0 and max_over_time(b[1h] offset 3h) > 1");
    let expected = "a == bool 0 and max_over_time(b[4500ms] offset 1s) > bool 1";
    assert_eq!(query, expected);
}

/// Returns the queries without a number, or without a label of their legend.
fn without_data(server: &Prometheus, queries: Vec<Query>) -> Vec<Query> {
    let has_data = |query: &Query| {
        let rows = server.query(&query.text);
        let mut rows = rows.iter();
        rows.any(|(labels, value)| {
            let mut legend = query.labels.iter();
            value.is_finite() && legend.all(|name| labels[name].is_string())
        })
    };
    let queries = queries.into_iter();
    queries.filter(|query| !has_data(query)).collect()
}

fn wait_for(what: &str, mut state: impl FnMut() -> Result<(), String>) {
    let start = Instant::now();
    while let Err(error) = state() {
        assert!(start.elapsed() < HANG, "{what}: {error}");
        std::thread::sleep(Duration::from_millis(200));
    }
}

fn names(server: &Prometheus, path: &str) -> BTreeSet<String> {
    let names = server.ask(path);
    list(&names)
        .iter()
        .map(|of| string(of).to_owned())
        .collect()
}

/// Checks the targets: those of the configuration, and one of each job for the running pod.
fn check_targets(server: &Prometheus, pod: &Pod, address: &str) {
    let active = || {
        let targets = server.ask("/api/v1/targets?state=active");
        list(&targets["activeTargets"]).to_vec()
    };
    wait_for("targets", || {
        let targets = active();
        let up = targets.iter().filter(|target| target["health"] == "up");
        match up.count() {
            3 => Ok(()),
            _ => Err(format!("{targets:?}")),
        }
    });
    let targets = active();
    let of = |job: &str| {
        let mut targets = targets.iter().filter(|target| target["scrapePool"] == job);
        let target = targets.next().unwrap_or_else(|| panic!("no target: {job}"));
        assert!(targets.next().is_none(), "{job}");
        target
    };
    let pods = of("plimsoll-pods");
    let expected = json!({
        "instance": address,
        "job": pod.labels["app.kubernetes.io/name"],
        "namespace": "default",
        "pod": "search-1",
    });
    assert_eq!(pods["labels"], expected);
    let path = pod.annotation("prometheus.io/path");
    assert_eq!(pods["scrapeUrl"], format!("http://{address}{path}"));
    let parca = of(discovery::PARCA_JOB);
    assert_eq!(parca["scrapeUrl"], format!("http://{address}/metrics"));
    for (kind, path) in pod.profiles() {
        let alloy = of(&discovery::alloy_job(kind));
        assert_eq!(alloy["scrapeUrl"], format!("http://{address}{path}"));
    }
}

/// Checks that the metrics exist that the alerts, the dashboard and the documentation name.
fn check_names(server: &Prometheus) {
    let known = names(server, "/api/v1/label/__name__/values");
    for file in [
        RULES,
        DASHBOARD,
        "docs/guides/fleet.md",
        "docs/reference/metrics-pages.md",
        "docs/reference/history.md",
    ] {
        let text = text(file);
        for name in contrib::metrics(&text) {
            let exists = match name.strip_suffix('_') {
                Some(_) => known.iter().any(|known| known.starts_with(name)),
                None => known.contains(name),
            };
            assert!(exists, "{file}: the metric {name} does not exist");
        }
    }
}

#[test]
fn each_query_has_data_and_each_metric_exists() {
    let Some(program) = program("prometheus") else {
        return;
    };
    // Locks and a memory limit; a collector; tasks and an account.
    let with_token = |settings: &str| format!("{settings},http_token={TOKEN}");
    let search = Running::search(&with_token("block_rate=1us,memory_limit=1g"));
    let lisp = Running::start("lisp", &[], &with_token("go_names=off"));
    let (_plimsoll, address) = service::start(TOKEN);

    let pod = Pod::read();
    let mut pods = discovery::targets(&pod, "search-1", "Running", address.port());
    pods.extend(discovery::targets(&pod, "search-2", "Succeeded", 1));
    let config = configuration(&[&search.profiles, &lisp.profiles], pods);
    let rules = text(RULES);
    let files = [
        ("prometheus.yml", config.as_str()),
        ("rules.yml", &rules),
        ("plimsoll.token", TOKEN),
    ];
    check_config(&files);
    let server = Prometheus::start(Path::new(&program), &files);
    check_targets(&server, &pod, &address.to_string());
    check_names(&server);

    // The values of the variables.
    let selector = escaped("plimsoll_threads");
    let jobs = names(
        &server,
        &format!("/api/v1/label/job/values?match[]={selector}"),
    );
    let jobs: Vec<&str> = jobs.iter().map(String::as_str).collect();
    assert_eq!(jobs, ["plimsoll", "search"]);
    let mut queries = panel_queries(&jobs);
    queries.extend(alert_queries());
    wait_for("data", || {
        queries = without_data(&server, std::mem::take(&mut queries));
        let texts = queries.iter().map(|query| query.text.as_str());
        let texts: Vec<&str> = texts.collect();
        texts.is_empty().then_some(()).ok_or(texts.join("\n"))
    });

    // The server itself evaluates the alerts without errors.
    wait_for("alerts", || {
        let groups = server.ask("/api/v1/rules?type=alert");
        let rules = list(&groups["groups"]).iter();
        let mut rules = rules.flat_map(|group| list(&group["rules"]));
        let unfinished = rules.find(|rule| rule["health"] != "ok");
        unfinished.map_or(Ok(()), |rule| Err(rule.to_string()))
    });
    let dashboard = dashboard::read();
    let annotation = string(&list(&dashboard["annotations"]["list"])[0]["expr"]);
    let annotation = annotation.replace("$job", ".*").replace("$instance", ".*");
    server.query(&annotation);
}
