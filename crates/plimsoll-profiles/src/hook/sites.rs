//! Classifies a wait by its place in the code.
//!
//! Each primitive waits in a function that is never inlined, because it is the cold path. The
//! symbol tables contain the addresses of these functions; so the return address classifies a wait.
//! In a program without optimization, the system call is some frames further down, and the stack is
//! walked up to the first known function.
//!
//! A wake-up cannot be classified this way: its call is often the last of its function, and leaves
//! no frame.

use std::ops::Range;

use plimsoll_process::deep_stacks::Limit;
use plimsoll_symbolize::SearchedObjects;
use plimsoll_sys::primitives::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

use crate::symbol;
use plimsoll_core::stack::{self, Start};
use plimsoll_waits::contention::WaitKind;

/// The classification of a place where threads wait.
#[derive(Clone, Copy, Debug)]
pub(super) struct Site {
    pub kind: WaitKind,
    pub family: Family,
    /// The number of its function among the known ones.
    pub(super) number: usize,
}

/// The library of a primitive, which decides what the futex word means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Family {
    /// The word belongs to the primitive, as far as is known.
    Unknown = 0,
    /// The standard library: the word belongs to the primitive.
    Std = 1,
    /// parking_lot: the word belongs to the thread.
    ParkingLot = 2,
}

const UNKNOWN: Site = Site {
    kind: WaitKind::Other,
    family: Family::Unknown,
    number: CAPACITY,
};

/// The maximum number of known functions: some twenty in a program, and as many for each library
/// that contains another copy of the standard library.
pub(super) const CAPACITY: usize = 256;

/// Maximum number of frames searched for a known function.
const DEEPEST: usize = 12;

/// A function that identifies the awaited primitive.
struct Function {
    start: AtomicUsize,
    end: AtomicUsize,
    /// The kind and the family, or `u32::MAX` if the callers decide.
    content: AtomicU32,
}

/// Functions are only added, never removed.
static FUNCTIONS: [Function; CAPACITY] = [const {
    Function {
        start: AtomicUsize::new(0),
        end: AtomicUsize::new(0),
        content: AtomicU32::new(0),
    }
}; CAPACITY];

static KNOWN: AtomicUsize = AtomicUsize::new(0);

/// The purpose of a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Meaning {
    WaitsFor(WaitKind, Family),
    /// It waits on behalf of its callers, which determine the primitive.
    AskCallers,
}

/// Returns the site of a wait that is about to begin at `stack`.
pub(super) fn site(stack: Start) -> Site {
    match at(stack.registers().instruction as usize) {
        Some((number, Meaning::WaitsFor(kind, family))) => Site {
            kind,
            family,
            number,
        },
        Some((_, Meaning::AskCallers)) => of_callers(stack),
        None => UNKNOWN,
    }
}

#[cold]
fn of_callers(stack: Start) -> Site {
    stack::with_stack(stack, Limit::leaf_end(DEEPEST), |frames| {
        let found = frames.iter().find_map(|&frame| match at(frame)? {
            (number, Meaning::WaitsFor(kind, family)) => Some(Site {
                kind,
                family,
                number,
            }),
            (_, Meaning::AskCallers) => None,
        });
        found.unwrap_or(UNKNOWN)
    })
}

/// A cache of known functions by return address: the lower 48 bits of the address, and in the upper
/// 16 bits 1 + the number of the function. Unknown addresses are not cached, since a later search
/// may find their function.
static FOUND: [AtomicU64; 64] = [const { AtomicU64::new(0) }; 64];

/// Returns the known function that contains a return address.
fn at(return_address: usize) -> Option<(usize, Meaning)> {
    const ADDRESS: u64 = (1 << 48) - 1;
    let address = return_address as u64 & ADDRESS;
    let place = &FOUND[(address.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 58) as usize];
    let found = place.load(Ordering::Acquire);
    let number = if found & ADDRESS == address && found != 0 {
        (found >> 48) as usize - 1
    } else {
        let number = search(return_address)?;
        place.store(address | (number as u64 + 1) << 48, Ordering::Release);
        number
    };
    let content = FUNCTIONS[number].content.load(Ordering::Relaxed);
    Some((number, Meaning::from_content(content)))
}

