//! The rule that leads from a frame to its caller, in one word, and a cache of rules by address.

use plimsoll_sys::primitives::{AtomicU64, Ordering};

/// The rule that yields a frame's caller from the stack pointer and the frame pointer.
///
/// A walk follows only these two registers and the instruction pointer. Nearly every frame of
/// compiled code yields its caller's registers in one of a few ways, which fit a word. The *frame
/// address* is the value of the stack pointer before the call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rule {
    Plain(Plain),
    /// The frame has no caller.
    End,
    /// The tables must be evaluated each time: signal frames, and code with unusual frames.
    Evaluate,
}

/// The rule of a usual frame. Offsets are in bytes, and multiples of 8.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Plain {
    /// Whether the frame address is found from the frame pointer, rather than the stack pointer.
    pub(crate) from_frame_pointer: bool,
    /// The offset of the frame address from that register.
    pub(crate) offset: i64,
    /// The offset of the return address from the frame address; 0 if it is in the link register.
    pub(crate) return_address: i64,
    /// The offset of the caller's frame pointer from the frame address; `None` if it is unchanged.
    pub(crate) saved_frame_pointer: Option<i64>,
}

const END: u64 = 1;
const EVALUATE: u64 = 2;
const PLAIN: u64 = 3;
const FROM_FRAME_POINTER: u64 = 1 << 2;
const SAVED: u64 = 1 << 3;

/// The limit of offsets, which take 20 bits each, in words.
const OFFSET_LIMIT: i64 = 1 << 22;

/// The positions of the offsets.
const OFFSET: u32 = 4;
const RETURN_ADDRESS: u32 = 24;
const SAVED_FRAME_POINTER: u32 = 44;

impl Rule {
    /// Creates a plain rule. Returns [`Rule::Evaluate`] if an offset has no place in a word.
    pub(crate) fn plain(rule: Plain) -> Self {
        let fits = |offset: i64| offset % 8 == 0 && (-OFFSET_LIMIT..OFFSET_LIMIT).contains(&offset);
        let saved = rule.saved_frame_pointer.unwrap_or(0);
        match [rule.offset, rule.return_address, saved]
            .into_iter()
            .all(fits)
        {
            true => Self::Plain(rule),
            false => Self::Evaluate,
        }
    }

    fn pack(self) -> u64 {
        let place = |offset: i64, at: u32| ((offset >> 3) as u64 & 0xf_ffff) << at;
        match self {
            Self::End => END,
            Self::Evaluate => EVALUATE,
            Self::Plain(rule) => {
                let base = u64::from(rule.from_frame_pointer) * FROM_FRAME_POINTER;
                let saved = rule
                    .saved_frame_pointer
                    .map_or(0, |saved| SAVED | place(saved, SAVED_FRAME_POINTER));
                PLAIN
                    | base
                    | saved
                    | place(rule.offset, OFFSET)
                    | place(rule.return_address, RETURN_ADDRESS)
            }
        }
    }

    #[inline]
    fn unpack(word: u64) -> Self {
        // Shifts the field up to the sign bit, and back down with sign extension.
        let offset = |at: u32| (word << (44 - at)) as i64 >> 44 << 3;
        match word & 3 {
            END => Self::End,
            PLAIN => Self::Plain(Plain {
                from_frame_pointer: word & FROM_FRAME_POINTER != 0,
                offset: offset(OFFSET),
                return_address: offset(RETURN_ADDRESS),
                saved_frame_pointer: (word & SAVED != 0).then(|| offset(SAVED_FRAME_POINTER)),
            }),
            _ => Self::Evaluate,
        }
    }
}

/// The number of sets in the cache; a power of two.
const SETS: usize = 4096;

/// A lock-free cache of rules by address, shared by all threads. A writer stores the rule, and the
/// key combined with the mixed rule. If a reader loads parts of two different entries, they match one key in 2^64, which
/// nothing relates to keys that exist. Without mixing, `key ^ rule` of one entry and the rule of another would match keys of
/// similar addresses.
pub(crate) struct RuleCache {
    sets: [[Entry; 2]; SETS],
}

struct Entry {
    check: AtomicU64,
    rule: AtomicU64,
}

/// The key of a rule: the address and the generation of its module list; 0 for code that is never
/// unloaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Key(u64);

