//! Functions of Python in the stacks of all threads, blocked or running: in the dump and in wall-clock
//! profiles.

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use plimsoll_testkit::client;

use super::{Script, folded, pythons, sum};
use crate::port::Port;
use crate::scene::{PLIMSOLL, run};

/// Threads that wait and threads that compute, each in a function of its name. Prints the system's
/// number of each thread when all are there, and ends with its input.
const THREADS: &str = r#"
import sys, threading

news = threading.Event()
door = threading.Lock()
numbers = []

def note(name):
    numbers.append((name, threading.get_native_id()))

def waits_for_news():
    note("waits_for_news")
    news.wait()

def opens_the_door():
    note("opens_the_door")
    with door:
        pass

def generates():
    note("generates")
    yield news.wait()

def sorted_by_generator():
    return sorted([2, 1], key=lambda _: len(list(generates())))

def counts_up():
    note("counts_up")
    count = 0
    while not news.is_set():
        count += sum([1, 2])

def counts_down():
    note("counts_down")
    count = 0
    while not news.is_set():
        count -= 1

def reads_input():
    sys.stdin.read()

def main():
    functions = [waits_for_news, opens_the_door, sorted_by_generator, counts_up, counts_down]
    threads = [threading.Thread(target=function) for function in functions]
    with door:
        for thread in threads:
            thread.start()
        while len(numbers) < len(functions):
            threading.Event().wait(0.01)
        for name, number in numbers:
            print(name, number)
        print("reads_input", threading.get_native_id(), flush=True)
        reads_input()
    news.set()
    for thread in threads:
        thread.join()

main()
"#;

/// A script that runs until its input is closed, and serves its pages.
struct Running {
    child: Child,
    port: Port,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    script: Script,
}

impl Running {
    fn new(name: &str, source: &str, python: &Path, options: &[&str]) -> Self {
        let script = Script::new(name, source);
        let port = Port::new();
        let number = port.number.to_string();
        let out = ["--http", &number, "--out", script.out.to_str().unwrap()];
        let mut child = run(&[options, &out].concat(), python, &[&script.path])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        Self {
            port,
            input: child.stdin.take(),
            output: BufReader::new(child.stdout.take().unwrap()),
            child,
            script,
        }
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    /// Reads the dump of all threads until it has a property, and returns it.
    fn dump_with(&self, property: impl Fn(&str) -> bool) -> String {
        let start = Instant::now();
        loop {
            let page = client::get(self.port.address(), "/debug/pprof/goroutine?debug=2");
            let text = page.text();
            if property(text) {
                return text.to_owned();
            }
            assert!(start.elapsed() < Duration::from_secs(60), "{text}");
        }
    }

    /// Reads the profile of a second of elapsed time, into a file.
    fn wall(&self) -> PathBuf {
        let page = client::get(self.port.address(), "/debug/pprof/wall?seconds=1");
        let file = Path::new(&self.script.path).with_extension("pb.gz");
        std::fs::write(&file, page.body).unwrap();
        file
    }

    /// Ends the script, and returns its output since the last line that was read.
    fn end(&mut self) -> String {
        drop(self.input.take());
        let mut rest = String::new();
        self.output.read_to_string(&mut rest).unwrap();
        assert!(self.child.wait().unwrap().success());
        rest
    }
}

/// Returns the part of a dump that is about the thread with a number.
fn part_of<'a>(dump: &'a str, number: &str) -> &'a str {
    let head = format!("goroutine {number} [");
    let parts = dump.split("\n\n").filter(|part| part.starts_with(&head));
    parts.last().unwrap_or("")
}

/// Returns whether a thread's part contains a call of the function at one of the lines.
fn has_line(part: &str, function: &str, lines: &[usize]) -> bool {
    let calls: Vec<&str> = part.lines().collect();
    calls.windows(2).any(|call| {
        let place = |line| format!("threads.py:{line} ");
        call[0].contains(function)
            && lines
                .iter()
                .any(|&line| format!("{} ", call[1]).contains(&place(line)))
    })
}

/// Returns the lines of the script, counted from 1, that contain a text.
fn lines_of(text: &str) -> Vec<usize> {
    let lines = THREADS.lines().enumerate();
    let found = lines.filter(|(_, line)| line.contains(text));
    found.map(|(at, _)| at + 1).collect()
}

const FUNCTIONS: [(&str, &[&str]); 6] = [
    ("waits_for_news", &["    news.wait()"]),
    ("opens_the_door", &["with door:"]),
    ("generates", &["yield news.wait()"]),
    (
        "counts_up",
        &["while not news.is_set()", "count += sum([1, 2])"],
    ),
    ("counts_down", &["while not news.is_set()", "count -= 1"]),
    ("reads_input", &["sys.stdin.read()"]),
];

