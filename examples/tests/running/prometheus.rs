//! A real Prometheus. `PLIMSOLL_PROMETHEUS` names the directory of its programs, which are otherwise
//! searched in `PATH`. Without them, a test fails only if that variable is set.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::get;

/// The time after which a test fails as hanging.
pub const HANG: Duration = Duration::from_secs(60);

/// A running server; killed on drop.
pub struct Prometheus {
    process: Child,
    /// `host:port` of its API.
    api: String,
    directory: PathBuf,
}

impl Prometheus {
    /// Starts a server whose directory has these files; `prometheus.yml` is its configuration.
    pub fn start(program: &Path, files: &[(&str, &str)]) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("plimsoll-prometheus-{}-{number}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        let config = directory.join("prometheus.yml");
        let started = Instant::now();
        loop {
            std::fs::create_dir_all(&directory).expect("a directory");
            for (name, text) in files {
                std::fs::write(directory.join(name), text).expect("a file");
            }
            // The server does not print its port, so it receives one that was free just before.
            let free = TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr());
            let api = free.expect("a free port").to_string();
            let data = directory.join("data");
            let process = Command::new(program)
                .arg(format!("--config.file={}", config.display()))
                .arg(format!("--storage.tsdb.path={}", data.display()))
                .arg(format!("--web.listen-address={api}"))
                .arg("--log.level=error")
                .stdin(Stdio::null())
                .spawn()
                .expect("it can be run");
            let mut server = Self {
                process,
                api,
                directory: directory.clone(),
            };
            while matches!(server.process.try_wait(), Ok(None)) {
                if let Ok((head, _)) = get(&server.api, "/-/ready") {
                    if head.contains(" 200 ") {
                        return server;
                    }
                }
                assert!(started.elapsed() < HANG, "it is not ready");
                std::thread::sleep(Duration::from_millis(50));
            }
            // Another process took the port in the meantime.
            assert!(started.elapsed() < HANG, "it does not stay");
            drop(server);
        }
    }

    /// Returns the API's response to a path.
    pub fn ask(&self, path: &str) -> Value {
        let (head, body) = get(&self.api, path).expect("it answers");
        let answer: Value = serde_json::from_slice(&body).unwrap_or_else(|error| {
            panic!("{path}: {error}: {head}{}", String::from_utf8_lossy(&body))
        });
        assert_eq!(answer["status"], "success", "{path}: {answer}");
        answer["data"].clone()
    }

    /// Returns the values of a query, with their labels.
    pub fn query(&self, query: &str) -> Vec<(Value, f64)> {
        let answer = self.ask(&format!("/api/v1/query?query={}", escaped(query)));
        let rows = answer["result"].as_array().expect("a list");
        rows.iter()
            .map(|row| {
                let value = row["value"][1].as_str().expect("a number is text");
                (row["metric"].clone(), value.parse().expect("a number"))
            })
            .collect()
    }

    /// Waits until a query has one value that is `wanted`, and returns it with its labels. After a
    /// scrape that took too long, there is no value.
    pub fn row_when(&self, query: &str, wanted: impl Fn(f64) -> bool) -> (Value, f64) {
        let start = Instant::now();
        loop {
            let rows = self.query(query);
            if let [(labels, value)] = &rows[..] {
                if wanted(*value) {
                    return (labels.clone(), *value);
                }
            }
            assert!(start.elapsed() < HANG, "{query}: {rows:?}");
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    pub fn value_when(&self, query: &str, wanted: impl Fn(f64) -> bool) -> f64 {
        self.row_when(query, wanted).1
    }

    /// Waits until a query has one value, and returns it.
    pub fn value(&self, query: &str) -> f64 {
        self.value_when(query, |_| true)
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

/// Escapes a text as a value in the query of a URL.
pub fn escaped(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02x}")).collect()
}
