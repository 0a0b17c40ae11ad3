//! Functions of Python in stacks, read from the interpreter's own frames. The system's `python3` is
//! tested, and those that `PLIMSOLL_PYTHONS` lists, separated by colons.

mod threads;

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::scene::{PLIMSOLL, Scene, number, run, same_with};

/// Returns the interpreters. None is skipped silently.
fn pythons() -> Vec<PathBuf> {
    let listed = std::env::var("PLIMSOLL_PYTHONS").unwrap_or_default();
    let listed = listed.split(':').filter(|path| !path.is_empty());
    let mut pythons: Vec<PathBuf> = listed.map(PathBuf::from).collect();
    let systems = PathBuf::from("/usr/bin/python3");
    if systems.exists() {
        pythons.push(systems);
    }
    if pythons.is_empty() {
        plimsoll_testkit::skip!("python3 is not installed");
    }
    pythons
}

/// Returns the stacks of a kept profile in the folded form, with their values.
fn folded(file: &Path, sample_type: &[&str]) -> Vec<(String, u64)> {
    let output = Command::new(PLIMSOLL)
        .args(["report", "--folded"])
        .args(sample_type)
        .arg(file)
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    let stacks = text.lines().filter_map(|line| line.rsplit_once(' '));
    stacks
        .map(|(stack, value)| (format!("{stack};"), value.parse().unwrap()))
        .collect()
}

/// A script, and the directory for the profiles of its run.
struct Script {
    _scene: Scene,
    path: String,
    out: PathBuf,
}

impl Script {
    /// Writes a script of that name.
    fn new(name: &str, source: &str) -> Self {
        let scene = Scene::new(&format!("python-{name}"));
        let path = scene.path(&format!("{name}.py"));
        std::fs::write(&path, source).unwrap();
        Self {
            path: path.to_str().unwrap().to_owned(),
            out: scene.path("out"),
            _scene: scene,
        }
    }

    /// Runs the script by `plimsoll run`, and keeps the profiles.
    fn run(&self, python: &Path, options: &[&str]) {
        let out = ["--quiet", "--out", self.out.to_str().unwrap()];
        let options = [options, &out].concat();
        run(&options, python, &[&self.path]).output().unwrap();
    }

    /// The same with every allocation sampled. The script must behave as without Plimsoll.
    fn run_sampled(&self, python: &Path) -> Vec<(String, u64)> {
        let options = ["--heap-rate", "1", "--out", self.out.to_str().unwrap()];
        same_with(&options, python, &[&self.path]);
        folded(&self.out.join("heap.pb.gz"), &["-t", "alloc_space"])
    }
}

/// Returns the sum of the stacks that contain a text.
fn sum(stacks: &[(String, u64)], text: &str) -> u64 {
    let matching = stacks.iter().filter(|(stack, _)| stack.contains(text));
    matching.map(|(_, value)| value).sum()
}

/// Functions that are called in each way that the interpreter has, with the blocks that they allocate.
const CALLS: &str = r#"
import asyncio, threading

kept = []

def listed():
    kept.append([bytearray(10_000) for _ in range(100)])

def mapped():
    kept.extend(map(lambda size: bytearray(size), [10_000] * 200))

def generated():
    for _ in range(300):
        yield bytearray(10_000)

class Base:
    def __init__(self):
        self.block = bytearray(400 * 10_000)

class Derived(Base):
    def __init__(self):
        super().__init__()

class Dying:
    def __del__(self):
        kept.append(bytearray(500 * 10_000))

def deep(levels):
    return deep(levels - 1) if levels else bytearray(600 * 10_000)

def threaded():
    kept.append(bytearray(700 * 10_000))

async def awaited():
    await asyncio.sleep(0)
    return bytearray(800 * 10_000)

async def gathering():
    kept.extend(await asyncio.gather(awaited(), awaited()))

def handling():
    try:
        raise KeyError("x")
    except KeyError:
        kept.append(bytearray(900 * 10_000))

def sorted_by_key():
    sorted([3, 1, 2], key=lambda v: kept.append(bytearray(1_000 * 10_000)) or v)