#[test]
fn the_dump_has_the_functions_of_each_thread_with_their_lines() {
    for python in pythons() {
        let mut running = Running::new("threads", THREADS, &python, &[]);
        let numbers: Vec<(String, String)> = (0..6)
            .map(|_| {
                let line = running.line();
                let (name, number) = line.split_once(' ').unwrap();
                (name.to_owned(), number.to_owned())
            })
            .collect();
        let lines = |name: &str| {
            let (_, texts) = FUNCTIONS.iter().find(|(known, _)| *known == name).unwrap();
            texts.iter().flat_map(|text| lines_of(text)).collect()
        };
        let dump = running.dump_with(|dump| {
            numbers.iter().all(|(name, number)| {
                let lines: Vec<usize> = lines(name);
                has_line(part_of(dump, number), name, &lines)
            })
        });
        for (name, _) in &numbers {
            let with: Vec<&(String, String)> = numbers
                .iter()
                .filter(|(_, number)| part_of(&dump, number).contains(&format!("{name} (")))
                .collect();
            assert_eq!(with.len(), 1, "{}: {name}: {dump}", python.display());
        }
        for part in dump.split("\n\n") {
            // A running thread may be about to begin or end a function.
            if let Some((_, callers)) = part.split_once(".py)(...)") {
                assert!(!callers.contains("_PyEval_EvalFrame"), "{part}");
            }
        }
        running.end();
    }
}

/// Asserts that a wall-clock profile has time in each function, at one of its lines.
#[track_caller]
fn assert_lines(file: &Path, functions: &[(&str, &[&str])]) {
    for (name, texts) in functions {
        let list = Command::new(PLIMSOLL)
            .args(["report", "--list", name, "-t", "time"])
            .arg(file)
            .output()
            .unwrap();
        let list = String::from_utf8(list.stdout).unwrap();
        let has_time = |line: usize| {
            let start = format!("{line}:");
            list.lines().any(|text| {
                let words: Vec<&str> = text.split_whitespace().collect();
                words.get(2) == Some(&&*start) && words[1] != "."
            })
        };
        let mut lines = texts.iter().flat_map(|text| lines_of(text));
        assert!(lines.any(has_time), "{list}");
    }
}

#[test]
fn wall_clock_profiles_have_the_functions_of_waiting_and_running_threads() {
    for python in pythons() {
        let mut running = Running::new("elapsed", THREADS, &python, &["--wall"]);
        (0..6).for_each(|_| drop(running.line()));
        let file = running.wall();
        let stacks = folded(&file, &["-t", "time"]);
        let context = format!("{}: {stacks:?}", python.display());
        let all = sum(&stacks, "") as f64;
        for (name, _) in FUNCTIONS {
            // Each thread has a sixth of the time, in which it runs or waits.
            let part = sum(&stacks, &format!(";{name} (elapsed.py);")) as f64 / all;
            assert!((part - 1.0 / 6.0).abs() < 0.08, "{name} {part}: {context}");
        }
        assert_lines(&file, &FUNCTIONS);
        running.end();
        // The threads are listed anew at some of the readings only.
        let file = running.script.out.join("wall.pb.gz");
        assert_lines(&file, &[("reads_input", &["sys.stdin.read()"])]);
    }
}

/// Threads that begin and end all the time. Each runs functions that are compiled for it and freed with
/// it, and whose names have its maker's number.
const CHANGING: &str = r#"
import sys, threading

ended = threading.Event()

def makes(number):
    turn = 0
    while not ended.is_set():
        turn = (turn + 1) % 100
        inner = f"inner_{number}_{turn}"
        source = f"""
def outer_{number}():
    {inner}()
def {inner}():
    ended.wait(0.0005)
    sum(range(2000))
outer_{number}()
"""
        code = compile(source, f"made_{number}.py", "exec")
        thread = threading.Thread(target=exec, args=(code, {"ended": ended}))
        del code
        thread.start()
        thread.join()

makers = [threading.Thread(target=makes, args=(number,)) for number in range(6)]
for maker in makers:
    maker.start()
print("ready", flush=True)
sys.stdin.read()
ended.set()
for maker in makers:
    maker.join()
print("ended")
"#;

/// Returns the numbers that follow a text.
fn numbers_after<'a>(part: &'a str, text: &'a str) -> impl Iterator<Item = &'a str> {
    let after = part.split(text).skip(1);
    after.map(|rest| {
        rest.split(|end: char| !end.is_ascii_digit())
            .next()
            .unwrap()
    })
}

#[test]
fn stacks_of_a_dump_have_functions_of_one_thread_while_threads_and_functions_are_freed() {
    for python in pythons() {
        let mut running = Running::new("changing", CHANGING, &python, &["--wall"]);
        assert_eq!(running.line(), "ready");
        let (mut whole, mut dumps) = (0, 0);
        while dumps < 60 || whole < 100 {
            dumps += 1;
            let dump = running.dump_with(|_| true);
            for part in dump.split("\n\n") {
                let names = ["made_", "outer_", "inner_"];
                let mut numbers = names.iter().flat_map(|text| numbers_after(part, text));
                let first = numbers.next();
                let context = format!("{}: {part}", python.display());
                assert!(numbers.all(|number| Some(number) == first), "{context}");
                if let Some(inner) = part.find("inner_") {
                    let outer = part[inner..].find("outer_").expect(&context);
                    assert!(
                        part[inner + outer..].contains("<module> (made_"),
                        "{context}"
                    );
                    whole += 1;
                }
            }
        }
        assert_eq!(running.end(), "ended\n", "{}", python.display());
    }
}
