//! Reads the files of `contrib`.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};
use yaml_rust2::{Yaml, YamlLoader};

pub const DEPLOYMENT: &str = "contrib/kubernetes/deployment.yaml";

pub fn path(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(file)
}

/// Returns the text of a file, by its path in the project.
pub fn text(file: &str) -> String {
    fs::read_to_string(path(file)).unwrap_or_else(|error| panic!("{file}: {error}"))
}

/// Returns the documents of a YAML file, as JSON, which is YAML as well.
pub fn documents(file: &str) -> Vec<Value> {
    let documents = YamlLoader::load_from_str(&text(file));
    let documents = documents.unwrap_or_else(|error| panic!("{file}: {error}"));
    documents.iter().map(json).collect()
}

/// Returns the only document of a YAML file.
pub fn document(file: &str) -> Value {
    let mut documents = documents(file);
    assert_eq!(documents.len(), 1, "{file}");
    documents.remove(0)
}

fn json(yaml: &Yaml) -> Value {
    match yaml {
        Yaml::String(text) => text.as_str().into(),
        Yaml::Integer(number) => (*number).into(),
        Yaml::Real(text) => text.parse::<f64>().expect("a number").into(),
        Yaml::Boolean(value) => (*value).into(),
        Yaml::Array(items) => items.iter().map(json).collect(),
        Yaml::Hash(entries) => {
            let entries = entries.iter().map(|(key, value)| {
                let key = key.as_str().expect("keys are text");
                (key.to_owned(), json(value))
            });
            Value::Object(entries.collect::<Map<_, _>>())
        }
        Yaml::Null => Value::Null,
        Yaml::Alias(_) | Yaml::BadValue => panic!("{yaml:?}"),
    }
}

pub fn list(value: &Value) -> &[Value] {
    value
        .as_array()
        .unwrap_or_else(|| panic!("a list: {value}"))
}

pub fn string(value: &Value) -> &str {
    value.as_str().unwrap_or_else(|| panic!("a text: {value}"))
}

/// Returns the names of metrics in a text. A name that ends with `_` is the beginning of others.
pub fn metrics(text: &str) -> BTreeSet<&str> {
    let is_outside = |of: char| !(of.is_ascii_alphanumeric() || of == '_');
    let words = text.split(is_outside);
    words.filter(|word| word.starts_with("plimsoll_")).collect()
}

/// The deployment's pod: annotations and the container.
pub struct Pod {
    pub annotations: Map<String, Value>,
    pub labels: Map<String, Value>,
    pub container: Value,
}

impl Pod {
    pub fn read() -> Self {
        let deployment = document(DEPLOYMENT);
        let spec = &deployment["spec"];
        let pod = &spec["template"];
        let labels = &pod["metadata"]["labels"];
        assert_eq!(&spec["selector"]["matchLabels"], labels);
        let annotations = &pod["metadata"]["annotations"];
        let containers = list(&pod["spec"]["containers"]);
        assert_eq!(containers.len(), 1);
        Self {
            annotations: annotations.as_object().expect("a map").clone(),
            labels: labels.as_object().expect("a map").clone(),
            container: containers[0].clone(),
        }
    }

    pub fn annotation(&self, name: &str) -> &str {
        string(&self.annotations[name])
    }

    /// Returns the kinds of profiles that annotations have for Alloy, with their paths.
    pub fn profiles(&self) -> Vec<(&str, &str)> {
        let prefix = "profiles.grafana.com/";
        let kinds = self.annotations.keys().filter_map(|name| {
            let kind = name.strip_prefix(prefix)?;
            kind.strip_suffix(".scrape")
        });
        kinds
            .map(|kind| {
                let annotation = |name: &str| self.annotation(&format!("{prefix}{kind}.{name}"));
                assert_eq!(annotation("scrape"), "true");
                assert_eq!(annotation("port"), self.port().to_string());
                (kind, annotation("path"))
            })
            .collect()
    }

    /// Returns the port of Plimsoll's pages, by its name.
    pub fn port(&self) -> u64 {
        let ports = list(&self.container["ports"]);
        let port = ports.iter().find(|port| port["name"] == "plimsoll");
        port.expect("a port")["containerPort"].as_u64().unwrap()
    }

    /// Returns the value of the variable `PLIMSOLL`.
    pub fn variable(&self) -> &str {
        let mut variables = list(&self.container["env"]).iter();
        let variable = variables.find(|variable| variable["name"] == "PLIMSOLL");
        string(&variable.expect("a variable")["value"])
    }

    /// Returns the settings of the variable `PLIMSOLL`, without the address, and with this file of the
    /// token.
    pub fn settings(&self, token: &Path) -> String {
        let settings = self.variable();
        let address = format!("http=0.0.0.0:{},", self.port());
        let settings = settings.strip_prefix(&*address).expect(settings);
        let mount = string(&list(&self.container["volumeMounts"])[0]["mountPath"]);
        let here = format!("{}", token.display());
        let changed = settings.replace(&format!("{mount}/token"), &here);
        assert_ne!(changed, settings);
        // The machine of the tests may be in no control group with a limit.
        let changed = changed.replace("memory_limit=cgroup", "memory_limit=1g");
        assert!(changed.contains("memory_limit=1g"), "{changed}");
        changed
    }
}