def main():
    listed()
    mapped()
    kept.append(list(generated()))
    kept.append(Derived())
    Dying()
    kept.append(deep(60))
    thread = threading.Thread(target=threaded)
    thread.start()
    thread.join()
    asyncio.run(gathering())
    handling()
    sorted_by_key()
    exec(compile("kept.append(bytearray(1_100 * 10_000))", "made.py", "exec"), {"kept": kept, "bytearray": bytearray})

main()
print(len(kept))
"#;

#[test]
fn each_function_of_python_has_the_memory_that_it_allocates() {
    for python in pythons() {
        let stacks = Script::new("calls", CALLS).run_sampled(&python);
        for (text, units) in [
            (";main (calls.py);listed (calls.py);", 100),
            (";main (calls.py);mapped (calls.py);", 200),
            (";main (calls.py);generated (calls.py);", 300),
            ("__init__ (calls.py);", 400),
            ("__del__ (calls.py);", 500),
            (";deep (calls.py);deep (calls.py);deep (calls.py);", 600),
            (";threaded (calls.py);", 700),
            (";main (calls.py);handling (calls.py);", 900),
            (";main (calls.py);sorted_by_key (calls.py);", 3_000),
            (";main (calls.py);<module> (made.py);", 1_100),
        ] {
            let (found, expected) = (sum(&stacks, text), units * 10_000);
            let context = format!("{}: {text}", python.display());
            // The list comprehension and the generator's list have lists besides the blocks.
            let most = expected + expected / 50 + 20_000;
            assert!((expected..most).contains(&found), "{context} {found}");
        }
        let awaited = sum(&stacks, "awaited (calls.py);");
        assert!((16_000_000..16_100_000).contains(&awaited), "{awaited}");
        let lambda = sum(
            &stacks,
            "mapped (calls.py);mapped.<locals>.<lambda> (calls.py);",
        ) + sum(&stacks, "mapped (calls.py);<lambda> (calls.py);");
        assert!((2_000_000..2_100_000).contains(&lambda), "{lambda}");
        let levels = ";deep (calls.py)".repeat(61);
        assert!(sum(&stacks, &levels) >= 6_000_000);
        assert_eq!(sum(&stacks, &";deep (calls.py)".repeat(62)), 0);
        let loops = stacks.iter().find(|(stack, _)| {
            stack.contains(" (calls.py);") && stack.contains("_PyEval_EvalFrame")
        });
        assert!(loops.is_none(), "{loops:?}");
    }
}

/// Recursions of various depths, in functions of Python alone and through the interpreter's code, which takes native
/// frames.
const RECURSIONS: &str = r#"
import functools

kept = []

def deep(levels):
    return deep(levels - 1) if levels else bytearray(100 * 10_000)

def through_native(levels):
    called = functools.partial(through_native, levels - 1)
    return list(map(lambda _: called(), [0]))[0] if levels else bytearray(200 * 10_000)

def main():
    for more in range(10):
        kept.append(deep(900 + more))
        kept.append(through_native(150 + more))

main()
print(len(kept))
"#;

#[test]
fn a_deep_recursion_of_python_is_under_its_root() {
    for python in pythons() {
        let stacks = Script::new("recursions", RECURSIONS).run_sampled(&python);
        let stacks = stacks.iter().filter(|(_, bytes)| *bytes >= 1_000_000);
        let of = |function: &str| -> Vec<_> {
            let stacks = stacks.clone();
            stacks
                .filter(|(stack, _)| stack.contains(function))
                .collect()
        };
        let context = python.display();
        let (name, root) = ("deep (recursions.py);", "main (recursions.py);deep (");
        let (deep, native) = (of(name), of("through_native (recursions.py);"));
        let bytes = |stacks: &[&(String, u64)]| stacks.iter().map(|(_, bytes)| bytes).sum::<u64>();
        assert!(bytes(&deep) >= 10_000_000, "{context}: {deep:?}");
        assert_eq!(deep.len(), 1, "{context}: of any depth");
        assert!(bytes(&native) >= 20_000_000, "{context}: {native:?}");
        for (stack, _) in deep {
            assert!(
                stack.contains(&format!("<module> (recursions.py);{root}")),
                "{stack}"
            );
            assert_eq!(stack.matches("[frames left out];").count(), 1, "{stack}");
            let leaf = stack.split(";[frames left out];").nth(1);
            assert!(
                leaf.is_some_and(|leaf| leaf.starts_with(&name.repeat(3))),
                "{stack}"
            );
            assert!(stack.split(';').count() <= 129);
        }
        for (stack, _) in native {
            assert!(stack.contains("<module> (recursions.py);main ("), "{stack}");
            assert!(stack.split(';').count() <= 129);
        }
    }
}

