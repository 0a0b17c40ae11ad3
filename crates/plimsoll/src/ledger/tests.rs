//! The ledger under real threads: hand-overs between threads that begin and end, cut all the while.
//! And the same with a part of the protocol taken out, which must be noticed.

use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use super::*;
use crate::os::{membarrier, rseq::Area};

const LANES: usize = 16;

/// What is given is counted before it can be taken, so no cut may show more taken than given. Each
/// giving also changes two words together, so no cut may show them different.
#[derive(Clone, Copy)]
#[repr(C)]
struct Flow {
    given: [u64; LANES],
    taken: [u64; LANES],
    together: [u64; 2],
}

const TAKEN: usize = LANES;
const TOGETHER: usize = 2 * LANES;

// SAFETY: u64 words only.
unsafe impl Delta for Flow {
    const ZERO: Self = Self {
        given: [0; LANES],
        taken: [0; LANES],
        together: [0; 2],
    };
}

/// How one test's threads write.
struct Set {
    ledger: &'static Ledger<Flow>,
    /// Adds 1 to a word.
    increment: fn(&Ledger<Flow>, Writer, usize),
}

#[derive(Default, Debug)]
struct Outcome {
    cuts: u64,
    given: u64,
    wrong: u64,
}

/// Two givers and two takers, each a new thread every few thousand operations, under continuous
/// cuts; until `enough`, or for at most a minute.
fn hammer(set: &Set, enough: impl Fn(&Outcome) -> bool) -> Outcome {
    let available: [AtomicUsize; LANES] = std::array::from_fn(|_| AtomicUsize::new(0));
    let stop = AtomicBool::new(false);
    let give = |seed: usize| {
        let writer = set.ledger.enlist();
        for step in 0..4000 {
            let lane = (step * 7 + seed) % LANES;
            (set.increment)(set.ledger, writer, lane);
            available[lane].fetch_add(1, Ordering::Release);
            let pair = [(TOGETHER, 1), (TOGETHER + 1, 1)];
            let area = set.ledger.area(writer);
            match step % 8 {
                0 => set.ledger.record(writer, &pair),
                4 if area.is_null() => set.ledger.record(writer, &pair),
                // SAFETY: the area is this thread's, which retires below; both words are within the
                // delta.
                4 => unsafe { set.ledger.record_pair(area, pair) },
                _ => {}
            }
        }
        set.ledger.retire(writer);
    };
    let take = |seed: usize| {
        let writer = set.ledger.enlist();
        for step in 0..8000 {
            let lane = (step * 5 + seed) % LANES;
            let one_less = |left: usize| left.checked_sub(1);
            if available[lane]
                .fetch_update(Ordering::Acquire, Ordering::Relaxed, one_less)
                .is_ok()
            {
                (set.increment)(set.ledger, writer, TAKEN + lane);
            }
        }
        set.ledger.retire(writer);
    };
    std::thread::scope(|scope| {
        for seed in 0..2 {
            let (give, take, stop) = (&give, &take, &stop);
            let again = move |work: &(dyn Fn(usize) + Sync)| {
                while !stop.load(Ordering::Relaxed) {
                    std::thread::scope(|one| {
                        one.spawn(|| work(seed));
                    });
                }
            };
            scope.spawn(move || again(give));
            scope.spawn(move || again(take));
        }
        let mut outcome = Outcome::default();
        let mut last = Flow::ZERO;
        let begun = Instant::now();
        while !enough(&outcome) && begun.elapsed() < Duration::from_secs(60) {
            let cut = set.ledger.read().delta;
            outcome.cuts += 1;
            outcome.given = cut.given.iter().sum();
            let backwards = cut
                .words()
                .iter()
                .zip(last.words())
                .any(|(now, before)| now < before);
            let taken_first = cut
                .taken
                .iter()
                .zip(&cut.given)
                .any(|(taken, given)| taken > given);
            outcome.wrong +=
                u64::from(backwards || taken_first || cut.together[0] != cut.together[1]);
            last = cut;
        }
        stop.store(true, Ordering::Relaxed);
        outcome
    })
}

/// Counts with [`increment`] where the writer has an area, and with [`Ledger::record`] else.
macro_rules! plain_increment {
    ($ledger:path) => {
        |ledger: &Ledger<Flow>, writer: Writer, word: usize| {
            let area = ledger.area(writer);
            if area.is_null() {
                ledger.record(writer, &[(word, 1)]);
            } else {
                // SAFETY: the area is this thread's; the word is within the delta.
                unsafe { increment!($ledger, area, 8 * word, 0) }
            }
        }
    };
}

