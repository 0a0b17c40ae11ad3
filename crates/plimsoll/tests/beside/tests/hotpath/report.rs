//! The report that hotpath writes when its guard is dropped.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;
use tokio::runtime::{Builder, Runtime};

/// hotpath's server is off: tests that run at once would use its port.
pub const VARIABLES: [(&str, &str); 2] = [
    ("HOTPATH_METRICS_SERVER_OFF", "1"),
    ("HOTPATH_ALLOC_METRIC", "count"),
];

/// A file that is removed on drop.
pub struct Report(PathBuf);

impl Report {
    pub fn new(name: &str) -> Self {
        let name = format!("plimsoll-hotpath-{name}-{}", std::process::id());
        Self(std::env::temp_dir().join(name))
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    pub fn read(&self) -> Contents {
        let text = fs::read(&self.0).expect("hotpath wrote its report");
        Contents(serde_json::from_slice(&text).expect("a report is JSON"))
    }
}

impl Drop for Report {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// The contents of a report.
pub struct Contents(Value);

impl Contents {
    fn entry(&self, section: &str, is_it: impl Fn(&Value) -> bool) -> &Value {
        let entries = self.0[section]["data"].as_array();
        let mut entries = entries.into_iter().flatten().filter(|entry| is_it(entry));
        let entry = entries
            .next()
            .unwrap_or_else(|| panic!("{section}: {}", self.0));
        assert!(entries.next().is_none(), "two entries: {}", self.0);
        entry
    }

    /// Returns the entry of a function.
    #[allow(dead_code, reason = "two of three tests measure functions")]
    pub fn function(&self, section: &str, name: &str) -> &Value {
        let ending = format!("::{name}");
        self.entry(section, |entry| {
            entry["name"]
                .as_str()
                .is_some_and(|name| name.ends_with(&ending))
        })
    }

    /// Returns the entry of a future.
    pub fn future(&self, label: &str) -> &Value {
        self.entry("futures", |entry| entry["label"] == label)
    }
}

pub fn runtime() -> Runtime {
    let mut builder = Builder::new_multi_thread();
    let runtime = builder.worker_threads(2).enable_all().build();
    runtime.expect("a runtime")
}