#[test]
fn lines_of_python_are_those_of_the_calls() {
    for python in pythons() {
        let source = "kept = []\ndef hoard():\n    x = 1\n    kept.append(bytearray(3_000_000))\n\n    for i in range(2):\n        kept.append(\n            bytearray(7_000_000))\n\nhoard()\n";
        let script = Script::new("lines", source);
        script.run(&python, &["--heap-rate", "1"]);
        let list = Command::new(PLIMSOLL)
            .args([
                "report",
                "--list",
                "hoard",
                "-t",
                "alloc_space",
                "--unit",
                "kb",
            ])
            .arg(script.out.join("heap.pb.gz"))
            .output()
            .unwrap();
        let text = String::from_utf8(list.stdout).unwrap();
        let value = |number: usize| {
            let start = format!("{number}:");
            let lines = text.lines().map(|line| line.split_whitespace());
            let mut lines = lines.map(|words| words.collect::<Vec<_>>());
            let line = lines.find(|words| words.get(2) == Some(&&*start));
            let value = line.map_or(".", |words| words[1]);
            value.trim_end_matches("kB").parse::<f64>().unwrap_or(0.0)
        };
        let near = |found: f64, bytes: f64| (found - bytes / 1024.0).abs() < 100.0;
        assert!(near(value(4), 3e6), "{text}");
        // Up to 3.9, a call of several lines begins at one of them.
        assert!(near(value(7) + value(8), 14e6), "{text}");
        assert!(near(value(3) + value(6), 0.0), "{text}");
    }
}

/// Names of a function and a file that are hostile to terminals, reports and fixed buffers.
const HOSTILE: &str = r##"
kept = []
def plain():
    kept.append(bytearray(5_000_000))
names = ["größe", "функция", "函数", "\U0001d4d5", "a\x1b[31mb", "<script>", "n" * 10_000, "", "x\ny", "\udcff"]
for name in names:
    changes = {"co_name": name, "co_filename": "/tmp/" + name + ".py"}
    if hasattr(plain.__code__, "co_qualname"):
        changes["co_qualname"] = name
    exec(plain.__code__.replace(**changes))
print(len(kept))
"##;

#[test]
fn names_of_python_are_text_whatever_they_contain() {
    for python in pythons() {
        let stacks = Script::new("names", HOSTILE).run_sampled(&python);
        for text in [
            "größe (größe.py);",
            "функция (",
            "函数 (",
            "\u{1d4d5} (",
            "<script> (",
        ] {
            let found = sum(&stacks, text);
            assert!(found >= 5_000_000, "{}: {text} {found}", python.display());
        }
        let long = format!("{} (", "n".repeat(256));
        assert!(sum(&stacks, &long) >= 5_000_000);
        let all = sum(&stacks, "<module> (names.py);");
        assert!(all >= 10 * 5_000_000, "{all}");
        assert!(!stacks.iter().any(|(stack, _)| stack.contains('\x1b')));
    }
}

/// Threads and forked children that call deep, while their processor time and all allocations are
/// sampled.
const STRESS: &str = r#"
import os, sys, threading, gc
sys.setrecursionlimit(5000)

def deep(levels):
    block = bytearray(600 + levels)
    return deep(levels - 1) + 1 if levels else len(block)

def numbers(count):
    for number in range(count):
        yield deep(number % 30)

def work(results):
    total = 0
    for turn in range(40):
        total += sum(numbers(50)) + deep(900)
        exec(compile("def f%d(): return [i for i in range(1000)]\nf%d()" % (turn, turn), "made%d" % turn, "exec"))
        gc.collect(0)
    results.append(total)

results = []
threads = [threading.Thread(target=work, args=(results,)) for _ in range(4)]
threading.stack_size(16 << 20)
for thread in threads:
    thread.start()
