//! How to get from a frame to its caller, in one word, and a cache of that for addresses met
//! before.

use crate::primitives::{AtomicU64, Ordering};

/// Where a frame's caller is to be found, given the stack pointer and the frame pointer.
///
/// All that is followed up a stack are those two registers and the instruction pointer, and nearly
/// every frame of compiled code finds its caller's in one of a few ways, which fit a word. The
/// *frame address* is what the stack pointer was before the call; the return address lies just
/// below it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rule {
    /// The frame address lies `offset` bytes above the stack pointer or the frame pointer; the
    /// caller's frame pointer was saved at a distance from it, or is still in its register.
    Plain {
        from_frame_pointer: bool,
        offset: i32,
        saved_frame_pointer: Option<i32>,
    },
    /// There is no caller.
    End,
    /// The tables have to be evaluated each time: signal frames, and code with unusual frames.
    Evaluate,
}

const END: u64 = 1;
const EVALUATE: u64 = 2;
const PLAIN: u64 = 3;
const FROM_FRAME_POINTER: u64 = 1 << 2;
const SAVED: u64 = 1 << 3;

/// Offsets take 30 bits each.
const OFFSET_LIMIT: i64 = 1 << 29;

impl Rule {
    /// `None` if an offset is beyond what a word holds: the frame is then one to be evaluated.
    pub(super) fn plain(from_frame_pointer: bool, offset: i64, saved: Option<i64>) -> Option<Self> {
        let fits = |offset: i64| (-OFFSET_LIMIT..OFFSET_LIMIT).contains(&offset);
        if !fits(offset) || !saved.is_none_or(fits) {
            return None;
        }
        let saved_frame_pointer = saved.map(|saved| saved as i32);
        Some(Self::Plain {
            from_frame_pointer,
            offset: offset as i32,
            saved_frame_pointer,
        })
    }

    fn pack(self) -> u64 {
        match self {
            Self::End => END,
            Self::Evaluate => EVALUATE,
            Self::Plain {
                from_frame_pointer,
                offset,
                saved_frame_pointer,
            } => {
                let base = if from_frame_pointer {
                    FROM_FRAME_POINTER
                } else {
                    0
                };
                let saved =
                    saved_frame_pointer.map_or(0, |saved| SAVED | (saved as u32 as u64) << 34);
                PLAIN | base | saved | ((offset as u32 as u64) & 0x3fff_ffff) << 4
            }
        }
    }

    #[inline]
    fn unpack(word: u64) -> Self {
        // Up to the sign bit, and back down with it.
        let offset = ((word << 30) as i64 >> 34) as i32;
        let saved = (word as i64 >> 34) as i32;
        match word & 3 {
            END => Self::End,
            PLAIN => Self::Plain {
                from_frame_pointer: word & FROM_FRAME_POINTER != 0,
                offset,
                saved_frame_pointer: (word & SAVED != 0).then_some(saved),
            },
            _ => Self::Evaluate,
        }
    }
}

/// Sets of the cache; a power of two.
const SETS: usize = 4096;

/// Rules by address, shared by all threads, without locks: whoever writes an entry stores the rule,
/// and the key combined with the rule. A reader that meets the halves of two different entries
/// finds that they do not match.
pub(super) struct RuleCache {
    sets: [[Entry; 2]; SETS],
}

struct Entry {
    check: AtomicU64,
    rule: AtomicU64,
}

/// What a rule is remembered by: the address, and which list of modules it comes from; 0 for code
/// that is never unloaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Key(u64);

impl Key {
    pub(super) fn new(address: usize, generation: u16) -> Self {
        // Addresses of programs have 47 bits.
        Self(address as u64 ^ u64::from(generation) << 48)
    }

    fn set(self) -> usize {
        (self.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 52) as usize & (SETS - 1)
    }
}

impl RuleCache {
    pub(super) const fn new() -> Self {
        Self {
            sets: [const {
                [const {
                    Entry {
                        check: AtomicU64::new(0),
                        rule: AtomicU64::new(0),
                    }
                }; 2]
            }; SETS],
        }
    }

