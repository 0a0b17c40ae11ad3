//! The targets that scrapers find in Kubernetes. Kubernetes does not run in the tests, and Debian's
//! Prometheus is built without its discovery, so this module lists the targets of a pod as the discovery
//! does. Prometheus relabels them by its own rules, by those for Parca, which has Prometheus' code for
//! that, and by those for Alloy, which have the same meaning.

use serde_json::{Value, json};

use crate::alloy::{self, Block};
use crate::contrib::{Pod, document, list, text};
use crate::scrapers::{ALLOY, PARCA};

pub const PARCA_JOB: &str = "parca";

/// Returns the name of the job with Alloy's rules for a kind of profiles.
pub fn alloy_job(kind: &str) -> String {
    format!("alloy-{kind}")
}

/// Returns the targets of a pod: one for each port, with its metadata. All annotations of ports name
/// this one.
pub fn targets(pod: &Pod, name: &str, phase: &str, port: u16) -> Vec<Value> {
    let metadata = |kind: &str, key: &str| {
        let key = key.replace(|of: char| !of.is_ascii_alphanumeric(), "_");
        format!("__meta_kubernetes_pod_{kind}_{key}")
    };
    let mut labels = json!({
        "__meta_kubernetes_namespace": "default",
        "__meta_kubernetes_pod_name": name,
        "__meta_kubernetes_pod_phase": phase,
    });
    for (key, value) in &pod.annotations {
        let is_port = key.ends_with("port");
        let names_port = value.as_str() == Some(&pod.port().to_string());
        assert_eq!(is_port, names_port, "{key}");
        let value = if is_port {
            port.to_string().into()
        } else {
            value.clone()
        };
        labels[metadata("annotation", key)] = value;
    }
    for (key, value) in &pod.labels {
        labels[metadata("label", key)] = value.clone();
    }
    let ports = list(&pod.container["ports"]).iter();
    ports
        .map(|port| {
            let number = &port["containerPort"];
            let mut labels = labels.clone();
            labels["__meta_kubernetes_pod_container_port_number"] = number.to_string().into();
            json!({ "targets": [format!("127.0.0.1:{number}")], "labels": labels })
        })
        .collect()
}

/// Returns jobs of Prometheus with the rules for Parca and Alloy. They have no token, and no page of
/// theirs has metrics, so they add no series but `up`.
pub fn jobs(pods: &[Value]) -> Vec<Value> {
    let job = |name: &str, rules: Vec<Value>| json!({ "job_name": name, "static_configs": pods, "relabel_configs": rules });
    let config = document(PARCA);
    let parca = &list(&config["scrape_configs"])[1]["relabel_configs"];
    let mut jobs = vec![job(PARCA_JOB, list(parca).to_vec())];
    let file = alloy::parse(&text(ALLOY));
    let rules = |label: &str| {
        let rules = |of: &Block| of.attributes.clone().into();
        let component = file.component("discovery.relabel", label);
        component.all("rule").map(rules).collect::<Vec<Value>>()
    };
    for (kind, _) in Pod::read().profiles() {
        // A target of Alloy has the path in another label.
        let path =
            json!({ "source_labels": ["__profile_path__"], "target_label": "__metrics_path__" });
        let rules = [rules("pods"), rules(kind), vec![path]].concat();
        jobs.push(job(&alloy_job(kind), rules));
    }
    jobs
}