fn holds(
    ledger: &'static Ledger<Flow>,
    protocol: Protocol,
    increment: fn(&Ledger<Flow>, Writer, usize),
) {
    let Some(opened) = ledger.open(Some(protocol), None) else {
        panic!("another thread opened it")
    };
    if opened != protocol {
        eprintln!("skipped: this system gives {opened:?} instead of {protocol:?}");
        return;
    }
    let set = Set { ledger, increment };
    let outcome = hammer(&set, |outcome| {
        outcome.cuts >= 50_000 && outcome.given >= 1_000_000
    });
    assert!(
        outcome.cuts >= 1000 && outcome.given >= 50_000,
        "{outcome:?}"
    );
    assert_eq!(outcome.wrong, 0, "{outcome:?}");
    // Nothing was lost on the way: shards changed hands and processors.
    let end = ledger.read();
    assert!(end.exact);
    assert!(end.delta.together[0] * 4 == end.delta.given.iter().sum::<u64>());
}

#[test]
fn per_cpu_shards_hold() {
    static LEDGER: Ledger<Flow> = Ledger::new();
    holds(&LEDGER, Protocol::PerCpu, plain_increment!(LEDGER));
}

#[test]
fn per_thread_shards_hold() {
    static LEDGER: Ledger<Flow> = Ledger::new();
    holds(&LEDGER, Protocol::PerThread, plain_increment!(LEDGER));
}

#[test]
fn fenced_shards_hold() {
    static LEDGER: Ledger<Flow> = Ledger::new();
    holds(&LEDGER, Protocol::Fenced, plain_increment!(LEDGER));
}

#[test]
fn the_shared_shard_holds() {
    static LEDGER: Ledger<Flow> = Ledger::new();
    let set = Set {
        ledger: &LEDGER,

        increment: |ledger, _, word| ledger.record(Writer::Shared, &[(word, 1)]),
    };
    // Never opened, as before the process has set itself up.
    let outcome = hammer(&set, |outcome| {
        outcome.cuts >= 20_000 && outcome.given >= 100_000
    });
    assert_eq!(outcome.wrong, 0, "{outcome:?}");
}

#[test]
fn a_system_without_barriers_is_exact_only_with_fences() {
    static SKEWED: Ledger<Flow> = Ledger::new();
    assert_eq!(
        SKEWED.open(Some(Protocol::Skewed), None),
        Some(Protocol::Skewed)
    );
    let writer = SKEWED.enlist();
    SKEWED.record(writer, &[(0, 3)]);
    let cut = SKEWED.read();
    assert_eq!((cut.delta.given[0], cut.exact), (3, false));
}

#[test]
fn opening_twice_changes_nothing_and_counts_from_before_stay() {
    static LEDGER: Ledger<Flow> = Ledger::new();
    LEDGER.record(Writer::Shared, &[(1, 5)]);
    LEDGER.read();
    LEDGER.record(Writer::Shared, &[(1, 6)]);
    let opened = LEDGER.open(None, None);
    assert!(opened.is_some());
    assert_eq!(LEDGER.open(Some(Protocol::Fenced), None), opened);
    LEDGER.record(LEDGER.enlist(), &[(1, 7)]);
    assert_eq!(LEDGER.read().delta.given[1], 18);
}

#[test]
fn shards_are_used_again_when_their_threads_are_gone() {
    static LEDGER: Ledger<Flow> = Ledger::new();
    LEDGER.open(Some(Protocol::PerThread), None);
    for _ in 0..100 {
        std::thread::spawn(|| {
            let writer = LEDGER.enlist();
            LEDGER.record(writer, &[(0, 1)]);
            LEDGER.retire(writer);
        })
        .join()
        .unwrap();
    }
    assert_eq!(LEDGER.read().delta.given[0], 100);
    let (in_use, _) = LEDGER.shard_bytes();
    assert!(
        in_use <= 2 * SHARD_BYTES + size_of::<SharedShard<Flow>>(),
        "{in_use}"
    );
}

/// The hot parts stay where the instruction sequence expects them, and small.
#[test]
fn layouts_are_as_the_instructions_assume() {
    assert_eq!(std::mem::offset_of!(Ledger<Flow>, current), 0);
    assert_eq!(std::mem::offset_of!(Area, cpu_id_start), 0);
    assert_eq!(std::mem::offset_of!(Area, sequence), 8);
    assert_eq!((GENERATION_BYTES, SHARD_BYTES), (4096, 8192));
}

/// How the reader waits.
type Settle = fn(&dyn Shards<Flow>, Generation) -> bool;

