//! The requests that the files for Parca and Grafana Alloy, and the annotations of the deployment,
//! lead to. As in [`default_scrapes`](crate::default_scrapes), neither program runs.

use std::path::PathBuf;
use std::process::Command;

use serde_json::{Value, json};

use crate::alloy::{self, Block};
use crate::contrib::{Pod, document, list, string, text};
use crate::default_scrapes::{ALLOY_AGENT, DEFAULTS, PARCA_AGENT, answer, profile};
use crate::running::{Running, built};

pub const PARCA: &str = "contrib/parca/parca.yaml";
pub const ALLOY: &str = "contrib/alloy/config.alloy";
const TOKEN: &str = "scrape-token";

/// A profile that a file in `contrib` names.
#[derive(Debug)]
struct Scrape {
    agent: &'static str,
    name: String,
    path: String,
    /// Whether the request has `seconds`, so that the program answers with a difference.
    is_delta: bool,
    /// The sample types that the scraper keeps; all if it has none.
    keep: Vec<(String, String)>,
}

/// Returns the profiles of Parca's configuration. Its rules: a profile without `enabled` is only
/// scraped if it has a default's name, and one with a default's name has no `delta` unless it states
/// it.
fn of_parca() -> Vec<Scrape> {
    let config = document(PARCA);
    let entries = list(&config["scrape_configs"]);
    assert_eq!(entries.len(), 2);
    let profiles = &entries[0]["profiling_config"];
    assert_eq!(entries[1]["profiling_config"], *profiles);
    for entry in entries {
        assert_eq!(
            entry["params"],
            Value::Null,
            "seconds would be added to them"
        );
        assert_eq!(entry["authorization"]["credentials_file"], "plimsoll.token");
        assert_eq!(
            entry["scrape_timeout"],
            Value::Null,
            "it exceeds the interval"
        );
    }
    let profiles = profiles["pprof_config"].as_object().expect("a map");
    assert!(!profiles.contains_key("process_cpu"), "it would need delta");
    let scrape = |(name, profile): (&String, &Value)| {
        assert_eq!(profile["enabled"], true, "{name}");
        let keep = profile["keep_sample_type"].as_array();
        let kept = keep.into_iter().flatten().map(|kept| {
            let text = |key: &str| string(&kept[key]).to_owned();
            (text("type"), text("unit"))
        });
        Scrape {
            agent: PARCA_AGENT,
            name: name.clone(),
            path: string(&profile["path"]).to_owned(),
            is_delta: profile["delta"] == true,
            keep: kept.collect(),
        }
    };
    profiles.iter().map(scrape).collect()
}

/// Returns the profiles of Alloy's components.
fn of_alloy(file: &Block) -> Vec<Scrape> {
    let mut scrapes = Vec::new();
    for component in file.all("pyroscope.scrape") {
        assert!(
            !component.attributes.contains_key("params"),
            "seconds would be added to them"
        );
        assert_eq!(component.attributes["bearer_token_file"], "plimsoll.token");
        let forward = json!([{ "reference": "pyroscope.write.pyroscope.receiver" }]);
        assert_eq!(component.attributes["forward_to"], forward);
        for profile in component.all("profiling_config").flat_map(|of| &of.blocks) {
            let name = profile.name.strip_prefix("profile.").expect("a profile");
            if name != "custom" {
                assert!(
                    DEFAULTS.iter().any(|(default, ..)| *default == name),
                    "{name}"
                );
                assert_eq!(profile.attributes["enabled"], false, "{name}");
                continue;
            }
            assert_eq!(profile.attributes["enabled"], true);
            scrapes.push(Scrape {
                agent: ALLOY_AGENT,
                name: profile.label.clone().expect("a name"),
                path: string(&profile.attributes["path"]).to_owned(),
                is_delta: profile.attributes.get("delta") == Some(&true.into()),
                keep: Vec::new(),
            });
        }
    }
    scrapes
}

/// Returns the profiles that the annotations of the deployment name.
fn of_annotations(pod: &Pod) -> Vec<Scrape> {
    let profiles = pod.profiles().into_iter();
    profiles
        .map(|(kind, path)| Scrape {
            agent: ALLOY_AGENT,
            name: kind.to_owned(),
            path: path.to_owned(),
            is_delta: kind == "cpu",
            keep: Vec::new(),
        })
        .collect()
}

/// A file with the token, deleted on drop.
struct TokenFile(PathBuf);

