//! Checks that arbitrary bytes are either rejected or read as a profile with all of its guarantees.
//!
//! `cargo test -p plimsoll-cli --test mutate seeds` with `PLIMSOLL_SEEDS` set to
//! `crates/plimsoll-pprof/fuzz/corpus/profile` writes the seeds. Then run, in
//! `crates/plimsoll-pprof`: `cargo +nightly fuzz run profile -- -max_total_time=60`.

#![no_main]

use libfuzzer_sys::fuzz_target;
use plimsoll_pprof::{Frames, Limits, Stack, function_totals, parse};

fuzz_target!(|bytes: &[u8]| {
    let limits = Limits {
        read_bytes: 16 << 20,
        kept_bytes: 16 << 20,
    };
    let Ok(profile) = parse(bytes, limits) else {
        return;
    };
    let types = profile.sample_types().len();
    assert!(types > 0 && profile.default_sample_type() < types);
    let mut samples = 0;
    for sample in profile.samples() {
        samples += 1;
        assert_eq!(sample.values().count(), types);
        for location in sample.locations() {
            let location = profile.location(location);
            for line in location.lines {
                if let Some(function) = line.function {
                    let _ = profile.function_name(function);
                }
            }
            if let Some(mapping) = location.mapping {
                let _ = profile.string(profile.mapping(mapping).file);
            }
        }
        for label in sample.labels() {
            let _ = (profile.string(label.key), profile.string(label.text));
        }
    }
    assert_eq!(samples, profile.sample_count());
    // An invalid regular expression is an error.
    let Ok(frames) = Frames::new(&profile) else {
        return;
    };
    let mut stack = Stack::default();
    for sample in profile.samples() {
        frames.read(&sample, &mut stack);
        for &frame in stack.frames() {
            assert!((frame as usize) < frames.len());
        }
    }
    for index in 0..types.min(4) {
        let totals = function_totals(&profile, index).expect("it was read before");
        for function in &totals.functions {
            assert!(!function.name.is_empty());
        }
    }
});
