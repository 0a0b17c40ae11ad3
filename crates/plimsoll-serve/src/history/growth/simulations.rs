//! Simulated sites: how often they are reported, and how soon.
//!
//! Time is counted in readings, memory in samples. Seeds are fixed, so that each run of a test has the same
//! result.

use super::levels::{JUDGED, Levels};
use super::verdict::{Circumstances, Slot, Verdict, judge};

/// Six hours of readings.
const RUN: u64 = 2160;

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number from 0 to 1.
    fn uniform(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    fn normal(&mut self) -> f64 {
        let (one, other) = (self.uniform().max(1e-300), self.uniform());
        (-2.0 * one.ln()).sqrt() * (std::f64::consts::TAU * other).cos()
    }

    fn poisson(&mut self, mean: f64) -> f64 {
        if mean > 50.0 {
            return (mean + mean.sqrt() * self.normal()).round().max(0.0);
        }
        let limit = (-mean).exp();
        let mut count = 0.0;
        let mut product = self.uniform();
        while product > limit {
            count += 1.0;
            product *= self.uniform();
        }
        count
    }
}

/// Blocks that come at random in bursts and live for exponential times. Some are never freed.
#[derive(Clone, Copy)]
struct Population {
    /// The mean number of bursts in use.
    bursts: f64,
    /// The blocks of a burst.
    burst: f64,
    /// The mean lifetime.
    lifetime: f64,
    /// Blocks that are never freed, for each reading.
    leaked: f64,
    /// The reading at which that begins.
    leaks_from: u64,
    is_empty_at_first: bool,
}

const STATIONARY: Population = Population {
    bursts: 100.0,
    burst: 1.0,
    lifetime: 1.0,
    leaked: 0.0,
    leaks_from: 0,
    is_empty_at_first: false,
};

impl Population {
    fn readings(self, random: &mut Random) -> impl FnMut(u64) -> Slot {
        let mut live = match self.is_empty_at_first {
            true => 0.0,
            false => self.burst * random.poisson(self.bursts),
        };
        let mut leaked = 0.0;
        move |reading| {
            let mallocs = self.burst * random.poisson(self.bursts / self.lifetime);
            let ending = live / self.burst * -(-1.0 / self.lifetime).exp_m1();
            let frees = (self.burst * random.poisson(ending)).min(live);
            let more = match reading >= self.leaks_from {
                true => random.poisson(self.leaked),
                false => 0.0,
            };
            live += mallocs - frees;
            leaked += more;
            Slot {
                bytes: (live + leaked) as f32,
                mallocs: (mallocs + more) as f32,
                frees: frees as f32,
            }
        }
    }
}

/// Adds readings, and judges at each twelfth. Returns the first reading at which the site is reported.
fn first_report(readings: u64, sites: usize, mut site: impl FnMut(u64) -> Slot) -> Option<u64> {
    let mut levels = Levels::new(0.0);
    (0..readings).find(|&reading| {
        levels.add(reading, site(reading));
        let windows = (0..JUDGED).filter_map(|level| levels.window(reading + 1, level));
        reading % 12 == 11
            && windows.into_iter().any(|window| {
                let about = Circumstances {
                    prior_length: window.prior_length,
                    is_long: window.is_long,
                    bytes_of_sample: 1.0,
                    is_sampled: true,
                    tests: sites * JUDGED,
                };
                judge(&window.slots, &window.prior, about).verdict == Verdict::Leaking
            })
    })
}

/// Returns the first reports of so many runs.
fn reports(runs: u64, readings: u64, sites: usize, population: Population) -> Vec<u64> {
    let runs = 0..runs;
    let reports = runs.filter_map(|run| {
        let mut random = Random(run * 7919 + 13);
        first_report(readings, sites, population.readings(&mut random))
    });
    reports.collect()
}

