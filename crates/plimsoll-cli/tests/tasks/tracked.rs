//! What a task awaits is the same in `plimsoll tasks`, by debug information, and in the stack that a tracked task records.

use std::collections::{BTreeSet, HashMap};
use std::io::{BufRead as _, Write as _};
use std::path::Path;

use serde_json::Value;

use crate::awaits::chains;
use crate::program::{OPTIMIZED, PLAIN, Running, build_tracked};

/// Returns functions with their places without arguments of types, which are written in different ways.
fn without_types(functions: Vec<String>) -> Vec<String> {
    let plain = functions.into_iter().map(|function| {
        let mut depth = 0_u32;
        let kept = function.chars().filter(|letter| {
            depth += u32::from(*letter == '<');
            let is_kept = depth == 0;
            depth -= u32::from(*letter == '>' && depth > 0);
            is_kept
        });
        kept.collect()
    });
    plain.collect()
}

/// Returns the functions of a task's recorded stack with their places, from the task on.
fn recorded(record: &Value) -> Vec<String> {
    let frames = record["stack"].as_array().unwrap().iter().rev();
    let frames = frames.map(|frame| {
        let file = Path::new(frame["file"].as_str().unwrap());
        let file = file.file_name().unwrap_or_default().display();
        let function = frame["function"].as_str().unwrap();
        format!("{function} {file}:{}", frame["line"])
    });
    without_types(frames.collect())
}

/// The files with the macros `join!` and `select!`. A decoded `.await` in a macro has the macro's place; the stack has the place
/// where the program calls the macro, and a closure of the macro below it.
const MACROS: [&str; 2] = [" join.rs:", " select.rs:"];

fn is_of_macro(function: &str) -> bool {
    MACROS.iter().any(|file| function.contains(file))
}

/// Returns the `async` functions of the program among functions.
fn of_program(all: &[String]) -> Vec<&String> {
    let is_own = |function: &&String| {
        function.starts_with("plimsoll_tracked_tasks::waiting::")
            && function.contains("::{{closure}} ")
    };
    all.iter().filter(is_own).collect()
}

/// Returns whether a decoded function is a recorded one.
fn is_same(decoded: &str, recorded: &str) -> bool {
    let name = |function: &str| function.split(' ').next().unwrap_or_default().to_owned();
    decoded == recorded || (is_of_macro(decoded) && name(decoded) == name(recorded))
}

/// Returns the first function that is not among the recorded ones in their order.
fn first_missing<'a>(functions: &'a [String], recorded: &[String]) -> Option<&'a String> {
    let mut rest = recorded.iter();
    let mut functions = functions.iter();
    functions.find(|function| !rest.any(|recorded| is_same(function, recorded)))
}

fn both_are_equal(program: &Path) {
    let mut running = Running::start_with(program, &[]);
    let runtime = running.runtimes_at_rest(1).remove(0);
    assert_eq!(runtime["is_complete"], true);
    running.input.write_all(b"x").unwrap();
    let mut numbers = HashMap::new();
    let page: Value = loop {
        let mut line = String::new();
        assert!(
            running.output.read_line(&mut line).unwrap() > 0,
            "it does not end"
        );
        match line.trim_end().split_once(' ') {
            Some((task, number)) if !line.starts_with('{') => {
                numbers.insert(number.parse::<u64>().unwrap(), task.parse::<u64>().unwrap());
            }
            _ => break serde_json::from_str(&line).unwrap(),
        }
    };
    let mut compared = BTreeSet::new();
    for record in page["threads"].as_array().unwrap() {
        let task = record["id"].as_u64().and_then(|id| numbers.get(&id));
        let Some(task) = task.filter(|_| record["kind"] == "task") else {
            continue;
        };
        let (name, _) = &running.tasks[task];
        let tasks = runtime["tasks"].as_array().unwrap();
        let decoded = tasks.iter().find(|found| found["id"] == *task).unwrap();
        let recorded = recorded(record);
        let chains = chains(&decoded["awaits"]).into_iter();
        let chains: Vec<Vec<String>> = chains.map(without_types).collect();
        // Without a waker that is kept, no stack is recorded.
        if of_program(&recorded).is_empty() {
            assert_eq!(name, "pending", "{recorded:#?}");
            continue;
        }
        let own = of_program(&recorded).into_iter();
        let own: Vec<&String> = own.filter(|function| !is_of_macro(function)).collect();
        let is_equal = |chain: &&Vec<String>| {
            let chain = of_program(chain);
            let mut pairs = chain.iter().zip(&own);
            chain.len() == own.len() && pairs.all(|(decoded, recorded)| is_same(decoded, recorded))
        };
        let chain = chains.iter().find(is_equal);
        let chain = chain.unwrap_or_else(|| panic!("{name}: {recorded:#?} {chains:#?}"));
        // Only functions have a place.
        let functions: Vec<String> = (chain.iter())
            .filter(|function| function.contains("::{{closure}} "))
            .cloned()
            .collect();
        let missing = first_missing(&functions, &recorded);
        assert_eq!(missing, None, "{name}: {recorded:#?} {chain:#?}");
        compared.insert(name.clone());
    }
    let expected: BTreeSet<String> = (running.tasks.values())
        .map(|(name, _)| name.clone())
        .filter(|name| name != "pending")
        .collect();
    assert_eq!(compared, expected);
}

#[test]
#[ignore = "compiles Plimsoll and tokio twice"]
fn awaits_are_those_that_tracked_tasks_record() {
    for (folder, settings) in [("tracked-plain", PLAIN), ("tracked-optimized", OPTIMIZED)] {
        println!("{folder}");
        both_are_equal(&build_tracked(folder, settings));
    }
}
