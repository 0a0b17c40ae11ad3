//! The schemas in `docs/reference/schemas` describe the JSON of pages and of the command. They refuse
//! unknown members, so a change of the output without a change of its schema fails here.

#[global_allocator]
static ALLOC: plimsoll::Alloc = plimsoll::Alloc::system();

#[path = "../command/mod.rs"]
mod command;
#[cfg(target_arch = "x86_64")]
#[path = "../tasks/program.rs"]
mod program;
mod workload;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use command::{Directory, file_of_command, stdout_of};
use plimsoll_command::http;
use serde_json::{Value, json};
use workload::Process;

const SCHEMAS: [&str; 12] = [
    "attach",
    "comparison",
    "growth",
    "history",
    "memory",
    "numbers",
    "processes",
    "report",
    "run",
    "samples",
    "tasks",
    "threads",
];

/// The version of all schemas.
const VERSION: u64 = 1;

/// The maximum number of objects of one output that are changed.
const MAX_CHANGED: usize = 100;

fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/schemas")
}

fn schema(name: &str) -> Value {
    let path = directory().join(format!("{name}.json"));
    let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{name}: {error}"));
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// Asserts that a schema describes an output, and that it refuses the output with another version, with a
/// missing member, or with an unknown member of any of its objects.
fn describes(name: &str, output: &Value) {
    let mut registry = jsonschema::Registry::new();
    for name in SCHEMAS {
        let schema = schema(name);
        let id = schema["$id"].as_str().unwrap().to_owned();
        registry = registry.add(id, schema).unwrap();
    }
    let registry = registry.prepare().unwrap();
    let validator = jsonschema::options()
        .with_registry(&registry)
        .build(&schema(name))
        .unwrap();
    if let Err(error) = validator.validate(output) {
        panic!("{name}: {error} at {}: {output:#}", error.instance_path());
    }
    let mut changed = output.clone();
    changed["version"] = json!(VERSION + 1);
    assert!(!validator.is_valid(&changed), "{name}: another version");
    for member in output
        .as_object()
        .unwrap()
        .keys()
        .filter(|member| *member != "timeline" && *member != "history")
    {
        let mut changed = output.clone();
        changed.as_object_mut().unwrap().remove(member);
        let is_program = name == "run"
            && [
                "how",
                "user_seconds",
                "system_seconds",
                "resident_bytes",
                "peak",
                "note",
            ]
            .contains(&member.as_str());
        let is_optional =
            name == "memory" && ["cgroup", "nearest_limit"].contains(&member.as_str());
        assert!(
            is_optional || is_program || !validator.is_valid(&changed),
            "{name}: without {member}"
        );
    }
    let mut paths = Vec::new();
    objects(output, String::new(), &mut paths);
    assert!(!paths.is_empty());
    for path in paths.iter().take(MAX_CHANGED) {
        let mut changed = output.clone();
        // Objects whose members are names have values of one type, which is no array.
        changed.pointer_mut(path).unwrap()["unknown"] = json!([]);
        assert!(
            !validator.is_valid(&changed),
            "{name}: an unknown member of {path}/"
        );
    }
}

/// Adds the pointers of all objects in a value.
fn objects(value: &Value, path: String, to: &mut Vec<String>) {
    match value {
        Value::Object(members) => {
            for (name, member) in members {
                objects(
                    member,
                    format!("{path}/{}", name.replace('~', "~0").replace('/', "~1")),
                    to,
                );
            }
            to.push(path);
        }
        Value::Array(items) => {
            for (at, item) in items.iter().enumerate() {
                objects(item, format!("{path}/{at}"), to);
            }
        }
        _ => {}
    }
}

fn parsed(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

#[test]
fn all_schemas_are_valid_and_listed() {
    let files = fs::read_dir(directory()).unwrap();
    let names = files.map(|file| file.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = names
        .filter_map(|name| name.strip_suffix(".json").map(str::to_owned))
        .collect();
    names.sort();
    assert_eq!(names, SCHEMAS, "each schema has a test below");
    let page = fs::read_to_string(directory().join("README.md")).unwrap();
    for name in SCHEMAS {
        let schema = schema(name);
        assert!(jsonschema::meta::is_valid(&schema), "{name}");
        assert_eq!(schema["$id"], format!("urn:plimsoll:{name}:{VERSION}"));
        assert!(
            page.contains(&format!("({name}.json)")),
            "{name} is not in README.md"
        );
    }
}

/// Runs a shell's commands by `plimsoll run --json`, and returns the lines of JSON.
fn lines(options: &[&str], commands: &str) -> Vec<Value> {
    let output = Command::new(file_of_command())
        .arg("run")
        .args(options)
        .args(["--json", "--", "sh", "-c", commands])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let lines: Vec<Value> = said
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok())
        .collect();
    assert!(!lines.is_empty(), "{said}");
    lines
}

#[test]
fn runs_and_their_comparisons() {
    let directory = Directory::new("schemas-run");
    let out = directory.path("out");
    let options = [
        "--out",
        &out,
        "--children",
        "--timeline",
        "--heap-rate",
        "1",
    ];
    let all = lines(&options, "sh -c true; sh -c true; :");
    assert_eq!(all.len(), 3, "{all:?}");
    assert_eq!(
        all.iter().filter(|line| line.get("how").is_some()).count(),
        1
    );
    for line in &all {
        describes("run", line);
    }
    let processes = fs::read_to_string(directory.path("out/processes.jsonl")).unwrap();
    assert_eq!(processes.lines().count(), 3);
    for line in processes.lines() {
        describes("processes", &parsed(line));
    }
    let numbers = fs::read_to_string(directory.path("out/numbers.json")).unwrap();
    describes("numbers", &parsed(&numbers));

    let all = lines(
        &["--diff", &out, "--heap-rate", "1"],
        "read line < /etc/passwd; :",
    );
    assert_eq!(all.len(), 2, "{all:?}");
    describes("run", &all[0]);
    describes("run", &all[1]);
    describes("comparison", &all[1]);
    assert_ne!(all[1]["comparison"]["lists"], json!([]));

    let other = directory.path("other");
    lines(
        &["--out", &other, "--heap-rate", "1"],
        "for i in 1 2 3 4 5 6 7 8 9; do x=$x$x$i; done",
    );
    let output = command::plimsoll(&["diff", &other, &out, "--json", "--fail-over", "processes=0"]);
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    let comparison = parsed(&String::from_utf8(output.stdout).unwrap());
    assert_eq!(
        comparison["comparison"]["exceeded"]
            .as_array()
            .unwrap()
            .len(),
        1
    );
    describes("comparison", &comparison);

    let heap = format!("{out}/heap.pb.gz");
    describes("report", &parsed(&stdout_of(&["report", &heap, "--json"])));
    let earlier = format!("{other}/heap.pb.gz");
    describes(
        "report",
        &parsed(&stdout_of(&["diff", &earlier, &heap, "--json"])),
    );
}

#[test]
fn killed_programs() {
    let directory = Directory::new("schemas-killed");
    let out = directory.path("out");
    let all = lines(&["--postmortem", "--out", &out], "kill -9 $$");
    assert_eq!(all.len(), 1, "{all:?}");
    assert_eq!(all[0]["ending"], "killed");
    describes("run", &all[0]);
    let processes = fs::read_to_string(directory.path("out/processes.jsonl")).unwrap();
    describes("processes", &parsed(&processes));
    describes(
        "report",
        &parsed(&stdout_of(&[
            "report",
            &format!("{out}/program.postmortem"),
            "--json",
        ])),
    );
}

#[test]
fn pages_of_a_program_and_its_post_mortem_file() {
    let directory = Directory::new("schemas-pages");
    let file = directory.path("program.postmortem");
    let process = Process::start(&format!(
        "postmortem={file},heap_rate=1,growth=5ms,http=127.0.0.1:0,memory_limit=4g"
    ));
    let page = |path: &str| {
        let url = format!("http://{}/debug/plimsoll/{path}", process.address);
        let body = http::get(http::Server::Named, &url, Duration::from_secs(60)).unwrap();
        parsed(&String::from_utf8(body).unwrap())
    };
    let growth = page("growth");
    assert_ne!(growth["sites"], json!([]));
    describes("growth", &growth);
    let history = page("history");
    assert_ne!(history["steps"][0]["points"], json!([]));
    describes("history", &history);
    let threads = page("threads");
    assert_ne!(threads["locks"], json!([]), "{threads}");
    assert!(
        threads["threads"]
            .as_array()
            .unwrap()
            .iter()
            .any(|thread| thread["labels"]["tenant"] == "acme"),
        "{threads}"
    );
    describes("threads", &threads);
    let memory = page("memory?format=json");
    assert!(memory["kernel"].is_object(), "{memory}");
    describes("memory", &memory);
    describes(
        "report",
        &parsed(&stdout_of(&["report", &process.address, "--json"])),
    );

    let summary = stdout_of(&["report", "--summary", &process.address]);
    assert!(summary.len() <= 3072, "{summary}");
    for part in [
        "running program",
        "in use: ",
        " exactly",
        "resident: ",
        "growth: ",
        " sites leak",
        "workload.rs:",
    ] {
        assert!(summary.contains(part), "{part}: {summary}");
    }
    process.kill();
    let growth = parsed(&stdout_of(&["report", &file, "--growth", "--json"]));
    assert_ne!(growth["sites"], json!([]));
    describes("growth", &growth);
    let report = parsed(&stdout_of(&["report", &file, "--json"]));
    assert!(report["history"].is_object());
    describes("report", &report);
    let summary = stdout_of(&["report", "--summary", &file]);
    assert!(summary.len() <= 3072, "{summary}");
    for part in [
        "post-mortem file of schemas",
        "in use: ",
        " exactly",
        "lost: ",
        "growth: ",
        "workload.rs:",
    ] {
        assert!(summary.contains(part), "{part}: {summary}");
    }
}

#[test]
fn processes_that_are_read_from_outside_have_their_schemas() {
    let mut child = Command::new("sleep").arg("600").spawn().unwrap();
    let pid = child.id().to_string();
    let attach = |options: &[&str]| {
        let arguments = [&["attach", &pid, "--json"], options].concat();
        parsed(&stdout_of(&arguments))
    };
    let outputs = [attach(&[]), attach(&["--wall", "200ms"])];
    child.kill().unwrap();
    child.wait().unwrap();
    for (name, output) in ["attach", "samples"].into_iter().zip(outputs) {
        describes(name, &output);
    }
}

#[cfg(target_arch = "x86_64")]
#[test]
fn tasks_of_a_running_program_have_their_schema() {
    let running = program::Running::start(program::plain(), 3);
    describes("tasks", &parsed(&running.text(&["--json"])));
}