fn search(return_address: usize) -> Option<usize> {
    let known = KNOWN.load(Ordering::Acquire);
    // A call can be the last instruction of a function.
    let call = return_address.wrapping_sub(1);
    FUNCTIONS[..known].iter().position(|function| {
        function.start.load(Ordering::Relaxed) <= call
            && call < function.end.load(Ordering::Relaxed)
    })
}

impl Meaning {
    fn content(self) -> u32 {
        match self {
            Self::AskCallers => u32::MAX,
            Self::WaitsFor(kind, family) => (family as u32) << 8 | kind as u32,
        }
    }

    fn from_content(content: u32) -> Self {
        if content == u32::MAX {
            return Self::AskCallers;
        }
        let family = match content >> 8 {
            1 => Family::Std,
            2 => Family::ParkingLot,
            _ => Family::Unknown,
        };
        Self::WaitsFor(WaitKind::from_number((content & 0xff).into()), family)
    }

    /// Returns the meaning of the function of that name, if it is known.
    fn of_function(name: &str) -> Option<Self> {
        let plain = plimsoll_symbolize::without_types(name);
        FUNCTION_NAMES
            .iter()
            .find(|(path, _)| {
                let Some(at) = plain.find(path) else {
                    return false;
                };
                // The path must end here, or continue with generic arguments or inner items.
                let rest = &plain[at + path.len()..];
                rest.is_empty() || rest.starts_with("::")
            })
            .map(|&(_, meaning)| meaning)
    }
}

const FUNCTION_NAMES: [(&str, Meaning); 28] = {
    use Family::{ParkingLot, Std};
    use Meaning::{AskCallers, WaitsFor};
    use WaitKind::{Barrier, Condvar, Mutex, Once, Park, RwLockRead, RwLockWrite};
    [
        (
            "sync::mutex::futex::Mutex::lock_contended",
            WaitsFor(Mutex, Std),
        ),
        (
            "sync::rwlock::futex::RwLock::read_contended",
            WaitsFor(RwLockRead, Std),
        ),
        (
            "sync::rwlock::futex::RwLock::write_contended",
            WaitsFor(RwLockWrite, Std),
        ),
        (
            "sync::condvar::futex::Condvar::wait",
            WaitsFor(Condvar, Std),
        ),
        (
            "sync::condvar::futex::Condvar::wait_timeout",
            WaitsFor(Condvar, Std),
        ),
        (
            "sync::condvar::futex::Condvar::wait_optional_timeout",
            WaitsFor(Condvar, Std),
        ),
        ("std::sync::barrier::Barrier::wait", WaitsFor(Barrier, Std)),
        ("sync::once::futex::Once::call", WaitsFor(Once, Std)),
        ("sync::once::futex::Once::wait", WaitsFor(Once, Std)),
        (
            "sync::thread_parking::futex::Parker::park",
            WaitsFor(Park, Std),
        ),
        (
            "sync::thread_parking::futex::Parker::park_timeout",
            WaitsFor(Park, Std),
        ),
        ("std::thread::thread::Thread::park", WaitsFor(Park, Std)),
        (
            "std::thread::thread::Thread::park_timeout",
            WaitsFor(Park, Std),
        ),
        ("std::thread::functions::park", WaitsFor(Park, Std)),
        ("std::thread::functions::park_timeout", WaitsFor(Park, Std)),
        ("std::thread::park", WaitsFor(Park, Std)),
        ("std::thread::park_timeout", WaitsFor(Park, Std)),
        (
            "parking_lot::raw_mutex::RawMutex::lock_slow",
            WaitsFor(Mutex, ParkingLot),
        ),
        (
            "parking_lot::raw_rwlock::RawRwLock::lock_shared_slow",
            WaitsFor(RwLockRead, ParkingLot),
        ),
        (
            "parking_lot::raw_rwlock::RawRwLock::lock_common",
            AskCallers,
        ),
        (
            "parking_lot::raw_rwlock::RawRwLock",
            WaitsFor(RwLockWrite, ParkingLot),
        ),
        (
            "parking_lot::raw_condvar::RawCondvar::wait_until_internal",
            WaitsFor(Condvar, ParkingLot),
        ),
        (
            "parking_lot::condvar::Condvar::wait_until_internal",
            WaitsFor(Condvar, ParkingLot),
        ),
        ("parking_lot_core::parking_lot::park", AskCallers),
        ("parking_lot_core::parking_lot::park_internal", AskCallers),
        (
            "parking_lot_core::parking_lot::with_thread_data",
            AskCallers,
        ),
        ("parking_lot_core::thread_parker::imp", AskCallers),
        ("sys::pal::unix::futex::futex_wait", AskCallers),
    ]
};