impl Key {
    pub(crate) fn new(address: usize, generation: u16) -> Self {
        // Addresses of user space have 47 bits.
        Self(address as u64 ^ u64::from(generation) << 48)
    }

    fn set(self) -> usize {
        (self.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 52) as usize & (SETS - 1)
    }
}

impl RuleCache {
    pub(crate) const fn new() -> Self {
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
    pub(crate) fn get(&self, key: Key) -> Option<Rule> {
        for entry in &self.sets[key.set()] {
            let rule = entry.rule.load(Ordering::Relaxed);
            // A rule is never 0, so an empty entry matches no key.
            if entry.check.load(Ordering::Relaxed) ^ mixed(rule) == key.0 && rule != 0 {
                return Some(Rule::unpack(rule));
            }
        }
        None
    }

    /// Stores a rule in place of the older one in its set.
    pub(crate) fn put(&self, key: Key, rule: Rule) {
        let [newer, older] = &self.sets[key.set()];
        older
            .rule
            .store(newer.rule.load(Ordering::Relaxed), Ordering::Relaxed);
        older
            .check
            .store(newer.check.load(Ordering::Relaxed), Ordering::Relaxed);
        newer.rule.store(rule.pack(), Ordering::Relaxed);
        newer
            .check
            .store(key.0 ^ mixed(rule.pack()), Ordering::Relaxed);
    }
}

/// Spreads the bits of a rule over the word. Different rules have different results.
#[inline]
fn mixed(rule: u64) -> u64 {
    let product = rule.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    product ^ product >> 32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules() -> Vec<Rule> {
        let mut rules = vec![Rule::End, Rule::Evaluate];
        for offset in [-8, 0, 8, 16, 1 << 20, OFFSET_LIMIT - 8, -OFFSET_LIMIT] {
            for (return_address, saved_frame_pointer) in [
                (-8, None),
                (-8, Some(-16)),
                (0, Some(0)),
                (-OFFSET_LIMIT, Some(-OFFSET_LIMIT)),
                (OFFSET_LIMIT - 8, Some(OFFSET_LIMIT - 8)),
            ] {
                for from_frame_pointer in [false, true] {
                    rules.push(Rule::plain(Plain {
                        from_frame_pointer,
                        offset,
                        return_address,
                        saved_frame_pointer,
                    }));
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
        let usual = Plain {
            from_frame_pointer: false,
            offset: 8,
            return_address: -8,
            saved_frame_pointer: None,
        };
        assert_eq!(Rule::plain(usual), Rule::Plain(usual));
        for unusual in [
            Plain {
                offset: OFFSET_LIMIT,
                ..usual
            },
            Plain {
                offset: 12,
                ..usual
            },
            Plain {
                return_address: -OFFSET_LIMIT - 8,
                ..usual
            },
            Plain {
                saved_frame_pointer: Some(-4),
                ..usual
            },
        ] {
            assert_eq!(Rule::plain(unusual), Rule::Evaluate);
        }
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

    /// The rule of one entry, and the other word of an entry of another key and rule.
    #[test]
    fn parts_of_two_entries_match_no_address() {
        let cache: Box<RuleCache> = Box::new(RuleCache::new());
        let rules = rules();
        for (first, second) in rules
            .iter()
            .flat_map(|one| rules.iter().map(move |two| (one, two)))
        {
            if first == second {
                continue;
            }
            let address = 0x7f12_3456_7890;
            let key = Key::new(address, 0);
            cache.put(key, *second);
            let check = cache.sets[key.set()][0].check.load(Ordering::Relaxed);
            // The keys that would match if the two words were combined by exclusive or.
            for matching in [
                Key(key.0 ^ first.pack() ^ second.pack()),
                Key(check ^ first.pack()),
                Key(check ^ mixed(first.pack())),
            ] {
                let entry = &cache.sets[matching.set()][0];
                entry.rule.store(first.pack(), Ordering::Relaxed);
                entry.check.store(check, Ordering::Relaxed);
                let is_address = matching.0 >> 47 == 0;
                assert!(
                    !is_address || cache.get(matching).is_none(),
                    "{first:?} {second:?}"
                );
            }
        }
    }

    /// Threads overwrite each other's entries. A reader must get the rule that belongs to its key,
    /// or none.
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
