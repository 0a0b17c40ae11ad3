//! Places where more and more wait, from one profile to the next.
//!
//! Of all that wait in the same way in the same place, those are counted that have waited for
//! long. A leak has that number rise and never fall; whoever is only slow is gone one day.

use std::collections::HashMap;
use std::hash::Hash;

/// How often the number must have risen, and not have fallen in between.
const RISES: u32 = 2;

/// The least number of readings after which a place can grow.
pub(crate) const READINGS_NEEDED: u32 = RISES + 1;

/// The most places that are remembered.
const MOST: usize = 1 << 16;

/// How many wait in a place, as far as is known.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Number {
    pub(crate) at_least: usize,
    pub(crate) at_most: usize,
}

/// What was counted in the profiles before.
pub(crate) struct Growth<K> {
    places: Option<HashMap<K, History>>,
    readings: u64,
}

#[derive(Clone, Copy)]
struct History {
    number: Number,
    rises: u32,
}

impl History {
    /// What is not known neither rises nor falls: it is as many as before, if that can be.
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

impl<K: Hash + Eq> Growth<K> {
    pub(crate) const fn new() -> Self {
        Self {
            places: None,
            readings: 0,
        }
    }

    /// How many readings were taken in.
    pub(crate) fn readings(&self) -> u64 {
        self.readings
    }

    /// Takes in what is counted now, and calls `grows` with the places whose number has risen time
    /// and again. Places that are not there any more begin anew.
    pub(crate) fn observe(&mut self, counts: HashMap<K, Number>, mut grows: impl FnMut(&K, usize)) {
        self.readings += 1;
        let before = self.places.take().unwrap_or_default();
        let places = counts.into_iter().take(MOST).map(|(place, number)| {
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

    /// With what grows, and how many there are of it.
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
    fn what_rises_twice_and_never_falls_grows() {
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
    fn what_is_not_known_neither_rises_nor_falls() {
        let mut growth = Growth::new();
        let steps = [
            // Any of up to three at first: three are none more, two are none less.
            (0, 3, None),
            (2, 3, None),
            (2, 2, None),
            // Nothing is known of a reading.
            (0, 9, None),
            (2, 2, None),
            (3, 4, None),
            (0, 9, None),
            (4, 4, None),
            (5, 7, Some(5)),
            (0, 6, Some(5)),
            (6, 6, Some(6)),
            // They are fewer at any rate.
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
