//! The alerts: `promtool` checks and tests them, each alert has a test, and the file for the Prometheus
//! Operator has the same ones.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use plimsoll_testkit::tools::prometheus as program;
use serde_json::Value;

use crate::contrib::{Pod, document, documents, list, path, string, text};

pub const RULES: &str = "contrib/prometheus/rules.yml";
const TESTS: &str = "contrib/prometheus/rules_test.yml";
const GUIDE: &str = "docs/guides/fleet.md";
const OPERATOR: &str = "contrib/prometheus/operator.yml";

/// Returns name and expression of each alert.
pub fn alerts() -> BTreeMap<String, String> {
    let rules = document(RULES);
    let groups = list(&rules["groups"]).iter();
    let rules = groups.flat_map(|group| list(&group["rules"]));
    rules
        .map(|rule| {
            let text = |key: &str| string(&rule[key]).to_owned();
            (text("alert"), text("expr"))
        })
        .collect()
}

/// Runs promtool. Returns whether it succeeds, and its output.
pub fn promtool(program: &Path, arguments: &[&str], directory: &Path) -> (bool, String) {
    let mut command = Command::new(program);
    let command = command.args(arguments).current_dir(directory);
    let output = command.output().expect("it can be run");
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said).into_owned();
    (output.status.success(), said)
}

#[test]
fn promtool_accepts_the_alerts_and_their_tests() {
    let Some(program) = program("promtool") else {
        return;
    };
    let directory = path("contrib/prometheus");
    let (is_valid, said) = promtool(&program, &["check", "rules", "rules.yml"], &directory);
    assert!(is_valid, "{said}");
    let test = ["test", "rules", "rules_test.yml"];
    let (is_passed, said) = promtool(&program, &test, &directory);
    assert!(is_passed, "{said}");

    // The tests do fail, for another threshold.
    let changed = text(RULES).replace("> 0.9\n", "> 0.96\n");
    assert_ne!(changed, text(RULES));
    let name = format!("plimsoll-rules-{}", std::process::id());
    let copy = std::env::temp_dir().join(name);
    std::fs::create_dir_all(&copy).expect("a directory");
    std::fs::write(copy.join("rules.yml"), changed).expect("a file");
    std::fs::write(copy.join("rules_test.yml"), text(TESTS)).expect("a file");
    let (is_passed, said) = promtool(&program, &test, &copy);
    std::fs::remove_dir_all(&copy).expect("the directory exists");
    assert!(
        !is_passed && said.contains("PlimsollMemoryLimitNear"),
        "{said}"
    );
}

#[test]
fn each_alert_is_tested_quiet_and_firing() {
    let tests = document(TESTS);
    let cases = list(&tests["tests"]).iter();
    let cases: Vec<&Value> = cases
        .flat_map(|test| list(&test["alert_rule_test"]))
        .collect();
    let with = |fires: bool| -> BTreeSet<&str> {
        let cases = cases.iter();
        cases
            .filter(|case| list(&case["exp_alerts"]).is_empty() != fires)
            .map(|case| string(&case["alertname"]))
            .collect()
    };
    let alerts = alerts();
    let all: BTreeSet<&str> = alerts.keys().map(String::as_str).collect();
    assert_eq!(with(true), all);
    assert_eq!(with(false), all);
}

#[test]
fn each_alert_states_its_severity_and_the_next_step() {
    let rules = document(RULES);
    for group in list(&rules["groups"]) {
        for rule in list(&group["rules"]) {
            let severity = string(&rule["labels"]["severity"]);
            assert!(
                ["critical", "warning", "info"].contains(&severity),
                "{rule}"
            );
            let summary = string(&rule["annotations"]["summary"]);
            for label in ["instance", "job"] {
                assert!(
                    summary.contains(&format!("{{{{ $labels.{label} }}}}")),
                    "{summary}"
                );
            }
            assert!(string(&rule["annotations"]["description"]).ends_with('.'));
        }
    }
}

#[test]
fn the_guide_has_each_alert_and_the_settings_of_the_deployment() {
    let guide = text(GUIDE);
    for name in alerts().keys() {
        assert!(guide.contains(&format!("`{name}`")), "{name}");
    }
    let pod = Pod::read();
    let settings = pod.variable();
    assert!(
        guide.contains(&format!("    PLIMSOLL={settings}\n")),
        "{settings}"
    );
}

#[test]
fn the_operator_gets_the_same_alerts_and_finds_the_pods() {
    let documents = documents(OPERATOR);
    let [monitor, rules] = &documents[..] else {
        panic!("two resources");
    };
    assert_eq!(rules["kind"], "PrometheusRule");
    assert_eq!(rules["spec"]["groups"], document(RULES)["groups"]);

    assert_eq!(monitor["kind"], "PodMonitor");
    let pod = Pod::read();
    let spec = &monitor["spec"];
    let selected = spec["selector"]["matchLabels"].as_object().expect("a map");
    for (label, value) in selected {
        assert_eq!(pod.labels.get(label), Some(value), "{label}");
    }
    assert!(pod.labels.contains_key(string(&spec["jobLabel"])));
    let endpoint = &list(&spec["podMetricsEndpoints"])[0];
    let ports = list(&pod.container["ports"]);
    assert!(ports.iter().any(|port| port["name"] == endpoint["port"]));
    assert_eq!(endpoint["path"], pod.annotation("prometheus.io/path"));
    let secret = &endpoint["authorization"]["credentials"]["name"];
    let deployment = document(crate::contrib::DEPLOYMENT);
    let volumes = list(&deployment["spec"]["template"]["spec"]["volumes"]);
    assert!(
        volumes
            .iter()
            .any(|volume| volume["secret"]["secretName"] == *secret)
    );
}
