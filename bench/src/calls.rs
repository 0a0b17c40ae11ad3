//! The times of single calls.

use std::time::{Duration, Instant};

use crate::clock;
use crate::quantiles::quantile;

/// Times in microseconds.
pub struct Times {
    /// The calling thread's CPU time of each call.
    pub cpu: Vec<f64>,
    /// The elapsed time of each call.
    pub wall: Vec<f64>,
}

impl Times {
    /// Times this many calls, or as many as take `longest` each in the mean.
    pub fn measure(calls: usize, longest: Duration, mut call: impl FnMut()) -> Self {
        let (began, longest) = (Instant::now(), longest * calls as u32);
        let (mut cpu, mut wall) = (Vec::with_capacity(calls), Vec::with_capacity(calls));
        while cpu.len() < calls && (began.elapsed() < longest || cpu.is_empty()) {
            let (cpu_before, wall_before) = (clock::thread(), clock::wall());
            call();
            let wall_after = clock::wall();
            cpu.push((clock::thread() - cpu_before) as f64 / 1000.0);
            wall.push((wall_after - wall_before) as f64 / 1000.0);
        }
        Self { cpu, wall }
    }
}

/// Returns the median and the 99th percentile as cells of a table.
pub fn cells(times: &[f64]) -> String {
    let [middle, p99] = [0.5, 0.99].map(|q| quantile(times, q));
    format!("{middle:.1} | {p99:.1}")
}