/// A writer that is held up half-way: it says so, and goes on when it is let go.
#[derive(Default)]
struct HeldUp {
    inside: AtomicBool,
    let_go: AtomicBool,
}

impl HeldUp {
    fn wait(&self) {
        self.inside.store(true, Ordering::SeqCst);
        while !self.let_go.load(Ordering::SeqCst) {
            std::hint::spin_loop();
        }
    }
}

/// A giver is held up while it counts, and the reader comes. Then the giver finishes, what it gave
/// is taken, and the reader comes again. True if that reader sees something taken that was never
/// given.
fn is_cut_wrong(
    ledger: &Ledger<Flow>,
    settle: Settle,
    give: fn(&Ledger<Flow>, Writer, &HeldUp),
) -> bool {
    let held_up = HeldUp::default();
    let taker = ledger.enlist();
    let wrong = std::thread::scope(|scope| {
        let giver = scope.spawn(|| {
            let writer = ledger.enlist();
            give(ledger, writer, &held_up);
            ledger.retire(writer);
        });
        while !held_up.inside.load(Ordering::SeqCst) {
            std::hint::spin_loop();
        }
        // A reader that waits for the giver would wait for ever otherwise.
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(20));
            held_up.let_go.store(true, Ordering::SeqCst);
        });
        ledger.cut(settle);
        held_up.let_go.store(true, Ordering::SeqCst);
        giver.join().unwrap();
        ledger.record(taker, &[(TAKEN, 1)]);
        let cut = ledger.cut(settle).delta;
        cut.taken[0] > cut.given[0]
    });
    ledger.retire(taker);
    wrong
}

/// Counting in a restartable sequence, held up between reading the generation and the commit.
#[cfg(all(
    target_os = "linux",
    target_arch = "x86_64",
    not(any(miri, plimsoll_portable))
))]
fn give_in_sequence(ledger: &Ledger<Flow>, writer: Writer, held_up: &HeldUp) {
    let Writer::Sequence(area) = writer else {
        unreachable!("opened with per-CPU shards")
    };
    // SAFETY: as `increment`, with a loop in the middle that reads and writes flags.
    unsafe {
        std::arch::asm!(
            "771:",
            "lea {t}, [rip + 773f]",
            "mov qword ptr [{area} + 8], {t}",
            "774:",
            "imul {t:e}, dword ptr [{area}], 8192",
            "add {t}, qword ptr [{current}]",
            "mov byte ptr [{inside}], 1",
            "772:",
            "pause",
            "cmp byte ptr [{let_go}], 0",
            "je 772b",
            "inc qword ptr [{t}]",
            "775:",
            "mov qword ptr [{area} + 8], 0",
            ".pushsection .data.rel.ro.plimsoll_sequences,\"aw\"",
            ".balign 32",
            "773:",
            ".long 0, 0",
            ".quad 774b, 775b - 774b, 776f",
            ".popsection",
            ".pushsection .text.unlikely.plimsoll_sequences,\"ax\"",
            ".byte 0x0f, 0xb9, 0x3d",
            ".long 0x53053053",
            "776:",
            "jmp 771b",
            ".popsection",
            area = in(reg) area,
            current = in(reg) ledger.current.as_ptr(),
            inside = in(reg) held_up.inside.as_ptr(),
            let_go = in(reg) held_up.let_go.as_ptr(),
            t = out(reg) _,
            options(nostack),
        );
    }
}

/// A giver that loses its processor in the sequence starts over, with nothing wrong; so it takes a
/// few attempts to catch one that does not.
#[cfg(all(
    target_os = "linux",
    target_arch = "x86_64",
    not(any(miri, plimsoll_portable))
))]
#[test]
fn per_cpu_shards_without_the_barrier_are_noticed() {
    static LEDGER: Ledger<Flow> = Ledger::new();
    static SOUND: Ledger<Flow> = Ledger::new();
    if LEDGER.open(Some(Protocol::PerCpu), None) != Some(Protocol::PerCpu) {
        eprintln!("skipped: this system has no restartable sequences");
        return;
    }
    SOUND.open(Some(Protocol::PerCpu), None);
    for _ in 0..100 {
        assert!(!is_cut_wrong(
            &SOUND,
            |shards, frozen| shards.settle(frozen),
            give_in_sequence
        ));
    }
    let noticed = (0..10_000).any(|_| is_cut_wrong(&LEDGER, |_, _| true, give_in_sequence));
    assert!(noticed, "the broken ledger passed");
}

/// Counting under the flag, held up after reading the generation.
fn give_under_flag(ledger: &Ledger<Flow>, writer: Writer, held_up: &HeldUp) {
    let Writer::Shard(shard) = writer else {
        unreachable!("opened with per-thread shards")
    };
    ledger.per_thread.record(shard, &[(0, 1)], || {
        let generation = ledger.generation();
        held_up.wait();
        generation
    });
}

