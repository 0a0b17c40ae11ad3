//! A benchmark of allocations. The guide `docs/guides/allocation-tests.md` shows this file.

use std::hint::black_box;
use std::time::Duration;

use criterion::Criterion;
use criterion::measurement::Measurement;
use plimsoll_criterion::{AllocatedBytes, Allocations, MaxBytes};

#[global_allocator]
static ALLOC: plimsoll::Alloc = plimsoll::Alloc::system();

fn parse(text: &str) -> Vec<String> {
    text.split(' ').map(str::to_owned).collect()
}

/// These figures do not vary: few samples are enough, and each change is one.
fn figures<M: Measurement + 'static>(measurement: M) -> Criterion<M> {
    Criterion::default()
        .with_measurement(measurement)
        .sample_size(10)
        .noise_threshold(0.0)
        .warm_up_time(Duration::from_millis(10))
        .measurement_time(Duration::from_millis(10))
        .configure_from_args()
}

fn main() {
    let text = "a word ".repeat(500);
    let work = || parse(black_box(&text));

    figures(Allocations).bench_function("parse, allocations", |bencher| bencher.iter(work));
    figures(AllocatedBytes).bench_function("parse, bytes", |bencher| bencher.iter(work));
    figures(MaxBytes).bench_function("parse, maximum", |bencher| {
        bencher.iter_custom(|times| MaxBytes::sum(times, work))
    });
}
