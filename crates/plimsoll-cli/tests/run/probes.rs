//! A tracer reads the samples of unmodified programs at the probes of the preloaded library.

use plimsoll_cli::library::LIBRARY;
use std::collections::HashMap;
use std::fs::File;
use std::path::Path;
use std::process::Output;

use plimsoll_testkit::os::linux::usdt::{self, Event};

use crate::figures::DETERMINISTIC;
use crate::inside;
use crate::scene::{Scene, number, only, reports, run};

/// Runs a program with every allocation sampled, and compares the events with its profile and counts.
fn agree(scene: &Scene, program: &Path) {
    let out = scene.path("out");
    let options = ["--json", "--heap-rate", "1", "--out", out.to_str().unwrap()];
    let mut command = run(&options, program, &[]);
    let errors = scene.path("errors");
    command.stderr(File::create(&errors).unwrap());
    command.stdout(File::create(scene.path("printed")).unwrap());
    let is_library = |path: &Path| path.ends_with("libplimsoll_preload.so");
    let (status, events) = usdt::trace(&mut command, is_library);
    let errors = std::fs::read(errors).unwrap();
    assert!(status.success(), "{}", String::from_utf8_lossy(&errors));
    let output = Output {
        status,
        stdout: Vec::new(),
        stderr: errors,
    };
    let report = only(reports(&output).1);
    assert_eq!(events.len(), 1, "only the program has probes");
    let (mut allocs, mut all, mut live) = (0, 0, HashMap::new());
    for event in events.into_values().flatten() {
        match event {
            Event::Alloc {
                block,
                size,
                weight,
            } => {
                assert_eq!(size, weight);
                assert_eq!(live.insert(block, weight), None, "{block:#x} is in use");
                allocs += 1;
                all += weight as i64;
            }
            Event::Free { block } => {
                assert!(live.remove(&block).is_some(), "{block:#x} is not in use");
            }
        }
    }
    let file = File::open(out.join("heap.pb.gz")).unwrap();
    let profile = plimsoll_command::profile::read(file, Default::default()).unwrap();
    let sum = |name: &str| -> i64 {
        let at = profile.sample_type(name).unwrap();
        profile.samples().map(|sample| sample.value(at)).sum()
    };
    assert_eq!(number(&report, "untracked"), 0);
    assert_eq!(allocs, number(&report, "mallocs"));
    assert_eq!(all, sum("alloc_space"));
    assert_eq!(live.len() as i64, sum("inuse_objects"));
    assert_eq!(live.values().sum::<u64>() as i64, sum("inuse_space"));
    assert!(
        allocs > 3000 && live.len() > 10,
        "{allocs} and {}",
        live.len()
    );
}

#[test]
fn the_probes_of_the_library_are_the_allocations_of_a_program() {
    let scene = Scene::new("probes");
    let library = scene.path("libplimsoll_preload.so");
    std::fs::write(&library, LIBRARY.content).unwrap();
    usdt::assert_probes(&library);
    let source = DETERMINISTIC.replace("200000", "5000");
    agree(&scene, &scene.c("deterministic", &source));
}

#[test]
fn the_probes_are_the_allocations_of_an_allocator_inside_the_program() {
    let scene = Scene::new("probes-inside");
    let user = r#"
        int main() {
            void *blocks[20] = {0};
            for (int i = 0; i < 5000; i++) {
                void **at = blocks + i % 20;
                if (i % 3) *at = realloc(*at, 1 + i * 7 % 60000);
                else { free(*at); *at = malloc(1 + i % 900); }
            }
            say();
            return 0;
        }
    "#;
    agree(&scene, &inside::compile(&scene, "inside", user, &[]));
}
