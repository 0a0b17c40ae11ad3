//! A damaged profile is read or refused, without panics. The fuzz target in `plimsoll-pprof`'s
//! `fuzz` tests the same for longer and with more variety.

mod proto;

use plimsoll_command::profile::{Limits, Profile, function_totals, parse};
use proto::{Writer, gzip};

/// Returns profiles of all kinds, by name.
fn seeds() -> Vec<(&'static str, Vec<u8>)> {
    let mut heap = Writer::new(&[("inuse_objects", "count"), ("inuse_space", "bytes")]);
    heap.text(7, "alloc::.*|malloc");
    heap.text(8, "alloc::kept");
    heap.text(14, "inuse_space");
    heap.number(9, 1_700_000_000_000_000_000);
    heap.number(12, 524_288);
    let comment = heap.string("a comment");
    heap.number(13, comment);
    heap.labelled(
        &[
            "malloc",
            "alloc::vec@3",
            "inlined@7|outer=src/other.rs@9",
            "main@1",
        ],
        &[2, 100],
        &[("tenant", "acme")],
        &[("bytes", 50, "bytes")],
    );
    heap.sample(&["outer=src/other.rs@9", "main@1"], &[1, 10]);
    heap.sample(&["0x99", "main@2"], &[-1, -4]);
    let mut sparse = Writer::new(&[("delay", "nanoseconds")]);
    sparse.ids = (0x7fff_ffff_ffff_0000, 17);
    sparse.sample(&["f", "g|h", "f"], &[i64::MIN]);
    sparse.sample(&[], &[i64::MAX]);
    let jemalloc = "heap_v2/524288\n  t*: 15: 532768 [1: 1]\n@ 0x401235 0x7f0000000101\n\
        \x20 t*: 13: 8480 [1: 2]\n  t0: 13: 8480 [1: 2]\n@ 0x401300\n  t*: 1: 524288 [0: 0]\n\n\
        MAPPED_LIBRARIES:\n00400000-00500000 r-xp 00002000 08:01 1234 /usr/bin/program\n";
    let (heap, sparse) = (heap.finish(), sparse.finish());
    vec![
        ("gzip", gzip(&heap)),
        ("heap", heap),
        ("sparse", sparse),
        ("jemalloc", jemalloc.as_bytes().to_vec()),
    ]
}

/// Checks the invariants of every profile that is read.
fn check(profile: &Profile) {
    let types = profile.sample_types().len();
    for sample in profile.samples() {
        assert_eq!(sample.values().count(), types);
        for location in sample.locations() {
            for line in profile.location(location).lines {
                line.function
                    .map(|function| profile.function_name(function));
            }
        }
        for label in sample.labels() {
            let _ = (profile.string(label.key), profile.string(label.unit));
        }
    }
    if let Ok(totals) = function_totals(profile, profile.default_sample_type()) {
        assert!(
            totals
                .functions
                .iter()
                .all(|function| !function.name.is_empty())
        );
    }
}

struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % bound as u64) as usize
    }
}

/// Checks the seeds. Writes them to the directory `PLIMSOLL_SEEDS`, from which the fuzz target
/// starts.
#[test]
fn seeds_are_profiles() {
    let directory = std::env::var_os("PLIMSOLL_SEEDS").map(std::path::PathBuf::from);
    for (name, bytes) in seeds() {
        check(&parse(&bytes, Limits::default()).unwrap());
        if let Some(directory) = &directory {
            std::fs::create_dir_all(directory).unwrap();
            std::fs::write(directory.join(name), bytes).unwrap();
        }
    }
}

#[test]
fn a_changed_profile_is_read_or_refused() {
    let limits = Limits {
        read_bytes: 1 << 20,
        kept_bytes: 1 << 20,
    };
    let mut random = Random(0x2545_f491_4f6c_dd1d);
    let (mut read, mut refused) = (0, 0);
    for (_, seed) in seeds() {
        for _ in 0..1500 {
            let mut bytes = seed.clone();
            for _ in 0..1 + random.below(4) {
                let at = random.below(bytes.len());
                match random.below(6) {
                    0 => bytes[at] ^= 1 << random.below(8),
                    1 => bytes[at] = random.below(256) as u8,
                    2 => bytes.truncate(at.max(1)),
                    3 => bytes.insert(at, random.below(256) as u8),
                    4 => {
                        let end = (at + random.below(40)).min(bytes.len());
                        let part = bytes[at..end].to_vec();
                        let to = random.below(bytes.len());
                        bytes.splice(to..to, part);
                    }
                    _ => {
                        let end = (at + random.below(10)).min(bytes.len());
                        bytes.splice(at..end, [0xff; 9]);
                    }
                }
            }
            match parse(&bytes, limits) {
                Ok(profile) => {
                    check(&profile);
                    read += 1;
                }
                Err(error) => {
                    let error = error.to_string();
                    assert!(!error.is_empty() && !error.contains('\n'), "{error}");
                    refused += 1;
                }
            }
        }
    }
    assert!(
        read > 200 && refused > 200,
        "{read} read, {refused} refused"
    );
}

#[test]
fn a_profile_that_is_cut_off_is_refused_or_shorter() {
    for (name, seed) in seeds() {
        let whole = parse(&seed, Limits::default()).unwrap().sample_count();
        for length in 0..seed.len() {
            match parse(&seed[..length], Limits::default()) {
                Ok(profile) => assert!(profile.sample_count() <= whole),
                Err(error) => assert!(!error.to_string().is_empty()),
            }
            if name == "gzip" {
                assert!(
                    parse(&seed[..length], Limits::default()).is_err(),
                    "{length}"
                );
            }
        }
    }
}
