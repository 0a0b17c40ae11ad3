//! Tests of the ledger with real threads: hand-overs between threads that start and end, under
//! continuous cuts. The same tests with a part of the protocol removed must fail.

use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use plimsoll_sys::os::{membarrier, rseq::Area};

use super::*;

const LANES: usize = 16;

/// Giving is counted before taking can be, so no cut may show more taken than given. Each giving
/// also changes two words together, so no cut may show them different.
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct Flow {
    pub(super) given: [u64; LANES],
    taken: [u64; LANES],
    pub(super) together: [u64; 2],
}

const TAKEN: usize = LANES;
pub(super) const TOGETHER: usize = 2 * LANES;

// SAFETY: u64 words only.
unsafe impl Delta for Flow {
    const ZERO: Self = Self {
        given: [0; LANES],
        taken: [0; LANES],
        together: [0; 2],
    };
}

/// The way in which one test's threads write.
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

/// Runs two givers and two takers, each a new thread every few thousand operations, under
/// continuous cuts; until `enough`, or for at most a minute.
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

/// Counts with [`increment`] if the writer has an area, and with [`Ledger::record`] otherwise.
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
        plimsoll_testkit::skip!("this system gives {opened:?} instead of {protocol:?}");
        return;
    }
    assert_eq!(ledger.protocol(), Some(protocol));
    let writer = ledger.enlist();
    assert_ne!(writer, Writer::Shared);
    ledger.retire(writer);
    let set = Set { ledger, increment };
    let outcome = hammer(&set, |outcome| {
        outcome.cuts >= 50_000 && outcome.given >= 1_000_000
    });
    assert!(
        outcome.cuts >= 1000 && outcome.given >= 50_000,
        "{outcome:?}"
    );
    assert_eq!(outcome.wrong, 0, "{outcome:?}");
    // All operations are in the end result: shards changed owners and processors.
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
    // Never opened, as before the process is set up.
    let outcome = hammer(&set, |outcome| {
        outcome.cuts >= 20_000 && outcome.given >= 100_000
    });
    assert_eq!(outcome.wrong, 0, "{outcome:?}");
}

