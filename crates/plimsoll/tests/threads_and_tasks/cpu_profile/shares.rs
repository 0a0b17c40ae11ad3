//! Shares of functions, and sums.

use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use plimsoll::profile::cpu;
use plimsoll_testkit::child;
use plimsoll_testkit::pprof::{Profile, Sample};

use super::{
    assert_cpu, burn, burns_here, cpu_of, in_some_attempt, is_cpu, record, thread_cpu, through,
};

#[inline(never)]
fn uses_half(unit: u64) {
    burn(5 * unit);
    black_box(());
}

#[inline(never)]
fn uses_three_tenths(unit: u64) {
    burn(3 * unit);
    black_box(());
}

#[inline(never)]
fn uses_a_fifth(unit: u64) {
    burn(2 * unit);
    black_box(());
}

/// Returns units of 350 us to 1.05 ms, 700 us on average, so that neither clock ticks nor time slices are in step with the work.
fn units(seed: u64) -> impl Iterator<Item = u64> {
    let mut state = seed;
    std::iter::repeat_with(move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        350_000 + state % 700_000
    })
}

#[test]
fn functions_have_their_shares_of_cpu_time() {
    child::run("functions_have_their_shares_of_cpu_time", "", || {
        let used = AtomicU64::new(0);
        let profile = record(|| {
            thread::scope(|scope| {
                for seed in [1, 2] {
                    let used = &used;
                    scope.spawn(move || {
                        for unit in units(seed).take(300) {
                            uses_half(unit);
                            uses_three_tenths(unit);
                            uses_a_fifth(unit);
                        }
                        used.fetch_add(thread_cpu(), Ordering::Relaxed);
                    });
                }
            });
        });
        let total = cpu_of(&profile.sample);
        let expected = [
            ("uses_half", 0.5),
            ("uses_three_tenths", 0.3),
            ("uses_a_fifth", 0.2),
        ];
        for (function, share) in expected {
            let found = cpu_of(through(&profile, function)) as f64 / total as f64;
            // About 420 periods, as independent as the random units make them.
            let error = 5.0 * f64::sqrt(share * (1.0 - share) / 420.0);
            assert!((found - share).abs() < error, "{function}: {found}");
        }
        assert_cpu(total, used.load(Ordering::Relaxed), 3);
    });
}

#[test]
fn short_threads_are_sampled_in_proportion_to_their_cpu_time() {
    child::run(
        "short_threads_are_sampled_in_proportion_to_their_cpu_time",
        "",
        || {
            const THREADS: u64 = 200;
            let used = AtomicU64::new(0);
            let profile = record(|| {
                let before = thread_cpu();
                for _ in 0..THREADS {
                    let work = || {
                        burns_here(5_000_000);
                        used.fetch_add(thread_cpu(), Ordering::Relaxed);
                    };
                    thread::scope(|scope| scope.spawn(work).join().unwrap());
                }
                used.fetch_add(thread_cpu() - before, Ordering::Relaxed);
            });
            let used = used.into_inner();
            // Some threads end between the end of a period and the signal, others are in their last
            // steps when it comes: the sum is over all places.
            assert_cpu(cpu_of(&profile.sample), used, THREADS);
            let burned = cpu_of(through(&profile, "burns_here"));
            // The end of a period is noticed at the next clock tick, 4 ms later with 250 of them a
            // second. Threads of 5 ms are hit by one or two ticks.
            assert!(burned > 0, "{:?}", profile.comments());
        },
    );
}

#[test]
fn an_idle_program_has_no_samples() {
    child::run("an_idle_program_has_no_samples", "", || {
        let (sender, receiver) = std::sync::mpsc::channel::<()>();
        let waits = thread::spawn(move || receiver.recv());
        let before = super::clock(libc::CLOCK_PROCESS_CPUTIME_ID);
        let profile = record(|| thread::sleep(std::time::Duration::from_millis(200)));
        let used = super::clock(libc::CLOCK_PROCESS_CPUTIME_ID) - before;
        drop(sender);
        assert!(waits.join().unwrap().is_err());
        // What starting and stopping took.
        assert!(cpu_of(&profile.sample) <= used + 2 * super::PERIOD);
        assert_eq!(profile.period as u64, super::PERIOD);
        assert!(profile.duration_nanos >= 200_000_000);
    });
}

/// Reads a clock that needs no system call for this much CPU time.
#[inline(never)]
fn reads_the_clock(nanoseconds: u64) {
    let end = thread_cpu() + nanoseconds;
    while thread_cpu() < end {
        for _ in 0..10_000 {
            black_box(std::time::Instant::now());
        }
    }
    black_box(());
}

/// The kernel's functions in the process (the vDSO) have no frame in a file.
#[test]
fn samples_in_functions_of_the_kernel_have_their_callers_once() {
    let name = "samples_in_functions_of_the_kernel_have_their_callers_once";
    child::run(name, "", || {
        let clock = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
        let clock = std::fs::read_to_string(clock).unwrap_or_default();
        let is_read_without_call = ["tsc", "kvm-clock", "arch_sys_counter"].contains(&clock.trim());
        in_some_attempt(|| {
            let profile = record(|| reads_the_clock(300_000_000));
            let samples = through(&profile, "reads_the_clock");
            for &sample in &samples {
                let names = profile.names(sample);
                for function in ["::reads_the_clock", "Instant::now"] {
                    let calls = names.iter().filter(|name| name.ends_with(function));
                    assert!(calls.count() <= 1, "{names:?}");
                }
            }
            let is_in_kernel = |sample: &&&Sample| {
                let leaf = &profile.location[sample.location_id[0] as usize - 1];
                profile.mapping.iter().any(|mapping| {
                    mapping.id == leaf.mapping_id && profile.text(mapping.filename).contains("vdso")
                })
            };
            let in_kernel = samples.iter().filter(is_in_kernel).count();
            is_cpu(cpu_of(samples), 300_000_000, 1) && (in_kernel > 0 || !is_read_without_call)
        });
    });
}

#[test]
fn one_profile_runs_at_a_time() {
    child::run("one_profile_runs_at_a_time", "", || {
        assert!(cpu::stop().is_none());
        cpu::start().unwrap();
        assert_eq!(cpu::start(), Err(cpu::StartError::InUse));
        assert!(cpu::stop().is_some());
        assert!(cpu::stop().is_none());
        cpu::start().unwrap();
        assert!(cpu::stop().is_some());
    });
}

#[test]
fn continuous_samples_add_up_to_the_cpu_time_of_the_process() {
    child::run(
        "continuous_samples_add_up_to_the_cpu_time_of_the_process",
        "",
        || {
            assert_eq!(cpu::set_rate(250), Ok(0));
            let burned = |profile: &Profile| cpu_of(through(profile, "burns_here"));
            let so_far = || {
                let continuous = plimsoll::profile::lookup("profile").unwrap();
                burned(&super::decoded(&continuous.snapshot()))
            };
            let mut end = 0;
            in_some_attempt(|| {
                let before = so_far();
                burns_here(400_000_000);
                // A profile in between is a part of these.
                let part = record(|| burns_here(100_000_000));
                assert_eq!(part.period, 4_000_000);
                end = so_far();
                is_cpu(end - before, 500_000_000, 1) && is_cpu(burned(&part), 100_000_000, 1)
            });
            assert_eq!(cpu::set_rate(0), Ok(250));
            // Recorded samples stay.
            assert!(so_far() >= end);
        },
    );
}
