//! A program of Plimsoll writes its heap profile with names and without. It is then stripped and removed,
//! and `symbolize` completes the profile from its debug file.

use std::collections::BTreeMap;
use std::fs::File;
use std::hint::black_box;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use plimsoll::profile::{self, Detail, Format};
use plimsoll_testkit::child;
use plimsoll_testkit::pprof::{Profile, Sample};

use crate::command::Directory;
use crate::scene::{named, reported, symbolize};

/// The variable that names the directory of the child's profiles.
const DIRECTORY: &str = "PLIMSOLL_TEST_SYMBOLIZE";

/// A function on the stacks that are compared.
const MARK: &str = "allocate_for_the_comparison";

/// A block of several types.
type Block = Box<[u64; 3]>;

#[inline(never)]
fn allocate_for_the_comparison() -> Vec<Block> {
    (0..100)
        .map(|number| Box::new(black_box([number; 3])))
        .collect()
}

/// Writes the profiles.
fn write_profiles(directory: &Path) {
    profile::set_heap_rate(1);
    let kept = allocate_for_the_comparison();
    profile::set_heap_rate(0);
    let heap = profile::lookup("heap").unwrap();
    for (name, detail) in [("full", Detail::Full), ("addresses", Detail::Addresses)] {
        let mut file = File::create(directory.join(name)).unwrap();
        heap.write_with(&mut file, Format::Pprof, detail).unwrap();
    }
    assert_eq!(kept.len(), 100);
}

/// A sample without addresses: the names, files and lines of its stack, and its labels.
type Place = (Vec<(String, String, i64, i64)>, Vec<(String, String, i64)>);

/// Returns the values of the samples that are compared.
fn values(profile: &Profile) -> BTreeMap<Place, Vec<i64>> {
    let mut values: BTreeMap<Place, Vec<i64>> = BTreeMap::new();
    let is_marked = |sample: &&Sample| profile.names(sample).iter().any(|name| name.contains(MARK));
    for sample in profile.sample.iter().filter(is_marked) {
        let lines = profile.lines(sample).into_iter();
        let lines =
            lines.map(|(name, file, line, start)| (name.to_owned(), file.to_owned(), line, start));
        let labels = sample.label.iter().map(|label| {
            (
                profile.text(label.key).to_owned(),
                profile.text(label.str).to_owned(),
                label.num,
            )
        });
        let mut labels: Vec<_> = labels.collect();
        labels.sort();
        let sums = values.entry((lines.collect(), labels)).or_default();
        sums.resize(sample.value.len(), 0);
        for (sum, value) in sums.iter_mut().zip(&sample.value) {
            *sum += value;
        }
    }
    values
}

#[test]
fn a_completed_profile_equals_the_one_that_was_named_in_the_process() {
    if child::is_child() {
        let directory = std::env::var_os(DIRECTORY).expect("a directory");
        return write_profiles(directory.as_ref());
    }
    let directory = Directory::new("symbolize-moved");
    let test = child::command(
        "a_completed_profile_equals_the_one_that_was_named_in_the_process",
        "",
    );
    let program = directory.0.join("program");
    child::copy_program(Path::new(test.get_program()), &program);
    let status = Command::new(&program)
        .args(test.get_args())
        .envs(
            test.get_envs()
                .filter_map(|(key, value)| Some((key, value?))),
        )
        .env(DIRECTORY, &directory.0)
        .stdout(std::process::Stdio::null())
        .status()
        .unwrap();
    assert!(status.success());
    let full = Profile::read(&std::fs::read(directory.0.join("full")).unwrap());
    let debug = directory.path("program.debug");
    let objcopy = |options: &[&str]| {
        let status = Command::new("objcopy").args(options).status();
        assert!(status.expect("binutils is installed").success());
    };
    objcopy(&["--only-keep-debug", program.to_str().unwrap(), &debug]);
    let stripped = directory.path("stripped");
    objcopy(&[
        "--strip-all",
        "--add-gnu-debuglink",
        &debug,
        program.to_str().unwrap(),
        &stripped,
    ]);
    std::fs::remove_file(&program).unwrap();
    let expected = values(&full);
    assert!(!expected.is_empty());
    let addresses = directory.path("addresses");
    let equals = |arguments: &[&str]| {
        reported(&symbolize(&directory, &addresses, arguments, &[]));
        let is_equal = values(&named(&directory)) == expected;
        assert!(is_equal, "{arguments:?}");
    };
    // The file with debug information alone, also among others.
    equals(&["--debug-file", &debug]);
    equals(&["--debug-file", &stripped, "--debug-file", &debug]);
    // The stripped program at its path, with a link to the file beside it.
    std::fs::copy(&stripped, &program).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    equals(&[]);
    std::fs::create_dir(directory.path(".debug")).unwrap();
    std::fs::rename(&debug, directory.path(".debug/program.debug")).unwrap();
    equals(&[]);
    // Without the file, the addresses have no names.
    std::fs::remove_file(directory.path(".debug/program.debug")).unwrap();
    reported(&symbolize(&directory, &addresses, &[], &[]));
    assert_eq!(values(&named(&directory)), BTreeMap::new());
}
