//! A profile of a library that is not on this machine. Its file with debug information is a fixture of
//! `plimsoll-symbolize`.

#![allow(dead_code, reason = "each test uses some of it")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use plimsoll_testkit::pprof::{Location, Mapping, Profile, Sample, ValueType};

use crate::command::{Directory, file_of_command};

/// The file with the debug information of the library.
pub const DEBUG: &[u8] = include_bytes!("../../../plimsoll-symbolize/tests/fixtures/split.debug");

/// The build id of the library.
pub const BUILD_ID: &str = "07070707";

/// The path at which the library was mapped.
pub const LIBRARY: &str = "/gone/split.so";

/// The address of a call in the library, from its symbol table, within several inlined calls.
const CALL: u64 = 0x3a5;

const BASE: u64 = 0x7000_0000;

/// Writes a profile with one address in the library.
pub fn profile(directory: &Directory, build_id: &str) -> String {
    profile_of(directory, &[build_id])
}

/// Writes a profile with one address in each of several copies of the library.
pub fn profile_of(directory: &Directory, build_ids: &[&str]) -> String {
    profile_at(directory, build_ids, CALL)
}

/// Writes a profile with the address at this position in each of several copies of the library.
pub fn profile_at(directory: &Directory, build_ids: &[&str], call: u64) -> String {
    let mut profile = Profile {
        string_table: ["", "space", "bytes", LIBRARY].map(str::to_owned).to_vec(),
        sample_type: vec![ValueType { name: 1, unit: 2 }],
        ..Profile::default()
    };
    for (at, build_id) in build_ids.iter().enumerate() {
        let id = at as u64 + 1;
        profile.string_table.push((*build_id).to_owned());
        let start = BASE * id;
        profile.mapping.push(Mapping {
            id,
            memory_start: start,
            memory_limit: start + 0x1000,
            filename: 3,
            build_id: profile.string_table.len() as i64 - 1,
            ..Mapping::default()
        });
        profile.location.push(Location {
            id,
            mapping_id: id,
            address: start + call,
            ..Location::default()
        });
        profile.sample.push(Sample {
            location_id: vec![id],
            value: vec![100],
            ..Sample::default()
        });
    }
    let bytes = plimsoll_command::profile::compress(&prost::Message::encode_to_vec(&profile));
    directory.file("addresses.pb.gz", &bytes)
}

/// Runs `plimsoll symbolize` with further arguments and variables, and a cache in the directory.
pub fn symbolize(
    directory: &Directory,
    profile: &str,
    arguments: &[&str],
    variables: &[(&str, &str)],
) -> Output {
    Command::new(file_of_command())
        .args(["symbolize", profile, "-o", &output(directory)])
        .args(arguments)
        .env_remove("DEBUGINFOD_URLS")
        .env("DEBUGINFOD_CACHE_PATH", directory.path("cache"))
        .envs(variables.iter().copied())
        .output()
        .unwrap()
}

/// Returns the path of the output.
pub fn output(directory: &Directory) -> String {
    directory.path("named.pb.gz")
}

/// Reads the output.
pub fn named(directory: &Directory) -> Profile {
    Profile::read(&std::fs::read(output(directory)).expect("the output exists"))
}

/// Returns what the command reported; it must have succeeded.
pub fn reported(output: &Output) -> String {
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{errors}");
    assert!(output.stdout.is_empty());
    errors
}

/// Asserts that the address of each sample has its names and lines.
pub fn assert_complete(directory: &Directory) {
    let profile = named(directory);
    for sample in &profile.sample {
        let lines = profile.lines(sample);
        let names: Vec<&str> = lines.iter().map(|line| line.0).collect();
        assert_eq!(names, INLINED, "{lines:?}");
        assert!(lines.iter().all(|line| !line.1.is_empty()), "{lines:?}");
    }
}

/// The functions at the address, innermost first.
pub const INLINED: [&str; 3] = ["innermost", "middle", "outer"];

/// Asserts that the profile is as it was.
pub fn assert_unchanged(directory: &Directory, addresses: &str) {
    let before = Profile::read(&std::fs::read(addresses).unwrap());
    let after = named(directory);
    assert!(after.function.is_empty());
    let places = |profile: &Profile| -> Vec<(u64, Vec<i64>)> {
        let samples = profile.sample.iter();
        let place = |sample: &Sample| {
            let id = sample.location_id[0] as usize;
            (profile.location[id - 1].address, sample.value.clone())
        };
        samples.map(place).collect()
    };
    assert_eq!(places(&after), places(&before));
}

/// Returns the cached file of the library.
pub fn cached(directory: &Directory) -> PathBuf {
    Path::new(&directory.path("cache"))
        .join(BUILD_ID)
        .join("debuginfo")
}
