//! Measurements beside the statistics of the process.

use plimsoll_checks::profile::read_profile;
use plimsoll_testkit::child;

/// Allocations and frees.
type Counts = (u64, u64);

/// Returns the counts of the process during a call of `work`, and those that `count` returns.
fn both(work: fn(), count: fn(fn()) -> Option<Counts>) -> [Counts; 2] {
    let before = plimsoll::heap_stats();
    let measured = count(work);
    let after = plimsoll::heap_stats();
    let of_process = (after.mallocs - before.mallocs, after.frees - before.frees);
    [of_process, measured.unwrap_or(of_process)]
}

/// The ledger counts a measured thread as before, and the fast path is open again behind it. The
/// thread of the test harness may allocate meanwhile, which is seldom.
#[test]
fn the_statistics_of_the_process_include_measured_operations() {
    child::run(
        "the_statistics_of_the_process_include_measured_operations",
        "heap_rate=4k",
        || {
            let work: fn() = || {
                for size in 1..2000 {
                    drop(std::hint::black_box(vec![0_u8; size * 37 % 70_000 + 1]));
                }
            };
            let mut alike = 0;
            for _ in 0..20 {
                let [_, plain] = both(work, |work| {
                    work();
                    None
                });
                let [of_process, measured] = both(work, |work| {
                    let measured = plimsoll::measure(work);
                    Some((measured.allocations, measured.frees))
                });
                assert_eq!(measured, (1999, 1999));
                assert!(of_process >= measured && plain >= measured);
                alike += u32::from(of_process == measured && plain == measured);
            }
            assert!(alike >= 10, "{alike} of 20");
        },
    );
}

/// Samples are taken at the same rate. 40,000 blocks of 1,000 bytes at 64 KiB: 611 samples on average,
/// and a bound of five standard deviations: an error probability of 6e-7.
#[test]
fn measured_operations_are_sampled_at_the_same_rate() {
    child::run(
        "measured_operations_are_sampled_at_the_same_rate",
        "heap_rate=64k",
        || {
            #[inline(never)]
            fn sampled() {
                drop(std::hint::black_box(Vec::<u8>::with_capacity(1000)));
            }
            let measured = plimsoll::measure(|| (0..40_000).for_each(|_| sampled()));
            assert_eq!(measured.allocations, 40_000);
            let profile = read_profile("allocs");
            let samples = profile.at("memory::measured::measured_operations_are_sampled_at_the_same_rate::{{closure}}::sampled");
            let estimated: i64 = samples.iter().map(|sample| sample.value[0]).sum();
            assert!(estimated.abs_diff(40_000) < 8_200, "{estimated}");
        },
    );
}