impl TokenFile {
    fn new(test: &str) -> Self {
        let name = format!("plimsoll-{test}-{}.token", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::write(&path, TOKEN).expect("a file");
        Self(path)
    }
}

impl Drop for TokenFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// The paths in the files, at a program with the settings of the deployment. With these, any number of
/// clients may record CPU time at once. Differences are of one second here.
#[test]
fn each_scrape_in_the_files_succeeds() {
    let pod = Pod::read();
    let token = TokenFile::new("scrapes");
    let search = Running::search(&pod.settings(&token.0));
    let alloy = alloy::parse(&text(ALLOY));
    let (parca, alloy) = (of_parca(), of_alloy(&alloy));
    let of_pods = of_annotations(&pod);
    // The server answers eight clients that wait at once: one scraper after the other.
    for scrapes in [parca, alloy, of_pods] {
        std::thread::scope(|scope| {
            for scrape in &scrapes {
                let host = &search.profiles;
                scope.spawn(move || check(host, scrape));
            }
        });
    }
    let refused = answer(&search.profiles, PARCA_AGENT, "/debug/pprof/allocs", None);
    assert_eq!(refused.status, 401);
}

fn check(host: &str, scrape: &Scrape) {
    let seconds = if scrape.is_delta { "?seconds=1" } else { "" };
    let target = format!("{}{seconds}", scrape.path);
    let profile = profile(&target, &answer(host, scrape.agent, &target, Some(TOKEN)));
    assert_eq!(profile.duration_nanos > 0, scrape.is_delta, "{target}");
    let types = profile.sample_types();
    for (kind, unit) in &scrape.keep {
        assert!(
            types.contains(&(kind, unit)),
            "{}: {kind} {unit}",
            scrape.name
        );
    }
    // A program may have neither leaks nor long polls.
    let may_be_empty = ["block", "mutex", "goroutineleak", "longpoll"];
    let is_empty = profile.sample.is_empty() && !may_be_empty.contains(&&*scrape.name);
    assert!(!is_empty, "{target}");
}

/// A fixture of the protocol: Alloy gets the targets of a component from the discovery of pods with one
/// kind's annotations, and scrapes only the profile of that kind.
#[test]
fn alloy_scrapes_the_profiles_that_the_annotations_name() {
    let file = alloy::parse(&text(ALLOY));
    let pod = Pod::read();
    let kinds = pod.profiles();
    assert_eq!(kinds.len(), DEFAULTS.len());
    for (kind, path) in kinds {
        let profile = if kind == "cpu" { "process_cpu" } else { kind };
        let mut defaults = DEFAULTS.iter();
        let default = defaults.find(|(name, ..)| *name == profile);
        assert_eq!(default.expect(kind).1, path);

        let component = file.component("pyroscope.scrape", &format!("pods_{kind}"));
        let targets = format!("discovery.relabel.{kind}.output");
        let targets = json!({ "reference": targets });
        assert_eq!(component.attributes["targets"], targets);
        let others = component.all("profiling_config").flat_map(|of| &of.blocks);
        let others: Vec<&str> = others.map(|of| &of.name["profile.".len()..]).collect();
        for (name, ..) in DEFAULTS {
            assert_eq!(others.contains(&name), name != profile, "{kind}: {name}");
        }
    }
    // The references name components of the file.
    for component in &file.blocks {
        for value in component.attributes.values() {
            let values = value
                .as_array()
                .map_or(std::slice::from_ref(value), Vec::as_slice);
            let references = values
                .iter()
                .filter_map(|value| value["reference"].as_str());
            for reference in references {
                let parts: Vec<&str> = reference.split('.').collect();
                file.component(&parts[..2].join("."), parts[2]);
            }
        }
    }
}

#[test]
fn the_settings_of_the_deployment_are_valid() {
    let token = TokenFile::new("settings");
    let empty = token.0.with_extension("lisp");
    std::fs::write(&empty, "").expect("a file");
    let settings = Pod::read().settings(&token.0);
    let mut program = Command::new(built("lisp"));
    let program = program.arg(&empty);
    let output = program
        .env("PLIMSOLL", format!("http=127.0.0.1:0,{settings}"))
        .output();
    std::fs::remove_file(&empty).expect("the file exists");
    let output = output.expect("the example can be run");
    let warnings = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && warnings.is_empty(), "{warnings}");
}