/// Returns the false reports in so many runs of each of eight kinds of stationary sites.
fn false_reports(runs: u64) -> usize {
    let mut all = 0;
    for (bursts, burst) in [(100.0, 1.0), (10.0, 50.0)] {
        for lifetime in [1.0, 10.0, 100.0, 1000.0] {
            let population = Population {
                bursts,
                burst,
                lifetime,
                ..STATIONARY
            };
            let found = reports(runs, RUN, 1, population).len();
            println!("{bursts} bursts of {burst}, lifetime {lifetime}: {found} of {runs}");
            all += found;
        }
    }
    all
}

/// With a true rate of 1 in 8,000, two or more of 800 have a probability of 1 in 200; with one of 1 in
/// 100, one or none has one of 1 in 300.
#[test]
#[cfg_attr(plimsoll_sanitized, ignore = "arithmetic on one thread")]
fn stationary_sites_are_not_reported() {
    let found = false_reports(100);
    assert!(found <= 1, "{found} of 800");
}

#[test]
#[ignore = "takes a minute"]
fn at_most_one_in_a_thousand_stationary_sites_is_reported() {
    let found = false_reports(1000);
    assert!(found <= 8, "{found} of 8,000");
}

/// Beside 100 other sites.
#[test]
#[cfg_attr(plimsoll_sanitized, ignore = "arithmetic on one thread")]
fn growth_by_three_times_the_noise_is_found() {
    for (bursts, readings) in [(100.0, 512), (10_000.0, 512), (100.0, 2048)] {
        let population = Population {
            bursts,
            leaked: 3.0 * f64::sqrt(bursts) / readings as f64,
            ..STATIONARY
        };
        let found = reports(40, 8 * readings, 100, population).len();
        println!("{bursts} blocks, three deviations in {readings} readings: {found} of 40");
        assert!(found >= 28, "{found} of 40");
    }
}

#[test]
#[cfg_attr(plimsoll_sanitized, ignore = "arithmetic on one thread")]
fn a_leak_that_begins_late_is_found() {
    let population = Population {
        leaked: 3.0 * 10.0 / 128.0,
        leaks_from: 2000,
        ..STATIONARY
    };
    let found = reports(100, 4000, 100, population);
    assert!(found.len() >= 95, "{found:?}");
    assert!(found.iter().all(|&reading| reading > 2000), "{found:?}");
}

#[test]
#[cfg_attr(plimsoll_sanitized, ignore = "arithmetic on one thread")]
fn a_site_that_only_leaks_is_found() {
    let population = Population {
        bursts: 0.0,
        leaked: 0.1,
        ..STATIONARY
    };
    assert!(reports(100, 4000, 100, population).len() >= 95);
}

/// A cache of 10,000 blocks that is filled once: exponentially, as by random keys.
#[test]
#[cfg_attr(plimsoll_sanitized, ignore = "arithmetic on one thread")]
fn a_cache_that_warms_up_within_minutes_is_not_reported() {
    let population = Population {
        bursts: 10_000.0,
        lifetime: 10.0,
        is_empty_at_first: true,
        ..STATIONARY
    };
    let found = reports(200, RUN, 100, population);
    assert!(found.is_empty(), "{found:?}");
}

/// After four periods, a sawtooth is never reported.
#[test]
#[cfg_attr(plimsoll_sanitized, ignore = "arithmetic on one thread")]
fn a_sawtooth_is_not_reported_once_it_fell() {
    for period in [20.0, 100.0, 300.0] {
        for run in 0..100 {
            let mut random = Random(run);
            let mut filled = random.uniform() * period;
            let mut length = period;
            let sawtooth = |_| {
                filled += 1.0;
                let mut slot = Slot {
                    mallocs: 10.0,
                    ..Slot::default()
                };
                if filled >= length {
                    slot.frees = (10.0 * filled) as f32;
                    filled = 0.0;
                    length = period * (0.9 + 0.2 * random.uniform());
                }
                slot.bytes = (10.0 * filled) as f32;
                slot
            };
            let report = first_report(RUN, 100, sawtooth);
            assert!(
                report.is_none_or(|at| at as f64 <= 4.0 * period),
                "{period} {run}: {report:?}"
            );
        }
    }
}
