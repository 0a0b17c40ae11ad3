//! The free lists of processors or threads, which hold the exact counts of the operations on them.
//!
//! # The word of a list
//! A list is a stack of free blocks. One word has the number of blocks in its low 16 bits, and above
//! them the number of allocations: an allocation takes a block and counts itself by one store, and
//! so does a free. Blocks also move in batches, to and from the central list. Then
//!
//! ```text
//!     allocations = allocations in the word + those of earlier batches
//!     frees       = allocations + blocks in the list - blocks moved in + blocks moved out
//! ```
//!
//! A batch changes the word and two sums, `moved` and `allocated`. Each list has two pairs of sums, and
//! the word's highest bit selects one. A batch writes the other pair, and then the word: again, one
//! store changes everything. It also takes the number of allocations out of the word, so that the
//! number does not overflow: between two batches or snapshots, 2^47 allocations have room.
//!
//! # Processors and threads
//! A *slot* has a list for each class. An operation announces itself in its thread's *area*, loads the
//! number of the slot from there, and then `CURRENT`, the address of slot 0. The area is one of two kinds:
//!
//! * The kernel's for restartable sequences. The slot belongs to the processor. If the thread loses
//!   it, its operation starts over: nothing has changed before the last store.
//! * One of the heap, where the system has no such sequences. The slot belongs to the thread, and
//!   the announcement is a flag for the reader of a snapshot.
//!
//! # Closed lists
//! For a snapshot, the reader stores the address of the *closed* slots into `CURRENT`: these have no
//! blocks and no places for any, so each operation goes to the central lists. After a barrier, the lists
//! do not change until the reader opens them again. No thread waits for that.

pub(crate) mod arch;
pub(crate) mod areas;
pub(crate) mod list;
pub(crate) mod slots;
