//! The awaits of each task are those of the program's source.

use std::collections::HashMap;
use std::path::Path;

use serde_json::Value;

use crate::program::{HELPERS, OPTIMIZED, PLAIN, Running, build, plain};

/// The functions of a chain of awaits, from the task to one of those that it waits for at last, for each of these.
pub fn chains(awaits: &Value) -> Vec<Vec<String>> {
    let function = awaits["function"].as_str().unwrap();
    let place = match awaits["line"].as_u64() {
        Some(line) => {
            let file = Path::new(awaits["file"].as_str().unwrap());
            format!(" {}:{line}", file.file_name().unwrap().display())
        }
        None => String::new(),
    };
    let own = format!("{function}{place}");
    let inner = awaits["awaits"].as_array().unwrap();
    if inner.is_empty() {
        return vec![vec![own]];
    }
    let inner = inner.iter().flat_map(chains);
    let whole = inner.map(|chain| [vec![own.clone()], chain].concat());
    whole.collect()
}

/// Returns the line of a file of the example that contains a text.
fn line_of(file: &str, text: &str) -> usize {
    let source = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../plimsoll-awaits/examples")
        .join(file);
    let source = std::fs::read_to_string(source).unwrap();
    let lines = source.lines().enumerate();
    let mut found = lines.filter(|(_, line)| line.contains(text));
    let (at, _) = found.next().unwrap_or_else(|| panic!("{text}"));
    at + 1
}

fn line(text: &str) -> usize {
    line_of("every_await.rs", text)
}

/// The file of the example with what tasks wait for.
const WAITING: &str = "waiting/mod.rs";

fn every_task_has_its_awaits(running: &Running, kind: &str) {
    are_the_awaits(running, &running.runtimes_at_rest(1)[0], kind, HELPERS);
}

/// The tasks of a `LocalSet` have their awaits. Those that they spawn on the runtime are in no set.
fn every_task_of_a_set_has_its_awaits(running: &Running) {
    let runtimes = running.runtimes_at_rest(2);
    let [runtime, set] = &runtimes[..] else {
        unreachable!("there are two");
    };
    assert_eq!(runtime["kind"], "current_thread");
    assert_eq!(runtime["tasks"].as_array().unwrap().len(), HELPERS);
    // The first thread waits for both.
    assert_eq!(set["threads"], serde_json::json!([running.child.id()]));
    are_the_awaits(running, set, "local_set", 0);
}

fn are_the_awaits(running: &Running, runtime: &Value, kind: &str, more: usize) {
    assert_eq!(runtime["kind"], kind);
    assert_eq!(runtime["is_complete"], true);
    let of_id = |task: &Value| Some((task["id"].as_u64()?, task.clone()));
    let tasks = runtime["tasks"].as_array().unwrap();
    let tasks: HashMap<u64, Value> = tasks.iter().filter_map(of_id).collect();
    assert_eq!(tasks.len(), running.tasks.len() + more, "{tasks:?}");
    let places = [
        ("waits", line_of(WAITING, "outermost(future).await;")),
        ("outermost", line_of(WAITING, "second(future).await")),
        ("second", line_of(WAITING, "    future.await")),
    ];
    for (id, (name, leaf)) in &running.tasks {
        let task = &tasks[id];
        assert_eq!(task["activity"], "idle", "{name}");
        assert_eq!(task["thread"], Value::Null, "{name}");
        let chains = chains(&task["awaits"]);
        let has_leaf = |chain: &Vec<String>| chain.last().unwrap().starts_with(leaf);
        assert!(chains.iter().any(has_leaf), "{name}: {leaf}: {chains:#?}");
        for chain in &chains {
            for ((function, line), found) in places.iter().zip(chain) {
                let expected =
                    format!("every_await::waiting::{function}::{{{{closure}}}} mod.rs:{line}");
                assert_eq!(*found, expected, "{name}: {chain:#?}");
            }
        }
        let expected = match &**name {
            // A timeout waits for its future and for the time.
            "join!" | "select!" | "timeout" => 2,
            "join_all" => 3,
            "unordered" => 500,
            _ => 1,
        };
        assert_eq!(chains.len(), expected, "{name}: {chains:#?}");
    }
}

#[test]
fn every_leaf_of_tokio_has_its_whole_chain() {
    let running = Running::start(plain(), 0);
    every_task_has_its_awaits(&running, "multi_thread");
    let running = Running::start_with(plain(), &["0", "current"]);
    every_task_has_its_awaits(&running, "current_thread");
    let running = Running::start_with(plain(), &["0", "local"]);
    every_task_of_a_set_has_its_awaits(&running);
    let text = running.text(&[]);
    assert!(
        text.contains("one runtime of tokio and 1 LocalSet, read in"),
        "{text}"
    );
    assert!(
        text.contains(&format!("LocalSet: thread {}; ", running.child.id())),
        "{text}"
    );
}

