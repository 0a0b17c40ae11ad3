//! The figures that criterion reports, in its files.

use std::collections::HashMap;
use std::hint::black_box;
use std::panic::catch_unwind;
use std::path::PathBuf;
use std::time::Duration;

use criterion::measurement::Measurement;
use criterion::{BatchSize, Bencher, Criterion};
use plimsoll_criterion::{AllocatedBytes, Allocations, MaxBytes};

#[global_allocator]
static ALLOC: plimsoll::Alloc = plimsoll::Alloc::system();

/// Allocates in several ways, and returns a block.
fn work() -> Vec<u64> {
    drop(black_box(vec![0u8; 1001]));
    let mut map = HashMap::new();
    map.extend((0..100).map(|n| (n, n.to_string())));
    (0..100)
        .filter(|n| map.contains_key(n))
        .map(|n| n as u64)
        .collect()
}

/// Runs a benchmark, and returns the mean that criterion reports, with its error.
fn reported<M: Measurement + 'static>(
    measurement: M,
    name: &str,
    bench: impl FnMut(&mut Bencher<'_, M>),
) -> (f64, f64) {
    let directory: PathBuf =
        std::env::temp_dir().join(format!("plimsoll-criterion-{}", std::process::id()));
    let mut criterion = Criterion::default()
        .with_measurement(measurement)
        .output_directory(&directory)
        .without_plots()
        .sample_size(10)
        .nresamples(1000)
        .warm_up_time(Duration::from_millis(5))
        .measurement_time(Duration::from_millis(5));
    criterion.bench_function(name, bench);
    let file = directory.join(name).join("new/estimates.json");
    let text = std::fs::read_to_string(file).unwrap();
    std::fs::remove_dir_all(directory.join(name)).unwrap();
    let estimates: serde_json::Value = serde_json::from_str(&text).unwrap();
    let mean = &estimates["mean"];
    (
        mean["point_estimate"].as_f64().unwrap(),
        mean["standard_error"].as_f64().unwrap(),
    )
}

#[test]
fn a_benchmark_reports_the_figures_of_measure() {
    work();
    let measured = plimsoll::measure(work);
    let [allocations, bytes, max] = [
        measured.allocations,
        measured.allocated_bytes,
        measured.max_bytes,
    ]
    .map(|it| it as f64);
    assert!(
        allocations > 100.0 && bytes > max && max > 1000.0,
        "{measured}"
    );

    assert_eq!(
        reported(Allocations, "allocations", |b| b.iter(work)),
        (allocations, 0.0)
    );
    assert_eq!(
        reported(AllocatedBytes, "bytes", |b| b.iter(work)),
        (bytes, 0.0)
    );
    let maximum = reported(MaxBytes, "maximum", |b| {
        b.iter_custom(|times| MaxBytes::sum(times, work))
    });
    assert_eq!(maximum, (max, 0.0));
}

#[test]
fn the_input_of_a_batch_does_not_count() {
    let batched = reported(Allocations, "batched", |b| {
        b.iter_batched(
            || vec![1; 100],
            |input| (input, Box::new(7)),
            BatchSize::SmallInput,
        )
    });
    assert_eq!(batched, (1.0, 0.0));
}

/// As the documentation warns: criterion takes zeros for an error.
#[test]
fn criterion_reports_nothing_for_a_benchmark_without_allocations() {
    let refused = catch_unwind(|| reported(Allocations, "none", |b| b.iter(|| black_box(7) + 1)));
    refused.expect_err("the file does not exist");
}

#[test]
fn a_maximum_is_not_divided_by_the_number_of_iterations() {
    let refused = catch_unwind(|| reported(MaxBytes, "divided", |b| b.iter(work)));
    let refused = refused.expect_err("it panics");
    let message = refused.downcast_ref::<&str>().unwrap();
    assert!(message.contains("use `bencher.iter_custom"), "{message}");
}
