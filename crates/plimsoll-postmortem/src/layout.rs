//! The layout of the file, shared by its writer and its reader.
//!
//! ```text
//!   header | shared shard | notes | table of stacks | history | per-CPU shards | per-thread shards
//! ```
//!
//! The header is a page of words in the byte order of the machine. It holds the offsets of the
//! other parts, and a [`Layout`] that describes the data structures in them. The other parts are
//! the writer's data structures as they are in memory, with holes where nothing was written. The
//! [`history`] and the account at the [`maximum`] are written for the reader alone.

pub mod history;
pub mod maximum;

/// The first eight bytes of the file.
pub const MAGIC: [u8; 8] = *b"plimpost";

/// The version of the layout. It changes with everything that [`Layout`] does not describe.
pub const VERSION: u64 = 6;

/// The size of the header in bytes.
pub const HEADER_BYTES: usize = 4096;

/// The maximum size of the notes in bytes.
pub const NOTES_BYTES: usize = 1 << 20;

/// Indices of the words of the header.
pub mod word {
    /// [`super::MAGIC`].
    pub const MAGIC: usize = 0;
    /// [`super::VERSION`].
    pub const VERSION: usize = 1;
    /// The length of the file in bytes.
    pub const LENGTH: usize = 3;
    /// Offset and length of the shared shard, in bytes.
    pub const SHARED: usize = 4;
    /// Offset and length of the notes, in bytes.
    pub const NOTES: usize = 6;
    /// Offset and length of the table of stacks, in bytes.
    pub const TABLE: usize = 8;
    /// Offset and length of the per-CPU shards, in bytes.
    pub const PER_CPU: usize = 10;
    /// Offset and length of the per-thread shards, in bytes.
    pub const PER_THREAD: usize = 12;
    /// A [`super::protocol`]; 0 before the ledger is open.
    pub const PROTOCOL: usize = 14;
    /// The offset of the first shard in bytes.
    pub const FIRST_SHARD: usize = 15;
    /// The number of shards that have space.
    pub const SHARDS: usize = 16;
    /// The id of the process.
    pub const PROCESS: usize = 17;
    /// The start of the process in nanoseconds since 1970.
    pub const BEGAN: usize = 18;
    /// The time of the process's call of `exit` in nanoseconds since 1970; 0 before that.
    pub const ENDED: usize = 19;
    /// Mean number of bytes between samples.
    pub const HEAP_RATE: usize = 20;
    /// The maximum number of frames that are shown of a stack.
    pub const STACK_DEPTH: usize = 21;
    /// The size of the complete notes in bytes.
    pub const NOTES_USED: usize = 22;
    /// The number of notes that did not fit.
    pub const NOTES_LOST: usize = 23;
    /// The number of events that were recorded without a stack.
    pub const WITHOUT_STACK: usize = 24;
    /// The number of sampled blocks whose free was not recorded.
    pub const UNTRACKED: usize = 25;
    /// The number of events whose stack ends in code that could not be unwound.
    pub const CUT_STACKS: usize = 26;
    /// The number of children made by a raw system call that counted in the file.
    pub const STRAYS: usize = 27;
    /// Offset and length of the [`super::history`], in bytes. The length is 0 without one.
    pub const HISTORY: usize = 28;
    /// The number of mappings that could not be recorded.
    pub const LOST_MAPPINGS: usize = 30;
    /// The number of events whose stack is deeper than its limit.
    pub const SHORTENED_STACKS: usize = 31;
    /// The first word of the [`super::Layout`].
    pub const LAYOUT: usize = 32;
    /// The size of the first size class in bytes. The sizes of the other classes follow;
    /// [`super::CounterLayout`] holds their number.
    pub const CLASS_SIZES: usize = 128;
    /// The first word of the account at the [`super::maximum`], behind the sizes of all classes.
    pub const MAXIMUM: usize = CLASS_SIZES + super::MAX_CLASSES;
}

/// The maximum number of size classes.
pub const MAX_CLASSES: usize = 256;

const _: () = assert!(word::LAYOUT + Layout::WORDS <= word::CLASS_SIZES);
const _: () = assert!(8 * (word::MAXIMUM + maximum::WORDS) <= HEADER_BYTES);

/// The protocols by which threads count.
pub mod protocol {
    /// One shard per CPU, in two rows, with a redo log in the second.
    pub const PER_CPU: u64 = 2;
    /// One shard per thread. Every higher number means the same.
    pub const PER_THREAD: u64 = 3;
}