#[test]
fn the_only_thread_reads_everything_without_a_turn() {
    static LEDGER: Ledger<Flow> = Ledger::new();
    LEDGER.record(Writer::Shared, &[(0, 2)]);
    let protocol = LEDGER.open(Some(Protocol::PerCpu), None);
    let writer = LEDGER.enlist();
    let counted = |cut: Cut<Flow>| (cut.delta.given[0], cut.delta.together, cut.exact);
    for round in 1..=6 {
        // Shards of single words, of several words, and the shared shard; then turns in between.
        LEDGER.record(writer, &[(0, 1)]);
        LEDGER.record(writer, &[(TOGETHER, 1), (TOGETHER + 1, 1)]);
        LEDGER.record(Writer::Shared, &[(0, 1)]);
        let before = LEDGER.generation();
        let expected = (2 + 2 * round, [round; 2], true);
        assert_eq!(counted(LEDGER.read_alone()), expected);
        let sum = LEDGER.try_sum(true, |part| part.given[0] + part.together[1]);
        assert_eq!(sum, Some(2 + 3 * round));
        if protocol == Some(Protocol::PerCpu) {
            assert_eq!(LEDGER.generation(), before);
        }
        for _ in 0..round % 3 {
            assert_eq!(counted(LEDGER.read()), expected);
        }
    }
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

#[test]
fn generations_alternate() {
    let [zero, one] = [0, 1].map(Generation::of_index);
    assert_eq!((zero.index(), one.index()), (0, 1));
    assert_eq!((zero.other(), one.other()), (one, zero));
    assert_eq!([2, 3].map(Generation::of_index), [zero, one]);
}

#[test]
fn the_best_protocol_of_the_system_is_used() {
    static LEDGER: Ledger<Flow> = Ledger::new();
    let has_sequences = plimsoll_sys::os::rseq::area().is_some() && arch::HAS_SEQUENCES;
    let best = match membarrier::register() {
        membarrier::Support::Rseq if has_sequences => Protocol::PerCpu,
        membarrier::Support::None => Protocol::Fenced,
        _ => Protocol::PerThread,
    };
    assert_eq!(LEDGER.open(None, None), Some(best));
    assert_eq!(LEDGER.protocol(), Some(best));
}

#[test]
fn a_cut_is_exact_after_a_fence_of_the_reader_or_of_each_writer() {
    static PER_THREAD: Ledger<Flow> = Ledger::new();
    static FENCED: Ledger<Flow> = Ledger::new();
    for (ledger, protocol, without_fence) in [
        (&PER_THREAD, Protocol::PerThread, false),
        (&FENCED, Protocol::Fenced, true),
    ] {
        assert_eq!(ledger.open(Some(protocol), None), Some(protocol));
        assert_eq!(ledger.cut(|_, _| false).exact, without_fence);
        assert!(ledger.cut(|_, _| true).exact);
    }
}

#[test]
fn the_bytes_are_those_of_all_shards() {
    static PER_THREAD: Ledger<Flow> = Ledger::new();
    static PER_CPU: Ledger<Flow> = Ledger::new();
    let shared = size_of::<SharedShard<Flow>>();
    assert_eq!(PER_THREAD.shard_bytes(), (shared, shared));
    PER_THREAD.open(Some(Protocol::PerThread), None);
    let writers = [PER_THREAD.enlist(), PER_THREAD.enlist()];
    let in_use = 2 * SHARD_BYTES;
    let mapped = PER_THREAD.shard_bytes_committed();
    assert!(mapped >= in_use);
    let expected = (in_use + shared, mapped + shared);
    assert_eq!(PER_THREAD.shard_bytes(), expected);
    for writer in writers {
        PER_THREAD.retire(writer);
    }
    assert_eq!(PER_THREAD.shard_bytes(), expected);

    if PER_CPU.open(Some(Protocol::PerCpu), None) == Some(Protocol::PerCpu) {
        let (_, processors) = PER_CPU.place();
        let bytes = 2 * processors * SHARD_BYTES;
        assert_eq!(PER_CPU.shard_bytes(), (bytes + shared, bytes + shared));
        // And room for the alignment of the first.
        assert_eq!(PER_CPU.bytes_per_cpu(), bytes + SHARD_BYTES);
    }
}

/// The other threads of the parent are gone, one of them in the middle of an operation.
#[test]
fn the_child_of_a_fork_takes_the_shards_of_other_threads() {
    for protocol in [Protocol::PerThread, Protocol::Fenced] {
        let ledger: &Ledger<Flow> = Box::leak(Box::new(Ledger::new()));
        ledger.open(Some(protocol), None);
        let (own, other) = (ledger.enlist(), ledger.enlist());
        let (Writer::Shard(shard) | Writer::FencedShard(shard)) = other else {
            unreachable!("opened with per-thread shards")
        };
        for (writer, amount) in [(own, 1), (other, 2), (Writer::Shared, 4)] {
            ledger.record(writer, &[(0, amount)]);
        }
        let area = ledger.per_thread.area(shard);
        // SAFETY: the area is the shard's, which stays mapped.
        unsafe { (*area).sequence = 1 };
        ledger.after_fork_in_child(own);
        assert!(!ledger.per_thread.is_writing(shard));
        assert_eq!(ledger.enlist(), other);
        assert!(![own, other].contains(&ledger.enlist()));
        assert_eq!(ledger.read().delta.given[0], 7);
    }
}

#[test]
fn a_child_whose_shards_are_fresh_goes_on_from_the_counts_of_its_parent() {
    static LEDGER: Ledger<Flow> = Ledger::new();
    LEDGER.open(Some(Protocol::PerThread), None);
    let writers = [LEDGER.enlist(), LEDGER.enlist()];
    for writer in writers {
        LEDGER.record(writer, &[(0, 3)]);
    }
    LEDGER.read();
    {
        let mut reader = LEDGER.lock_readers();
        let counted = LEDGER.read_locked(&mut reader).delta;
        let (first, _) = LEDGER.place();
        // SAFETY: the shards are mapped, and only this thread uses them.
        unsafe { std::ptr::write_bytes(first as *mut u8, 0, 2 * SHARD_BYTES) };
        LEDGER.begin_anew(&mut reader, &counted);
    }
    for writer in writers {
        // SAFETY: the area is this thread's; both words are within the delta.
        unsafe { LEDGER.record_pair(LEDGER.area(writer), [(0, 1), (1, 1)]) };
    }
    for _ in 0..2 {
        let given = LEDGER.read().delta.given;
        assert_eq!((given[0], given[1]), (8, 2));
    }
}

/// The hot fields stay where the instruction sequence expects them, and stay small.
#[test]
fn layouts_are_as_the_instructions_assume() {
    assert_eq!(std::mem::offset_of!(Ledger<Flow>, current), 0);
    assert_eq!(std::mem::offset_of!(Area, cpu_id_start), 0);
    assert_eq!(std::mem::offset_of!(Area, sequence), 8);
    assert_eq!((GENERATION_BYTES, SHARD_BYTES), (4096, 8192));
}

/// The reader's second step.
type Settle = fn(&dyn Shards<Flow>, Generation) -> bool;

/// A writer that is suspended half-way: it reports that, and continues when it is released.
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

/// Suspends a giver while it counts, and takes a cut. Then the giver finishes, its gift is taken,
/// and a second cut follows. Returns true if that cut shows something taken that was never given.
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
        // Otherwise a reader that waits for the giver would wait forever.
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

/// Returns whether one of several attempts finds a wrong cut. On a busy machine, a giver may be let go
/// before the cut.
fn is_noticed(is_cut_wrong: impl Fn() -> bool) -> bool {
    (0..100).any(|_| is_cut_wrong())
}

/// Counts in a restartable sequence, suspended between the load of the generation and the commit.
fn give_in_sequence(ledger: &Ledger<Flow>, writer: Writer, held_up: &HeldUp) {
    let Writer::Sequence(area) = writer else {
        unreachable!("opened with per-CPU shards")
    };
    // SAFETY: area and ledger are the calling thread's; the flags outlive the call.
    unsafe {
        arch::count_held_up(
            area,
            ledger.current.as_ptr(),
            &held_up.inside,
            &held_up.let_go,
        )
    }
}

/// A giver that is preempted in the sequence starts over, and no cut is wrong; so it takes a few
/// attempts to catch one that is not preempted.
#[test]
fn per_cpu_shards_without_the_barrier_are_noticed() {
    static LEDGER: Ledger<Flow> = Ledger::new();
    static SOUND: Ledger<Flow> = Ledger::new();
    if LEDGER.open(Some(Protocol::PerCpu), None) != Some(Protocol::PerCpu) {
        plimsoll_testkit::skip!("this system has no restartable sequences");
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

/// Counts under the flag, suspended after the load of the generation.
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
        is_noticed(|| is_cut_wrong(&LEDGER, settle, give_under_flag)),
        "the broken ledger passed"
    );
}

/// The generation is loaded first and stored as the flag: the reader misses a writer that is
/// suspended in between. The same happens if the flag is raised first and the load overtakes its
/// store, which the barrier prevents.
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
        is_noticed(|| is_cut_wrong(&LEDGER, |shards, frozen| shards.settle(frozen), give)),
        "the broken ledger passed"
    );
}

