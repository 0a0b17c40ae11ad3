//! `plimsoll run --diff` and `plimsoll diff` of runs: equal runs do not differ, one extra allocation is
//! found and named, and damaged records are refused by name.

mod figures;
mod records;

use std::path::PathBuf;
use std::process::{Command, Output};

use serde_json::Value;

use crate::scene::{PLIMSOLL, Scene, run};

/// Blocks of 100,000 bytes at one site, of 64 bytes at another, and freed ones at a third.
pub const PROGRAM: &str = r#"
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
static void *kept[2000];
__attribute__((noinline)) char *hoard(size_t size) { char *block = malloc(size); memset(block, 1, size); return block + 1 - 1; }
__attribute__((noinline)) void large(int blocks) { for (int i = 0; i < blocks; i++) kept[i] = hoard(100000); kept[1999] = 0; }
__attribute__((noinline)) void small(int blocks) { for (int i = 0; i < blocks; i++) kept[1000 + i] = hoard(64); kept[1999] = 0; }
int main(int count, char **numbers) {
    int children = count > 3 ? atoi(numbers[3]) : 0;
    for (int i = 0; i < children; i++) {
        if (!fork()) { small(atoi(numbers[2])); _exit(0); }
        wait(0);
    }
    large(atoi(numbers[1]));
    small(atoi(numbers[2]));
    return 0;
}
"#;

/// A compiled program, and the directories of its runs.
pub struct Runs {
    pub scene: Scene,
    pub program: PathBuf,
}

impl Runs {
    pub fn new(name: &str) -> Self {
        let scene = Scene::new(name);
        let program = scene.c("program", PROGRAM);
        Self { scene, program }
    }

    /// Keeps a run in a directory.
    pub fn keep(&self, name: &str, options: &[&str], arguments: &[&str]) -> String {
        let directory = self.scene.path(name).to_str().unwrap().to_owned();
        let options = [&["--quiet", "--out", &directory], options].concat();
        let output = run(&options, &self.program, arguments).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        assert!(output.stderr.is_empty(), "{output:?}");
        directory
    }

    pub fn path(&self, name: &str) -> String {
        self.scene.path(name).to_str().unwrap().to_owned()
    }
}

pub const EXACT: [&str; 2] = ["--heap-rate", "1"];

pub fn diff(arguments: &[&str]) -> Output {
    let command = &mut Command::new(PLIMSOLL);
    command.arg("diff").args(arguments).output().unwrap()
}

/// Returns standard output, standard error and the exit status.
pub fn parts(output: &Output) -> (String, String, i32) {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    (
        text(&output.stdout),
        text(&output.stderr),
        output.status.code().unwrap(),
    )
}

pub fn comparison(output: &Output) -> Value {
    let value: Value = serde_json::from_slice(&output.stdout).unwrap();
    value["comparison"].clone()
}

pub fn named<'a>(list: &'a Value, member: &str, name: &str) -> &'a Value {
    let all = list.as_array().unwrap();
    let found = all.iter().find(|of| of[member] == name);
    found.unwrap_or_else(|| panic!("{name} in {list}"))
}