/// The kinds of notes. A note begins at a multiple of eight bytes. Its first word holds its kind in
/// the lower half, and its length in bytes without that word in the upper half.
pub mod note {
    /// The program's path.
    pub const PROGRAM: u32 = 1;
    /// Mapped code: start, limit and file offset as words; the lengths of the hexadecimal build id
    /// and of the path as half words; both texts.
    pub const MODULE: u32 = 2;
    /// A set of labels: its number, then for each key and each value its length and its text.
    pub const LABELS: u32 = 3;
    /// A function of an interpreter: half words with its number, its first line and the length of its
    /// name, then the name, then the path of its file.
    pub const FUNCTION: u32 = 4;
    /// A frame of such a function: the address that stands for it as a word, then half words with the
    /// number of the function and the line.
    pub const FRAME: u32 = 5;
    /// The allocator that is observed: the length of its name as a half word and the name, then why the
    /// functions of an allocator in the program are not redirected.
    pub const ALLOCATOR: u32 = 6;
}

/// Defines a struct of words that can be written to the header and read from it.
macro_rules! words {
    ($(#[$attributes:meta])* $name:ident { $($(#[$field_attributes:meta])* $field:ident,)* }) => {
        $(#[$attributes])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct $name {
            $($(#[$field_attributes])* pub $field: usize,)*
        }

        impl $name {
            /// The number of words.
            pub const WORDS: usize = [$(stringify!($field)),*].len();

            fn put(&self, words: &mut impl FnMut(usize)) {
                $(words(self.$field);)*
            }

            fn take(words: &mut impl FnMut() -> usize) -> Self {
                Self { $($field: words(),)* }
            }
        }
    };
}

words! {
    /// The shards of the ledger. Offsets and sizes are in bytes.
    LedgerLayout {
        /// The size of a generation; a shard has two.
        generation_bytes,
        /// The offset of the redo log in a generation of a per-CPU shard. The log is a word of
        /// packed counter indices, 16 bits each, then as many values.
        log,
        /// The number of values in a redo log, 1 to 4.
        log_entries,
        /// The offset of a per-thread shard's index in its first generation.
        shard_index,
        /// The offset of the flag of an operation in progress in the first generation of a
        /// per-thread shard.
        shard_active,
    }
}

words! {
    /// The indices of the counters of a generation.
    CounterLayout {
        /// The number of counters.
        counters,
        /// The number of size classes, at most [`MAX_CLASSES`].
        classes,
        /// The first counter of allocations by class.
        mallocs,
        /// The first counter of frees by class.
        frees,
        /// Allocations of blocks larger than all classes.
        large_mallocs,
        /// Frees of blocks larger than all classes.
        large_frees,
        /// Allocated bytes of blocks larger than all classes.
        large_malloc_bytes,
        /// Freed bytes of blocks larger than all classes.
        large_free_bytes,
    }
}

words! {
    /// The table of stacks. Offsets and sizes are in bytes; names are offsets in units.
    TableLayout {
        /// The unit of names in bytes.
        unit,
        /// Offset in the table: the number of bytes in use, a word.
        used,
        /// Offset: the number of events without space in the table, a word.
        overflowed,
        /// Offset: the names of the overflow buckets, half words.
        overflow,
        /// The number of overflow buckets.
        kinds,
        /// Offset: the name of the newest bucket, a half word.
        newest,
        /// Offset: the name of the bucket that is being folded, a half word; 0 for none.
        folded,
        /// Offset: the slot that is being folded, a word.
        folded_slot,
        /// Offset: the bucket's totals after this fold, words.
        folded_totals,
        /// Offset: the number of the last peak, a word.
        peak,
        /// The size of a bucket.
        bucket_bytes,
        /// Offset in a bucket: the size of each block, a word; 0 for mixed sizes.
        bucket_size,
        /// Offset in a bucket: the name of the next older bucket, a half word; 0 for none.
        bucket_before,
        /// Offset in a bucket: the name of its stack, a half word; 0 for the empty stack.
        bucket_stack,
        /// Offset in a bucket: the number of its label set, a half word; 0 for none.
        bucket_labels,
        /// Offset in a bucket: its kind, a byte.
        bucket_kind,
        /// Offset in a bucket: the number of events in progress, a half word.
        bucket_in_flight,
        /// Offset in a bucket: folded counts, words.
        bucket_totals,
        /// Offset in a bucket: counts that are not folded yet, rows of words.
        bucket_slots,
        /// The number of these rows.
        slots,
        /// The number of counts in a row.
        cells,
        /// Offset in a bucket: current weight and bytes in use, words.
        bucket_now,
        /// Offset in a bucket: weight and bytes in use at a peak, words.
        bucket_then,
        /// Offset in a bucket: the number of that peak, a word.
        bucket_peak,
        /// The kind of the heap profile's buckets.
        heap_kind,
        /// The index in a row of the count of sampled allocations.
        malloc_samples,
        /// The index of the weight of sampled allocations, in units of 2^-16 objects.
        malloc_weight,
        /// The index of the weighted bytes of sampled allocations.
        malloc_bytes,
        /// The index of the count of sampled frees.
        free_samples,
        /// The index of the weight of sampled frees.
        free_weight,
        /// The index of the weighted bytes of sampled frees.
        free_bytes,
        /// The kind of buckets of mappings that the program made directly.
        mapping_kind,
        /// The index of the number of calls that mapped memory.
        mapping_calls,
        /// The index of the bytes that they mapped.
        mapping_bytes,
        /// The index of the bytes of these that were unmapped.
        mapping_bytes_gone,
        /// The index of the number of ranges: one for each call, and one more where the middle of a
        /// range was unmapped.
        mapping_ranges,
        /// The index of the number of ranges that were unmapped.
        mapping_ranges_gone,
        /// The size of a stack's header. Its return addresses follow as words; 1 stands for frames that are
        /// left out.
        stack_bytes,
        /// Offset in a stack: the number of its return addresses, a half word.
        stack_length,
        /// The maximum number of return addresses of a stack.
        max_frames,
    }
}

/// The layout of the writer's data structures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Layout {
    /// The shards.
    pub ledger: LedgerLayout,
    /// The counters in a shard.
    pub counters: CounterLayout,
    /// The table of stacks.
    pub table: TableLayout,
}

impl Layout {
    /// The number of words.
    pub const WORDS: usize = LedgerLayout::WORDS + CounterLayout::WORDS + TableLayout::WORDS;

    /// Calls `each` with each word, in the order of the header. Allocates nothing.
    pub fn put(&self, mut each: impl FnMut(usize)) {
        self.ledger.put(&mut each);
        self.counters.put(&mut each);
        self.table.put(&mut each);
    }

    /// Reads a layout from the first [`Layout::WORDS`] words. Returns `None` if words are missing
    /// or if the layout is impossible.
    pub fn take(words: &[u64]) -> Option<Self> {
        let mut words = words.iter();
        // Every number is an offset in a small structure, or the size of one. With this limit, sums
        // and products with a name, which has 32 bits, do not overflow.
        let mut possible = true;
        let mut next = || {
            let word = words.next().copied().unwrap_or(u64::MAX);
            possible &= word <= MAX_WORD;
            word.min(MAX_WORD) as usize
        };
        let layout = Self {
            ledger: LedgerLayout::take(&mut next),
            counters: CounterLayout::take(&mut next),
            table: TableLayout::take(&mut next),
        };
        (possible && layout.is_possible()).then_some(layout)
    }

    fn is_possible(&self) -> bool {
        let Self {
            ledger,
            counters,
            table,
        } = self;
        let last_counter = [
            counters.mallocs + counters.classes,
            counters.frees + counters.classes,
            counters.large_mallocs + 1,
            counters.large_frees + 1,
            counters.large_malloc_bytes + 1,
            counters.large_free_bytes + 1,
        ];
        let cells = [
            table.malloc_samples,
            table.malloc_weight,
            table.malloc_bytes,
            table.free_samples,
            table.free_weight,
            table.free_bytes,
            table.mapping_calls,
            table.mapping_bytes,
            table.mapping_bytes_gone,
            table.mapping_ranges,
            table.mapping_ranges_gone,
        ];
        // The minimum sizes keep the memory for shards and buckets near the size of the file.
        ledger.generation_bytes >= 64
            && (1..=4).contains(&ledger.log_entries)
            && ledger.log + 8 * (1 + ledger.log_entries) <= ledger.generation_bytes
            && 8 * counters.counters <= ledger.generation_bytes
            && counters.classes <= MAX_CLASSES
            && last_counter.iter().all(|&last| last <= counters.counters)
            && table.unit > 0
            && table.bucket_bytes >= 128
            && table.slots <= 16
            && table.cells <= 16
            && table.kinds <= 256
            && cells.iter().all(|&cell| cell < table.cells)
    }
}

/// The largest valid word of a [`Layout`].
const MAX_WORD: u64 = 1 << 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layouts_are_taken_as_they_were_put_and_impossible_ones_refused() {
        let layout = Layout {
            ledger: LedgerLayout {
                generation_bytes: 4096,
                log: 4032,
                log_entries: 4,
                ..LedgerLayout::default()
            },
            counters: CounterLayout {
                counters: 10,
                ..CounterLayout::default()
            },
            table: TableLayout {
                unit: 16,
                bucket_bytes: 400,
                cells: 6,
                max_frames: 1000,
                ..TableLayout::default()
            },
        };
        let mut words = Vec::new();
        layout.put(|word| words.push(word as u64));
        assert_eq!(words.len(), Layout::WORDS);
        assert_eq!(Layout::take(&words), Some(layout));
        assert_eq!(Layout::take(&words[..words.len() - 1]), None);
        for (at, wrong) in [(0, 8), (2, 5), (5, 4096), (13, 0)] {
            let mut words = words.clone();
            words[at] = wrong;
            assert_eq!(Layout::take(&words), None, "word {at} is {wrong}");
        }
        for at in 0..words.len() {
            let mut words = words.clone();
            words[at] = u64::MAX;
            assert_eq!(Layout::take(&words), None, "word {at}");
        }
    }
}
