//! Profiles beyond a sensible size are shown in bounded time and memory.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Instant;

use crate::proto::Message;

/// A file that is removed on drop.
struct Temporary(PathBuf);

impl Temporary {
    fn new(name: &str) -> Self {
        let name = format!("plimsoll-large-{}-{name}", std::process::id());
        Self(std::env::temp_dir().join(name))
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// A generator of numbers that are the same in every run.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

const FUNCTIONS: u64 = 5000;

/// Writes a profile of four values whose stacks share callers, as those of programs do. Returns the
/// sum of the last value.
fn write_profile(to: &mut dyn Write, samples: u64, depth: u64) -> i64 {
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let mut sum = 0;
    for index in 0..4 {
        let value_type = Message::default().number(1, 1 + index).number(2, 5);
        to.write_all(&Message::default().message(1, &value_type).0)
            .unwrap();
    }
    let mut stack: Vec<i64> = Vec::new();
    for _ in 0..samples {
        // The next stack leaves the previous one at some depth.
        stack.truncate(random.below(depth) as usize);
        while (stack.len() as u64) < depth {
            stack.push(1 + random.below(FUNCTIONS) as i64);
        }
        let bytes = 1 + random.below(1 << 20) as i64;
        sum += bytes;
        let sample = Message::default()
            .packed(1, stack.iter().rev().copied())
            .packed(2, [3, 3 * bytes, 1, bytes]);
        to.write_all(&Message::default().message(2, &sample).0)
            .unwrap();
    }
    for id in 1..=FUNCTIONS as i64 {
        let line = Message::default().number(1, id).number(2, 7);
        let location = Message::default().number(1, id).message(4, &line);
        let function = Message::default().number(1, id).number(2, 5 + id);
        let both = Message::default()
            .message(4, &location)
            .message(5, &function);
        to.write_all(&both.0).unwrap();
    }
    let names = [
        "",
        "alloc_objects",
        "alloc_space",
        "inuse_objects",
        "inuse_space",
        "bytes",
    ];
    let functions = (1..=FUNCTIONS).map(|id| format!("program::module{}::function{id}", id % 40));
    for name in names.into_iter().map(str::to_owned).chain(functions) {
        to.write_all(&Message::default().bytes(6, name.as_bytes()).0)
            .unwrap();
    }
    sum
}

/// Runs the command with an address space of `mib` MiB.
fn within(mib: u64, arguments: &[&str], file: &Path) -> Output {
    Command::new("sh")
        .arg("-c")
        .arg(format!("ulimit -v {}; exec \"$@\"", mib << 10))
        .arg("sh")
        .arg(env!("CARGO_BIN_EXE_plimsoll"))
        .args(["report", "--unit", "bytes"])
        .args(arguments)
        .arg(file)
        .output()
        .unwrap()
}

fn total_of(output: &Output) -> String {
    let said = String::from_utf8_lossy(&output.stdout);
    let complained = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{complained}");
    let line = said.lines().find(|line| line.starts_with("Showing nodes"));
    let line = line.unwrap_or_else(|| panic!("{said}"));
    line.split_whitespace().nth_back(1).unwrap().to_owned()
}

fn check(samples: u64, depth: u64, mib: u64, views: &[&[&str]]) {
    let plain = Temporary::new(&format!("{samples}-{depth}"));
    let mut to = BufWriter::new(File::create(&plain.0).unwrap());
    let sum = write_profile(&mut to, samples, depth);
    to.flush().unwrap();
    let compressed = Temporary::new(&format!("{samples}-{depth}.gz"));
    let to = File::create(&compressed.0).unwrap();
    let mut to = flate2::write::GzEncoder::new(to, flate2::Compression::fast());
    write_profile(&mut to, samples, depth);
    to.finish().unwrap();
    for file in [&plain.0, &compressed.0] {
        let began = Instant::now();
        let output = within(mib, &["--top", "-n", "10"], file);
        assert_eq!(total_of(&output), format!("{sum}bytes"));
        let bytes = file.metadata().unwrap().len();
        println!("{samples} samples, {bytes} bytes: {:?}", began.elapsed());
    }
    for view in views {
        let began = Instant::now();
        let output = within(mib, view, &plain.0);
        println!("{view:?}: {:?}", began.elapsed());
        let complained = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{view:?}: {complained}");
        assert!(!output.stdout.is_empty());
    }
}

#[test]
fn a_large_profile_takes_little_more_memory_than_its_bytes() {
    // 15 MB of profile. The threads' stacks count as address space.
    check(100_000, 60, 200, &[&["--tree"], &["--html", "-"]]);
}

#[test]
#[ignore = "takes a while if it is not optimized"]
fn fifty_megabytes_take_less_than_500() {
    let views: &[&[&str]] = &[
        &["--tree"],
        &["--folded"],
        &["--html", "-"],
        &["--focus", "9"],
    ];
    check(370_000, 60, 500, views);
}

#[test]
#[ignore = "takes a while if it is not optimized"]
fn fifty_megabytes_that_are_compressed_take_less_than_500() {
    check(740_000, 60, 500, &[]);
}

#[test]
#[ignore = "takes a while if it is not optimized"]
fn ten_million_samples_are_read() {
    check(10_000_000, 8, 1200, &[]);
}
