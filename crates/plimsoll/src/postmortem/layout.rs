//! How the file is laid out: what its writer and its reader have to agree on.
//!
//! ```text
//!   header | shared shard | notes | table of stacks | per-CPU shards | per-thread shards
//! ```
//!
//! The header is a page of words, and says where the rest is. All of it is as it is in memory, in
//! the byte order of the machine, with holes where nothing was written.

/// The words of the header, by number.
pub(crate) mod word {
    /// [`super::MAGIC`].
    pub(crate) const MAGIC: usize = 0;
    /// [`super::VERSION`].
    pub(crate) const VERSION: usize = 1;
    /// Sizes and counts that the rest is made of: see [`super::shape`].
    pub(crate) const SHAPE: usize = 2;
    /// Of the file, in bytes.
    pub(crate) const LENGTH: usize = 3;
    /// Offset and length of each part, in bytes.
    pub(crate) const SHARED: usize = 4;
    pub(crate) const NOTES: usize = 6;
    pub(crate) const TABLE: usize = 8;
    pub(crate) const PER_CPU: usize = 10;
    pub(crate) const PER_THREAD: usize = 12;
    /// How the ledger counts: 0 if it is not open yet.
    pub(crate) const PROTOCOL: usize = 14;
    /// The offset of the first shard, and how many there are room for.
    pub(crate) const FIRST_SHARD: usize = 15;
    pub(crate) const SHARDS: usize = 16;
    pub(crate) const PROCESS: usize = 17;
    /// In nanoseconds since 1970.
    pub(crate) const BEGAN: usize = 18;
    /// The same; 0 if it was not by `exit`.
    pub(crate) const ENDED: usize = 19;
    /// Mean bytes between samples.
    pub(crate) const HEAP_RATE: usize = 20;
    /// How many frames are kept of a stack.
    pub(crate) const STACK_DEPTH: usize = 21;
    /// Bytes of notes that are complete.
    pub(crate) const NOTES_USED: usize = 22;
    /// Notes that there was no room for.
    pub(crate) const NOTES_LOST: usize = 23;
    /// Events that were recorded without a stack, and sampled blocks whose free is not noticed.
    pub(crate) const WITHOUT_STACK: usize = 24;
    pub(crate) const UNTRACKED: usize = 25;
    /// Events whose stack ends in code that could not be unwound.
    pub(crate) const CUT_STACKS: usize = 26;
    /// Children made by a system call of the program's own that counted in the file.
    pub(crate) const STRAYS: usize = 27;
}

/// How a file begins.
pub(crate) const MAGIC: [u8; 8] = *b"plimpost";

/// To be changed with anything that [`shape`] does not tell.
pub(crate) const VERSION: u64 = 1;

pub(crate) const HEADER_BYTES: usize = 4096;

/// Two generations, and what was counted before there was a file.
pub(crate) const SHARED_BYTES: usize = 3 * crate::ledger::GENERATION_BYTES;

pub(crate) const NOTES_BYTES: usize = 1 << 20;

/// Of per-thread shards, which few systems need: threads beyond that share one.
pub(crate) const MOST_THREADS: usize = 4096;

/// What a note says: the first word of each, in its lower half; its length in bytes, without that
/// word, in the upper. Notes begin on multiples of eight.
pub(crate) mod note {
    /// The program's path.
    pub(crate) const PROGRAM: u32 = 1;
    /// Code that was mapped: start, limit, offset in its file; lengths of the build id in
    /// hexadecimal and of the path, and both.
    pub(crate) const MODULE: u32 = 2;
    /// A set of labels: its number, and for each key and value in turn a length, and the text.
    pub(crate) const LABELS: u32 = 3;
}

/// A number that is another one if entries, shards or counts are of other sizes.
pub(crate) const fn shape() -> u64 {
    let [entry, cells, slots, head] = crate::stack::SHAPE;
    let parts = [
        entry,
        cells,
        slots,
        head,
        <crate::alloc::counts::HeapDelta as crate::ledger::Delta>::WORDS,
        crate::alloc::size_class::CLASSES,
        crate::ledger::SHARD_BYTES,
        crate::sampler::WEIGHT_BITS as usize,
    ];
    let mut shape = 0u64;
    let mut at = 0;
    while at < parts.len() {
        shape = (shape ^ parts[at] as u64).wrapping_mul(0x0000_0100_0000_01b3);
        at += 1;
    }
    shape
}