#[test]
#[ignore = "compiles tokio six times"]
fn every_leaf_has_its_chain_in_each_build() {
    let flags = |flags: &str| format!("target.x86_64-unknown-linux-gnu.rustflags='{flags}'");
    let builds = [
        (PLAIN, String::new()),
        (
            PLAIN,
            "-Clink-arg=-Wl,--compress-debug-sections=zlib".into(),
        ),
        (PLAIN, "-Cdwarf-version=5".into()),
        (OPTIMIZED, String::new()),
        (OPTIMIZED, "-Clink-arg=-Wl,--icf=safe".into()),
        (OPTIMIZED, "-Crelocation-model=static".into()),
    ];
    for (number, (settings, added)) in builds.into_iter().enumerate() {
        println!("{settings:?} {added}");
        let added = flags(&added);
        let settings = [settings, &[&*added]].concat();
        let program = build(&format!("tasks-{number}"), &settings);
        every_task_has_its_awaits(&Running::start(&program, 0), "multi_thread");
        every_task_of_a_set_has_its_awaits(&Running::start_with(&program, &["0", "local"]));
    }
}

/// Tasks of the example that never wait for the same thing for long have one of six chains, and never another one.
#[test]
fn tasks_that_run_meanwhile_have_no_wrong_awaits() {
    let readings: usize =
        std::env::var("PLIMSOLL_TEST_READINGS").map_or(20, |number| number.parse().unwrap());
    let running = Running::start(plain(), 200);
    let function = |name: &str, place: &str, line| {
        format!("every_await::{name}::{{{{closure}}}} {place}:{line}")
    };
    let own = |name: &str, text: &str| function(name, "every_await.rs", line(text));
    let sleep = || "tokio::time::sleep::Sleep".to_owned();
    let left = own("left", "tokio::time::sleep(duration).await;");
    let right = own(
        "boxed_right",
        "left(Duration::from_micros(padding[7] >> 56)).await;",
    );
    let selects =
        |chain: &[String]| chain[0].starts_with("every_await::changes::{{closure}} select.rs:");
    let starts = [
        own("changes", "0 => left("),
        own("changes", "1 => boxed_right(state).await"),
        own("changes", "2 => tokio::task::yield_now().await"),
    ];
    let is_right = |chain: &[String]| match chain {
        [task] => task.starts_with("every_await::changes::{{closure}}"),
        [task, a, b] => (*task == starts[0] || selects(chain)) && *a == left && *b == sleep(),
        [task, a, b, c] => {
            (*task == starts[1] || selects(chain)) && *a == right && *b == left && *c == sleep()
        }
        [task, yields] => {
            // A branch of `select!` that was not polled yet.
            *task == starts[2] && yields.starts_with("tokio::task::yield_now")
                || selects(chain)
                    && (yields.starts_with("every_await::left")
                        || yields.starts_with("every_await::boxed_right"))
        }
        _ => false,
    };
    let mut decoded = 0;
    for reading in 0..readings {
        for task in running.runtime()["tasks"].as_array().unwrap() {
            let is_changing = task["future"].as_str().unwrap().contains("changes");
            if !is_changing || task["awaits"].is_null() {
                continue;
            }
            for chain in chains(&task["awaits"]) {
                assert!(is_right(&chain), "reading {reading}: {chain:#?}");
                decoded += 1;
            }
        }
    }
    assert!(decoded > readings * 10, "{decoded} of {readings} readings");
}

#[test]
fn the_text_has_at_most_60_lines_and_all_with_an_option() {
    let running = Running::start(plain(), 0);
    running.runtimes_at_rest(1);
    let text = running.text(&[]);
    assert!(text.lines().count() <= 60, "{text}");
    for part in [
        "Runtime of several threads: ",
        "  every_await::waiting::outermost  ",
        "tokio::time::sleep::Sleep, for ",
        "tokio::runtime::task::join::JoinHandle<()>, task ",
    ] {
        let all = running.text(&["--all"]);
        assert!(all.contains(part), "{part}: {all}");
    }
    let all = running.text(&["--all"]);
    for id in running.tasks.keys() {
        assert!(all.contains(&format!("Task {id}\n")), "{id}: {all}");
    }
    // A socket is named by its descriptor and its addresses.
    assert!(all.contains("socket:["), "{all}");
    assert!(all.contains("] (tcp 127.0.0.1:"), "{all}");
    assert!(all.contains(", listening)"), "{all}");
}