children = []
for _ in range(3):
    child = os.fork()
    if child == 0:
        mine = []
        work(mine)
        os._exit(mine[0] % 100)
    children.append(child)
for thread in threads:
    thread.join()
print(results, [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children])
"#;

#[test]
fn interrupted_and_forked_interpreters_go_on_unchanged() {
    for python in pythons() {
        let script = Script::new("stress", STRESS);
        let arguments = ["-W", "ignore", &script.path];
        let options = [
            "--cpu=1000",
            "--wall",
            "--heap-rate",
            "2k",
            "--children",
            "--each",
        ];
        let reports = same_with(&options, &python, &arguments);
        assert_eq!(reports.len(), 4, "{}", python.display());
        for report in &reports {
            assert_eq!(number(report, "untracked"), 0, "{report}");
        }
    }
}

#[test]
fn functions_of_a_killed_interpreter_are_in_its_file() {
    for python in pythons() {
        let source = "import os\nkept = []\ndef hoard():\n    for _ in range(300):\n        kept.append(bytearray(100_000))\nhoard()\nos.kill(os.getpid(), 9)\n";
        let script = Script::new("killed", source);
        script.run(&python, &["--postmortem"]);
        let file = script.out.join("program.postmortem");
        let stacks = folded(&file, &["-t", "inuse_space"]);
        // 60 samples are expected. The sum deviates by half of it with a probability below 1 in 10,000.
        let found = sum(&stacks, "<module> (killed.py);hoard (killed.py);");
        assert!((15_000_000..45_000_000).contains(&found), "{found}");
    }
}

#[test]
fn processor_time_is_that_of_functions_of_python() {
    for python in pythons() {
        let source = "import time\ndef spin():\n    x = 0\n    while time.process_time() < 1.5:\n        x += sum([y * y for y in range(100)])\ndef main():\n    spin()\nmain()\n";
        let script = Script::new("cpu", source);
        script.run(&python, &["--cpu"]);
        let stacks = folded(&script.out.join("profile.pb.gz"), &["-t", "cpu"]);
        let (all, spin) = (
            sum(&stacks, ""),
            sum(&stacks, "main (cpu.py);spin (cpu.py);"),
        );
        assert!(all >= 1_000_000_000, "{all}");
        // The start takes some time.
        assert!(
            spin * 10 >= all * 7,
            "{}: {spin} of {all}",
            python.display()
        );
    }
}

/// A program that loads Python's library while it runs.
const LOADS: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
int main(int count, char **arguments) {
    void *library = dlopen(arguments[1], RTLD_NOW | RTLD_GLOBAL);
    if (!library) { puts(dlerror()); return 1; }
    ((void (*)(void))dlsym(library, "Py_Initialize"))();
    int (*run)(const char *) = (int (*)(const char *))dlsym(library, "PyRun_SimpleString");
    return run("def hoard():\n    return [bytearray(10_000) for _ in range(1000)]\nkept = hoard()\nprint(len(kept))\n");
}"#;

#[test]
fn functions_of_a_library_that_is_loaded_later_are_found() {
    let places = [
        "/usr/lib/x86_64-linux-gnu",
        "/usr/lib/aarch64-linux-gnu",
        "/usr/lib64",
    ];
    let names = (9..15).map(|minor| format!("libpython3.{minor}.so.1.0"));
    let library = names
        .flat_map(|name| places.map(|place| Path::new(place).join(&name)))
        .find(|file| file.exists());
    let Some(library) = library else {
        plimsoll_testkit::skip!("no shared library of Python is installed");
        return;
    };
    let scene = Scene::new("python-loaded");
    let program = scene.compile("cc", "loads", LOADS, &["-ldl"]);
    let out = scene.path("out");
    let options = ["--heap-rate", "1", "--out", out.to_str().unwrap()];
    same_with(&options, program, &[library.to_str().unwrap()]);
    let stacks = folded(&out.join("heap.pb.gz"), &["-t", "alloc_space"]);
    let found = sum(&stacks, "<module> (<string>);hoard (<string>);");
    assert!((10_000_000..10_500_000).contains(&found), "{found}");
}