/// Parts of linkage names; every name in `FUNCTION_NAMES` contains one of them.
const PARTS: [&[u8]; 6] = [
    b"_contended",
    b"condvar",
    b"4once",
    b"park",
    b"7barrier",
    b"futex_wait",
];

/// The crates of those functions, in the spelling of both manglings.
const CRATES: [&[u8]; 3] = [b"3std", b"11parking_lot", b"16parking_lot_core"];

/// Returns whether a function may be one of those above, by its linkage name. Called for every
/// symbol of the process, so it reads few bytes of most names.
fn may_classify(linkage: &[u8]) -> bool {
    let is_in_crate = |rest: &[u8]| CRATES.iter().any(|name| rest.starts_with(name));
    let of_crates = if let Some(path) = linkage.strip_prefix(b"_ZN") {
        // The path of a trait's function begins with a type in brackets.
        let digits = path.iter().take_while(|byte| byte.is_ascii_digit()).count();
        is_in_crate(path) || path[digits..].starts_with(b"_$LT$")
    } else if linkage.starts_with(b"_R") {
        // The name of a crate comes after its disambiguator.
        let ends = linkage
            .iter()
            .enumerate()
            .filter(|(_, byte)| **byte == b'_');
        ends.into_iter()
            .any(|(at, _)| is_in_crate(&linkage[at + 1..]))
    } else {
        false
    };
    of_crates
        && (0..linkage.len()).any(|at| {
            matches!(linkage[at], b'_' | b'c' | b'4' | b'p' | b'7' | b'f')
                && PARTS.iter().any(|part| linkage[at..].starts_with(part))
        })
}

/// Searches the objects that were loaded since the last search. Reads symbol tables: not for hooks.
/// Only one thread at a time may call it.
pub(super) fn refresh(searched: &mut SearchedObjects) {
    symbol::each_rust_function(searched, may_classify, |name, code| {
        if let Some(meaning) = Meaning::of_function(name) {
            add(code, meaning);
        }
    });
}

/// Adds a place where a thread was observed to wait for one of the standard library's primitives.
pub(super) fn add_return_address(return_address: usize, kind: WaitKind) {
    let meaning = Meaning::WaitsFor(kind, Family::Std);
    add(return_address - 1..return_address, meaning);
}

/// Returns whether a wait function of the standard library's mutex is known.
pub(super) fn knows_locks_of_std() -> bool {
    let known = KNOWN.load(Ordering::Acquire);
    let mutex = Meaning::WaitsFor(WaitKind::Mutex, Family::Std).content();
    FUNCTIONS[..known]
        .iter()
        .any(|function| function.content.load(Ordering::Relaxed) == mutex)
}

