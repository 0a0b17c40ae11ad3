//! Places where the number of waiters grows from one profile to the next.
//!
//! For each place and kind of wait, the old waiters are counted. In a leak that number rises and
//! never falls; waiters that are only slow disappear in the end.

use std::hash::Hash;

use plimsoll_sys::hash::HashMap;

/// The number of rises, without a fall in between, after which a place grows.
const RISES: u32 = 2;

/// The least number of readings after which a place can be reported as growing.
pub const READINGS_NEEDED: u32 = RISES + 1;

/// The maximum number of places that are remembered.
const MAX_PLACES: usize = 1 << 16;

/// Bounds on the number of waiters in a place.
#[derive(Clone, Copy, Debug, Default)]
pub struct Number {
    /// The lower bound.
    pub at_least: usize,
    /// The upper bound.
    pub at_most: usize,
}

/// The numbers of waiters in earlier profiles.
pub struct Growth<K> {
    places: Option<HashMap<K, History>>,
    readings: u64,
}

#[derive(Clone, Copy)]
struct History {
    number: Number,
    rises: u32,
}

impl History {
    /// Combines this with the next reading. The number counts as risen or fallen only if the bounds
    /// exclude that it is unchanged; otherwise the bounds are intersected.
    fn then(self, now: Number) -> Self {
        let Self { number, rises } = self;
        if now.at_least > number.at_most {
            let rises = rises.saturating_add(1);
            Self { number: now, rises }
        } else if now.at_most < number.at_least {
            Self::beginning(now)
        } else {
            let number = Number {
                at_least: now.at_least.max(number.at_least),
                at_most: now.at_most.min(number.at_most),
            };
            Self { number, rises }
        }
    }

    fn beginning(number: Number) -> Self {
        Self { number, rises: 0 }
    }
}

#[allow(
    clippy::new_without_default,
    reason = "statics need a constant function"
)]
impl<K: Hash + Eq> Growth<K> {
    /// Returns an empty record.
    pub const fn new() -> Self {
        Self {
            places: None,
            readings: 0,
        }
    }

    /// Returns the number of readings so far.
    pub fn readings(&self) -> u64 {
        self.readings
    }

    /// Adds a reading, and calls `grows` with each place whose number has risen [`RISES`] times
    /// without a fall. A place that is missing from a reading starts anew.
    pub fn observe(&mut self, counts: HashMap<K, Number>, mut grows: impl FnMut(&K, usize)) {
        self.readings += 1;
        let before = self.places.take().unwrap_or_default();
        let places = counts.into_iter().take(MAX_PLACES).map(|(place, number)| {
            let history = match before.get(&place) {
                Some(history) => history.then(number),
                None => History::beginning(number),
            };
            if history.rises >= RISES {
                grows(&place, history.number.at_least);
            }
            (place, history)
        });
        self.places = Some(places.collect());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the growing places, each with the lower bound of its number.
    fn observe_numbers(
        growth: &mut Growth<char>,
        numbers: &[(char, usize, usize)],
    ) -> Vec<(char, usize)> {
        let mut found = Vec::new();
        let numbers = numbers
            .iter()
            .map(|&(place, at_least, at_most)| (place, Number { at_least, at_most }));
        growth.observe(numbers.collect(), |&place, count| {
            found.push((place, count))
        });
        found.sort_unstable();
        found
    }

    fn observe(growth: &mut Growth<char>, counts: &[(char, usize)]) -> Vec<char> {
        let numbers = counts.iter().map(|&(place, count)| (place, count, count));
        let found = observe_numbers(growth, &numbers.collect::<Vec<_>>());
        found.into_iter().map(|(place, _)| place).collect()
    }

    #[test]
    fn two_rises_without_a_fall_are_growth() {
        let mut growth = Growth::new();
        assert_eq!(observe(&mut growth, &[('a', 1), ('b', 5), ('c', 2)]), []);
        assert_eq!(observe(&mut growth, &[('a', 2), ('b', 6), ('c', 2)]), []);
        assert_eq!(observe(&mut growth, &[('a', 2), ('b', 4), ('c', 2)]), []);
        assert_eq!(
            observe(&mut growth, &[('a', 3), ('b', 5), ('c', 2)]),
            ['a'],
            "it may stay as it is meanwhile"
        );
        assert_eq!(observe(&mut growth, &[('a', 3), ('b', 6)]), ['a', 'b']);
        assert_eq!(observe(&mut growth, &[('a', 2)]), []);
        assert_eq!(observe(&mut growth, &[]), []);
        assert_eq!(observe(&mut growth, &[('a', 9), ('b', 9)]), []);
    }

    #[test]
    fn an_unknown_count_neither_rises_nor_falls() {
        let mut growth = Growth::new();
        let steps = [
            // Up to three at first: neither of the next two is certainly a change.
            (0, 3, None),
            (2, 3, None),
            (2, 2, None),
            // This reading excludes nothing.
            (0, 9, None),
            (2, 2, None),
            (3, 4, None),
            (0, 9, None),
            (4, 4, None),
            (5, 7, Some(5)),
            (0, 6, Some(5)),
            (6, 6, Some(6)),
            // Certainly fewer than before.
            (0, 5, None),
            (6, 6, None),
            (7, 7, Some(7)),
        ];
        for (number, (at_least, at_most, expected)) in steps.into_iter().enumerate() {
            let found = observe_numbers(&mut growth, &[('a', at_least, at_most)]);
            let expected: Vec<_> = expected.map(|count| ('a', count)).into_iter().collect();
            assert_eq!(found, expected, "in step {number}");
        }
    }
}
