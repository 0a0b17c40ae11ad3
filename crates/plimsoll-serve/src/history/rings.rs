//! Readings at three intervals, each in a ring of limited length.

use std::collections::VecDeque;

use super::series::{HIGHEST, SERIES};

/// The interval of a ring in seconds, and the number of its readings.
pub(super) const RINGS: [(u64, usize); 3] = [(1, 600), (10, 1080), (60, 2880)];

/// The bytes that full rings take.
pub(super) const BYTES: usize = {
    let [(_, seconds), (_, tens), (_, minutes)] = RINGS;
    (seconds + tens + minutes) * size_of::<Point>()
};

/// A reading. Values that do not exist are NaN.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Point {
    /// Nanoseconds since the system started.
    pub(super) at: u64,
    pub(super) values: [f64; SERIES.len()],
}

/// The readings of one interval.
#[derive(Debug)]
struct Ring {
    interval_ns: u64,
    capacity: usize,
    points: VecDeque<Point>,
    /// The readings of the interval that has not ended yet, in one.
    unfinished: Option<Point>,
}

/// All rings.
#[derive(Debug)]
pub(super) struct Rings([Ring; RINGS.len()]);

impl Rings {
    /// Returns empty rings that take at most `bytes`, shorter ones if [`BYTES`] is more.
    pub(super) fn new(bytes: usize) -> Self {
        Self(RINGS.map(|(seconds, points)| Ring {
            interval_ns: seconds * 1_000_000_000,
            capacity: points * bytes.min(BYTES) / BYTES,
            points: VecDeque::new(),
            unfinished: None,
        }))
    }

    /// Adds a reading that is later than all others. Calls `kept` with the number of each ring that
    /// keeps a reading now, and with that reading.
    pub(super) fn add(&mut self, point: Point, mut kept: impl FnMut(usize, &Point)) {
        for (number, ring) in self.0.iter_mut().enumerate() {
            if let Some(point) = ring.add(point) {
                kept(number, &point);
            }
        }
    }

    /// Returns the intervals in seconds, each with its readings, oldest first.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u64, impl Iterator<Item = &Point>)> {
        self.0
            .iter()
            .map(|ring| (ring.interval_ns / 1_000_000_000, ring.points.iter()))
    }
}

impl Ring {
    /// Adds a reading. Returns the reading that the ring keeps, if it is complete now.
    fn add(&mut self, point: Point) -> Option<Point> {
        // Readings of the shortest interval are not combined: their distance varies a little.
        let finished = if self.interval_ns == RINGS[0].0 * 1_000_000_000 {
            Some(point)
        } else {
            match &mut self.unfinished {
                Some(unfinished)
                    if unfinished.at / self.interval_ns == point.at / self.interval_ns =>
                {
                    unfinished.combine(point);
                    None
                }
                unfinished => unfinished.replace(point),
            }
        };
        self.keep(finished?);
        finished
    }

    fn keep(&mut self, point: Point) {
        if self.points.len() >= self.capacity {
            self.points.pop_front();
        }
        if self.capacity > 0 {
            self.points.push_back(point);
        }
    }
}

impl Point {
    /// Adds a later reading of the same interval: the highest value of the series of which the
    /// highest counts, and the latest of all others.
    fn combine(&mut self, later: Self) {
        let highest = HIGHEST.map(|series| self.values[series].max(later.values[series]));
        *self = later;
        for (series, value) in HIGHEST.into_iter().zip(highest) {
            self.values[series] = value;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn point(second: u64, heap: f64, allocated: f64) -> Point {
        let mut values = [f64::NAN; SERIES.len()];
        values[0] = heap;
        values[2] = allocated;
        Point {
            at: second * SECOND,
            values,
        }
    }

    fn lengths(rings: &Rings) -> Vec<(u64, usize)> {
        rings
            .iter()
            .map(|(seconds, points)| (seconds, points.count()))
            .collect()
    }

    #[test]
    fn rings_reach_back_ten_minutes_three_hours_and_two_days() {
        let mut rings = Rings::new(usize::MAX);
        for second in 0..60 * 3000 {
            rings.add(point(second, 0.0, 0.0), |_, _| {});
        }
        assert_eq!(lengths(&rings), [(1, 600), (10, 1080), (60, 2880)]);
        let oldest: Vec<u64> = rings
            .iter()
            .map(|(_, mut points)| points.next().expect("full").at / SECOND)
            .collect();
        let last = 60 * 3000 - 1;
        // The reading of an interval has the time of its last second.
        assert_eq!(oldest, [last - 599, last - 10 * 1080, last - 60 * 2880]);
    }

    #[test]
    fn an_interval_has_the_highest_heap_and_the_latest_sums() {
        let mut rings = Rings::new(usize::MAX);
        for (second, heap) in [(10, 5.0), (12, 90.0), (19, 7.0), (20, 1.0)] {
            rings.add(point(second, heap, second as f64), |_, _| {});
        }
        let tens: Vec<Point> = rings.iter().nth(1).unwrap().1.copied().collect();
        assert_eq!(tens.len(), 1);
        assert_eq!((tens[0].values[0], tens[0].values[2]), (90.0, 19.0));
        assert_eq!(tens[0].at, 19 * SECOND);
    }

    #[test]
    fn fewer_bytes_make_shorter_rings() {
        let mut rings = Rings::new(BYTES / 10);
        let mut none = Rings::new(0);
        for second in 0..60 * 300 {
            rings.add(point(second, 0.0, 0.0), |_, _| {});
            none.add(point(second, 0.0, 0.0), |_, _| {});
        }
        assert_eq!(lengths(&rings), [(1, 60), (10, 108), (60, 288)]);
        assert_eq!(lengths(&none), [(1, 0), (10, 0), (60, 0)]);
    }
}