/// The flag of the interrupted operation is up, and its thread reads in the signal handler.
#[test]
fn a_reader_does_not_wait_for_a_discarded_operation() {
    static LEDGER: Ledger<Flow> = Ledger::new();
    assert_eq!(
        LEDGER.open(Some(Protocol::PerThread), None),
        Some(Protocol::PerThread)
    );
    let writer = LEDGER.enlist();
    LEDGER.record(writer, &[(0, 1)]);
    // SAFETY: the area is the thread's shard, which stays mapped.
    unsafe { (*LEDGER.area(writer)).sequence = 1 };
    LEDGER.discard_interrupted(writer);
    assert_eq!(LEDGER.read().delta.given[0], 1);
}

#[test]
fn a_signal_handler_leaves_the_flag_of_the_operation_up_that_it_interrupts() {
    static HANDLED: Ledger<Flow> = Ledger::new();
    /// Counts as the hooks in a signal handler do.
    #[inline(never)]
    fn count_in_handler(writer: Writer) {
        HANDLED.record(writer, &[(0, 1), (1, 1)]);
        // SAFETY: the area is this thread's, and the positions are in the delta.
        unsafe {
            HANDLED.record_pair(HANDLED.area(writer), [(0, 1), (1, 1)]);
            increment!(HANDLED, HANDLED.area(writer), 0_usize, 0);
        }
    }
    HANDLED.open(Some(Protocol::PerThread), None);
    let writer = HANDLED.enlist();
    let Writer::Shard(shard) = writer else {
        unreachable!("opened with per-thread shards")
    };
    let is_writing = || HANDLED.per_thread.is_writing(shard);
    HANDLED.per_thread.record(shard, &[(0, 1)], || {
        count_in_handler(writer);
        assert!(is_writing());
        HANDLED.generation()
    });
    assert!(!is_writing());
    assert_eq!(HANDLED.read().delta.given[0], 4);
}

/// A handler may leave by a jump over the operation.
#[test]
fn the_flag_of_an_operation_that_was_left_comes_down_with_the_next() {
    static LEDGER: Ledger<Flow> = Ledger::new();
    LEDGER.open(Some(Protocol::PerThread), None);
    let writer = LEDGER.enlist();
    let Writer::Shard(shard) = writer else {
        unreachable!("opened with per-thread shards")
    };
    let left = std::panic::catch_unwind(|| {
        // The operation that is left lies deeper in the stack than the next.
        let below = std::hint::black_box([0_u8; 1 << 14]);
        LEDGER.per_thread.record(shard, &[(0, 1)], || {
            std::hint::black_box(&below);
            std::panic::resume_unwind(Box::new(()))
        });
    });
    assert!(left.is_err() && LEDGER.per_thread.is_writing(shard));
    LEDGER.record(writer, &[(0, 1)]);
    assert!(!LEDGER.per_thread.is_writing(shard));
}
