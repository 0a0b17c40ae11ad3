//! The readings of one site at growing intervals.

use super::verdict::{SLOTS, Slot};

/// The number of slots that become one of the next level.
const FACTOR: u64 = 4;

/// The number of levels.
const LEVELS: usize = 6;

/// The number of levels of which windows are judged. The last one only has what was before.
pub(super) const JUDGED: usize = LEVELS - 1;

/// The readings of one site: at each level the last [`SLOTS`] slots, each as long as [`FACTOR`] slots
/// of the level below. Slots before the first reading are empty.
#[derive(Clone, Debug)]
pub(super) struct Levels {
    rings: [[Slot; SLOTS]; LEVELS],
    /// At each level, the part of the unfinished slot that finished slots below have filled.
    unfinished: [Slot; LEVELS],
}

/// A window of a level, with everything before it.
#[derive(Debug)]
pub(super) struct Window {
    /// The number of readings in a slot.
    pub(super) slot: u64,
    pub(super) slots: [Slot; SLOTS],
    /// Oldest first, of the next level and those above it.
    pub(super) prior: Vec<Slot>,
    /// The length of all of that in slots of the window.
    pub(super) prior_length: f64,
    pub(super) is_long: bool,
}

impl Levels {
    /// Returns the levels of a site that has had so many bytes in use since the first reading.
    pub(super) fn new(bytes: f32) -> Self {
        let slot = Slot {
            bytes,
            ..Slot::default()
        };
        Self {
            rings: [[slot; SLOTS]; LEVELS],
            unfinished: [Slot::default(); LEVELS],
        }
    }

    /// Adds the reading with a number. Numbers count from 0 and are shared by all sites.
    pub(super) fn add(&mut self, number: u64, reading: Slot) {
        let (mut number, mut slot) = (number, reading);
        self.rings[0][place(number)] = slot;
        for level in 1..LEVELS {
            let unfinished = &mut self.unfinished[level];
            unfinished.bytes += slot.bytes / FACTOR as f32;
            unfinished.mallocs += slot.mallocs;
            unfinished.frees += slot.frees;
            if (number + 1) % FACTOR != 0 {
                break;
            }
            number /= FACTOR;
            slot = std::mem::take(unfinished);
            self.rings[level][place(number)] = slot;
        }
    }

    /// Returns the window of a level after so many readings; `None` until twice its length was
    /// observed.
    pub(super) fn window(&self, readings: u64, level: usize) -> Option<Window> {
        let finished = finished(readings, level);
        if finished < 2 * SLOTS as u64 {
            return None;
        }
        let first = finished - SLOTS as u64;
        let slots = std::array::from_fn(|at| self.rings[level][place(first + at as u64)]);
        // Each level adds what the ones below no longer have.
        let mut parts = Vec::new();
        let begin = first * length(level);
        let mut until = begin;
        for above in level + 1..LEVELS {
            let from = self::finished(readings, above).saturating_sub(SLOTS as u64);
            let last = until / length(above);
            if from < last {
                parts.push((above, from..last));
                until = from * length(above);
            }
        }
        let prior = parts.into_iter().rev().flat_map(|(above, numbers)| {
            numbers.map(move |number| self.rings[above][place(number)])
        });
        Some(Window {
            slot: length(level),
            slots,
            prior: prior.collect(),
            prior_length: (begin - until) as f64 / length(level) as f64,
            is_long: finished < 2 * SLOTS as u64 * FACTOR,
        })
    }

    /// Returns the bytes over the whole time observed, oldest first, each with the number of the last
    /// reading in it.
    pub(super) fn course(&self, readings: u64) -> Vec<(u64, f32)> {
        let mut parts = Vec::new();
        let mut until = readings;
        for level in 0..LEVELS {
            let from = finished(readings, level).saturating_sub(SLOTS as u64);
            let last = until / length(level);
            if from < last {
                parts.push((level, from..last));
                until = from * length(level);
            }
        }
        let slots = parts.into_iter().rev().flat_map(|(level, numbers)| {
            numbers.map(move |number| {
                let slot = self.rings[level][place(number)];
                ((number + 1) * length(level) - 1, slot.bytes)
            })
        });
        slots.collect()
    }
}

fn place(number: u64) -> usize {
    (number % SLOTS as u64) as usize
}

/// Returns the number of readings in a slot.
fn length(level: usize) -> u64 {
    FACTOR.pow(level as u32)
}

/// Returns the number of finished slots of a level after so many readings.
fn finished(readings: u64, level: usize) -> u64 {
    readings / length(level)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(readings: u64) -> Levels {
        let mut levels = Levels::new(0.0);
        for number in 0..readings {
            levels.add(
                number,
                Slot {
                    bytes: number as f32,
                    mallocs: 1.0,
                    frees: 0.0,
                },
            );
        }
        levels
    }

    #[test]
    fn windows_have_the_last_slots_and_all_before_in_order() {
        let levels = filled(1000);
        let window = levels.window(1000, 1).unwrap();
        assert_eq!((window.slot, window.is_long), (4, true));
        // From the reading 0 to the reading 872.
        assert_eq!(window.prior_length, 218.0);
        assert_eq!(window.slots.map(|slot| slot.mallocs), [4.0; SLOTS]);
        // Means of the readings 872 to 875, and so on.
        let expected: [f32; SLOTS] = std::array::from_fn(|at| 873.5 + 4.0 * at as f32);
        assert_eq!(window.slots.map(|slot| slot.bytes), expected);
        let prior: Vec<f32> = window.prior.iter().map(|slot| slot.bytes).collect();
        assert!(prior.is_sorted(), "{prior:?}");
        assert!((850.0..872.0).contains(prior.last().unwrap()), "{prior:?}");
        assert!(prior[0] < 64.0, "{prior:?}");

        let short = levels.window(1000, 0).unwrap();
        assert!(!short.is_long);
        assert_eq!(short.slots[SLOTS - 1].bytes, 999.0);
    }

    #[test]
    fn a_window_needs_twice_its_length() {
        let levels = filled(63);
        assert!(levels.window(63, 0).is_none());
        let levels = filled(64);
        assert!(levels.window(64, 0).is_some());
        assert!(levels.window(64, 1).is_none());
    }

    #[test]
    fn the_course_reaches_back_to_the_beginning() {
        let course = filled(5000).course(5000);
        assert_eq!(course.last(), Some(&(4999, 4999.0)));
        assert!(course.is_sorted_by(|one, next| one.0 < next.0));
        assert!(course[0].0 < 256, "{course:?}");
    }
}
