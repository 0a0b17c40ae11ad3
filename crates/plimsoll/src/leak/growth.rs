//! Places where more and more wait, from one profile to the next.
//!
//! Of all that wait in the same way in the same place, those are counted that have waited for
//! long. A leak has that number rise and never fall; whoever is only slow is gone one day.

use std::collections::HashMap;
use std::hash::Hash;

/// How often the number must have risen, and not have fallen in between.
const RISES: u32 = 2;

/// The most places that are remembered.
const MOST: usize = 1 << 16;

/// What was counted in the profiles before.
pub(crate) struct Growth<K> {
    places: Option<HashMap<K, History>>,
}

#[derive(Clone, Copy)]
struct History {
    count: usize,
    rises: u32,
}

impl<K: Hash + Eq> Growth<K> {
    pub(crate) const fn new() -> Self {
        Self { places: None }
    }

    /// Takes in what is counted now, and calls `grows` with the places whose number has risen time
    /// and again. Places that are not there any more begin anew.
    pub(crate) fn observe(&mut self, counts: HashMap<K, usize>, mut grows: impl FnMut(&K, usize)) {
        let before = self.places.take().unwrap_or_default();
        let history = |place: &K, count: usize| match before.get(place) {
            Some(history) if count > history.count => History {
                count,
                rises: history.rises.saturating_add(1),
            },
            Some(&history) if count == history.count => history,
            _ => History { count, rises: 0 },
        };
        let places = counts.into_iter().take(MOST).map(|(place, count)| {
            let history = history(&place, count);
            if history.rises >= RISES {
                grows(&place, count);
            }
            (place, history)
        });
        self.places = Some(places.collect());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn observe(growth: &mut Growth<char>, counts: &[(char, usize)]) -> Vec<char> {
        let mut found = Vec::new();
        growth.observe(counts.iter().copied().collect(), |&place, _| {
            found.push(place)
        });
        found.sort_unstable();
        found
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
}