    #[inline]
    pub(super) fn get(&self, key: Key) -> Option<Rule> {
        for entry in &self.sets[key.set()] {
            let rule = entry.rule.load(Ordering::Relaxed);
            // A rule is never 0, so an empty entry matches no key that occurs.
            if entry.check.load(Ordering::Relaxed) ^ rule == key.0 && rule != 0 {
                return Some(Rule::unpack(rule));
            }
        }
        None
    }

    /// Remembers a rule in the place of the older of its set.
    pub(super) fn put(&self, key: Key, rule: Rule) {
        let [newer, older] = &self.sets[key.set()];
        older
            .rule
            .store(newer.rule.load(Ordering::Relaxed), Ordering::Relaxed);
        older
            .check
            .store(newer.check.load(Ordering::Relaxed), Ordering::Relaxed);
        newer.rule.store(rule.pack(), Ordering::Relaxed);
        newer.check.store(key.0 ^ rule.pack(), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules() -> Vec<Rule> {
        let mut rules = vec![Rule::End, Rule::Evaluate];
        for offset in [-8, 0, 8, 16, 1 << 20, OFFSET_LIMIT - 1, -OFFSET_LIMIT] {
            for saved in [
                None,
                Some(-16),
                Some(0),
                Some(-OFFSET_LIMIT),
                Some(OFFSET_LIMIT - 1),
            ] {
                for from_frame_pointer in [false, true] {
                    rules.push(Rule::plain(from_frame_pointer, offset, saved).unwrap());
                }
            }
        }
        rules
    }

    #[test]
    fn a_rule_survives_being_packed() {
        for rule in rules() {
            assert_ne!(rule.pack(), 0);
            assert_eq!(Rule::unpack(rule.pack()), rule);
        }
        assert_eq!(Rule::plain(false, OFFSET_LIMIT, None), None);
        assert_eq!(Rule::plain(false, 8, Some(-OFFSET_LIMIT - 1)), None);
    }

    #[test]
    fn the_cache_holds_two_of_a_set_and_forgets_the_older() {
        let cache: Box<RuleCache> = Box::new(RuleCache::new());
        let keys: Vec<Key> = (1..)
            .map(|address| Key::new(address * 16, 0))
            .filter(|key| key.set() == 5)
            .take(3)
            .collect();
        assert_eq!(cache.get(keys[0]), None);
        for (key, rule) in keys.iter().zip(rules()) {
            cache.put(*key, rule);
        }
        assert_eq!(cache.get(keys[0]), None);
        assert_eq!(cache.get(keys[1]), Some(rules()[1]));
        assert_eq!(cache.get(keys[2]), Some(rules()[2]));
        assert_eq!(cache.get(Key::new(0, 0)), None);
    }

    #[test]
    fn the_same_address_in_another_list_is_another_key() {
        let cache: Box<RuleCache> = Box::new(RuleCache::new());
        cache.put(Key::new(0x1234, 1), Rule::End);
        assert_eq!(cache.get(Key::new(0x1234, 1)), Some(Rule::End));
        assert_eq!(cache.get(Key::new(0x1234, 2)), None);
        assert_eq!(cache.get(Key::new(0x1234, 0)), None);
    }

    /// Threads that overwrite one another's entries: a reader gets the rule that belongs to its
    /// key, or none.
    #[test]
    fn torn_entries_are_not_taken_for_whole_ones() {
        let cache: Box<RuleCache> = Box::new(RuleCache::new());
        let rules = rules();
        let keys: Vec<Key> = (1..)
            .map(|address| Key::new(address * 16, 0))
            .filter(|key| key.set() == 9)
            .take(8)
            .collect();
        std::thread::scope(|scope| {
            for thread in 0..3 {
                let (cache, rules, keys) = (&cache, &rules, &keys);
                scope.spawn(move || {
                    for step in 0..200_000 {
                        let at = (step * 3 + thread) % keys.len();
                        if let Some(rule) = cache.get(keys[at]) {
                            assert_eq!(rule, rules[at]);
                        }
                        cache.put(keys[at], rules[at]);
                    }
                });
            }
        });
    }
}