/// Adds a function, unless it is known or the table is full.
fn add(code: Range<usize>, meaning: Meaning) {
    let known = KNOWN.load(Ordering::Relaxed);
    let is_known = FUNCTIONS[..known].iter().any(|function| {
        function.start.load(Ordering::Relaxed) == code.start
            && function.end.load(Ordering::Relaxed) == code.end
    });
    if is_known || known == CAPACITY {
        return;
    }
    let function = &FUNCTIONS[known];
    function.start.store(code.start, Ordering::Relaxed);
    function.end.store(code.end, Ordering::Relaxed);
    function.content.store(meaning.content(), Ordering::Relaxed);
    KNOWN.store(known + 1, Ordering::Release);
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    #[test]
    fn names_of_either_mangling_tell() {
        for (name, meaning) in [
            (
                "std::sys::sync::mutex::futex::Mutex::lock_contended",
                Meaning::WaitsFor(WaitKind::Mutex, Family::Std),
            ),
            (
                "<std::sys::sync::mutex::futex::Mutex>::lock_contended",
                Meaning::WaitsFor(WaitKind::Mutex, Family::Std),
            ),
            (
                "<parking_lot::raw_rwlock::RawRwLock>::lock_shared_slow",
                Meaning::WaitsFor(WaitKind::RwLockRead, Family::ParkingLot),
            ),
            (
                "parking_lot::raw_rwlock::RawRwLock::lock_exclusive_slow",
                Meaning::WaitsFor(WaitKind::RwLockWrite, Family::ParkingLot),
            ),
            (
                "parking_lot::raw_rwlock::RawRwLock<_>::wait_for_readers::{{closure}}",
                Meaning::WaitsFor(WaitKind::RwLockWrite, Family::ParkingLot),
            ),
            (
                "parking_lot_core::parking_lot::park::{{closure}}",
                Meaning::AskCallers,
            ),
        ] {
            assert_eq!(Meaning::of_function(name), Some(meaning), "{name}");
            assert_eq!(Meaning::from_content(meaning.content()), meaning);
        }
        for name in [
            "main",
            "my::sync::mutex::futex::Mutex::lock",
            "std::thread::parking",
            "std::sync::barrier::Barrier::waiting",
            "",
        ] {
            assert_eq!(Meaning::of_function(name), None, "{name}");
        }
    }

    #[test]
    fn the_filter_passes_each_function_that_classifies_a_wait() {
        let mut passed = 0;
        let each = |linkage: &[u8], name: &str| {
            let classifies = Meaning::of_function(name).is_some();
            assert!(!classifies || may_classify(linkage), "{name}");
            passed += usize::from(may_classify(linkage) && !classifies);
        };
        let linkage = RefCell::new(Vec::new());
        // A simpler filter selects the names: demangling all names would take seconds.
        let simple = |name: &[u8]| {
            linkage.replace(name.to_vec());
            PARTS
                .iter()
                .any(|part| name.windows(part.len()).any(|window| window == *part))
        };
        let mut each = each;
        symbol::each_rust_function(&mut SearchedObjects::default(), simple, |name, _| {
            each(&linkage.borrow(), name);
        });
        // Names that pass the filter without classifying a wait are demangled needlessly.
        assert!(passed < 2000, "{passed}");
        for linkage in [
            "_ZN3std3sys4sync5mutex5futex5Mutex14lock_contended17h0123456789abcdefE",
            "_ZN3std6thread4park17h0123456789abcdefE",
            "_RNvMNtNtNtNtNtCs4fqI2P2rA04_3std3sys4sync5mutex5futexNtB2_5Mutex14lock_contended",
            "_ZN16parking_lot_core11parking_lot4park28_$u7b$$u7b$closure$u7d$$u7d$17h0E",
            "_ZN99_$LT$parking_lot..raw_rwlock..RawRwLock$u20$as$u20$lock_api..rwlock..RawRwLock$GT$4lock17h0E",
        ] {
            assert!(may_classify(linkage.as_bytes()), "{linkage}");
        }
        for linkage in [
            "",
            "_ZN",
            "_R",
            "pthread_park",
            "_ZN3app4park17h0123456789abcdefE",
        ] {
            assert!(!may_classify(linkage.as_bytes()), "{linkage}");
        }
    }

    #[test]
    fn this_program_has_the_functions_of_the_standard_library() {
        refresh(&mut SearchedObjects::default());
        let known = KNOWN.load(Ordering::Acquire);
        for kind in [WaitKind::Mutex, WaitKind::RwLockRead, WaitKind::RwLockWrite] {
            let wanted = Meaning::WaitsFor(kind, Family::Std).content();
            assert!(
                FUNCTIONS[..known]
                    .iter()
                    .any(|function| function.content.load(Ordering::Relaxed) == wanted),
                "{kind:?}"
            );
        }
        // A second search adds nothing.
        refresh(&mut SearchedObjects::default());
        assert_eq!(KNOWN.load(Ordering::Acquire), known);
    }
}