#[test]
fn per_thread_shards_without_the_wait_are_noticed() {
    static LEDGER: Ledger<Flow> = Ledger::new();
    static SOUND: Ledger<Flow> = Ledger::new();
    for ledger in [&LEDGER, &SOUND] {
        assert_eq!(
            ledger.open(Some(Protocol::PerThread), None),
            Some(Protocol::PerThread)
        );
    }
    for _ in 0..10 {
        assert!(!is_cut_wrong(
            &SOUND,
            |shards, frozen| shards.settle(frozen),
            give_under_flag
        ));
    }
    let settle: Settle = |_, _| membarrier::fence_all_threads();
    assert!(
        is_cut_wrong(&LEDGER, settle, give_under_flag),
        "the broken ledger passed"
    );
}

/// The generation is loaded first and stored as the flag: whoever is held up in between is not
/// seen. The same happens if the flag is raised first and its store is overtaken by the load, which
/// is what the barrier is for.
#[test]
fn the_generation_as_the_flag_is_noticed() {
    static LEDGER: Ledger<Flow> = Ledger::new();
    assert_eq!(
        LEDGER.open(Some(Protocol::PerThread), None),
        Some(Protocol::PerThread)
    );
    let give = |ledger: &Ledger<Flow>, writer: Writer, held_up: &HeldUp| {
        let Writer::Shard(shard) = writer else {
            unreachable!("opened with per-thread shards")
        };
        let generation = ledger.generation();
        held_up.wait();
        ledger.per_thread.record(shard, &[(0, 1)], || generation);
    };
    assert!(
        is_cut_wrong(&LEDGER, |shards, frozen| shards.settle(frozen), give),
        "the broken ledger passed"
    );
}

/// Both generations, shards of several threads, and an operation on several words that was only
/// noted, as the last one always is.
#[cfg(feature = "offline")]
#[test]
fn what_is_left_of_shards_is_what_a_cut_has() {
    static PER_CPU: Ledger<Flow> = Ledger::new();
    static PER_THREAD: Ledger<Flow> = Ledger::new();
    for (ledger, protocol) in [
        (&PER_CPU, Protocol::PerCpu),
        (&PER_THREAD, Protocol::PerThread),
    ] {
        if ledger.open(Some(protocol), None) != Some(protocol) {
            eprintln!("skipped: {protocol:?}");
            continue;
        }
        for round in 0..4 {
            for thread in 0..3 {
                let work = || {
                    let writer = ledger.enlist();
                    ledger.record(writer, &[(thread, 5)]);
                    ledger.record(writer, &[(thread, 1), (TOGETHER, 2), (TOGETHER + 1, 2)]);
                    // The last thread's shard is not given back, so there is more than one.
                    if thread != 2 {
                        ledger.retire(writer);
                    }
                };
                std::thread::scope(|scope| scope.spawn(work).join().unwrap());
            }
            let (first, count) = ledger.place();
            let length = match protocol {
                Protocol::PerCpu => remains::Remains::length(protocol as u64, count),
                _ => ledger.shard_bytes_committed() - SHARD_BYTES,
            };
            // SAFETY: accessible, and nobody writes there.
            let shards = unsafe { std::slice::from_raw_parts(first as *const u8, length) };
            let remains = remains::Remains {
                protocol: protocol as u64,
                shared: &[],
                shards,
                count,
            };
            let (left, in_flight) = remains.add_up::<Flow>();
            assert_eq!(in_flight, 0);
            assert_eq!(left.words(), ledger.read().delta.words(), "{protocol:?}");
            assert_eq!(left.together, [6 * (round + 1); 2]);
            assert_eq!(left.given[2], 6 * (round + 1));
        }
    }
    // One that is ended in the middle of an operation.
    let Writer::Shard(shard) = PER_THREAD.enlist() else {
        unreachable!("opened with per-thread shards")
    };
    PER_THREAD.per_thread.record(shard, &[(0, 1)], || {
        let (first, count) = PER_THREAD.place();
        let length = PER_THREAD.shard_bytes_committed() - SHARD_BYTES;
        // SAFETY: as above.
        let shards = unsafe { std::slice::from_raw_parts(first as *const u8, length) };
        let remains = remains::Remains {
            protocol: Protocol::PerThread as u64,
            shared: &[],
            shards,
            count,
        };
        assert_eq!(remains.add_up::<Flow>().1, 1);
        PER_THREAD.generation()
    });
}
