//! Functions that mimalloc 3.3 exports and its crate does not declare.

use std::ffi::{c_int, c_long, c_void};

// Links the library that defines them.
use libmimalloc_sys as _;

/// mimalloc's statistics; only the fields used here are named individually.
#[repr(C)]
pub(super) struct Statistics {
    size: usize,
    version: usize,
    pages: [i64; 3],
    pub(super) reserved: Amount,
    committed: Amount,
    purges: [i64; 2],
    counts_of_pages: [i64; 18],
    calls: [i64; 4],
    pub(super) arenas: i64,
    rest: [i64; 510],
}

#[repr(C)]
pub(super) struct Amount {
    total: i64,
    peak: i64,
    pub(super) current: i64,
}

const _: () = assert!(size_of::<Statistics>() == 4368);

/// The version of the layout of [`Statistics`].
const VERSION: usize = 5;

pub(super) type CommitFunction =
    unsafe extern "C" fn(bool, *mut c_void, usize, *mut bool, *mut c_void) -> bool;

/// mimalloc's figures of a page, in bytes.
#[repr(C)]
pub(super) struct Area {
    pub(super) blocks: *mut c_void,
    /// Bytes reserved for blocks, bytes with blocks in them, and the number of blocks in use.
    pub(super) reserved: usize,
    pub(super) committed: usize,
    pub(super) used: usize,
    block_size: usize,
    /// The size of a block, including padding.
    pub(super) full_block_size: usize,
    page: *mut c_void,
}

pub(super) type VisitFunction =
    unsafe extern "C" fn(*const c_void, *const Area, *mut c_void, usize, *mut c_void) -> bool;

/// Options, by their numbers in mimalloc 3.3.
pub(super) const ARENA_EAGER_COMMIT: c_int = 4;
pub(super) const PURGE_DECOMMITS: c_int = 5;
pub(super) const ALLOW_LARGE_OS_PAGES: c_int = 6;
pub(super) const DISALLOW_ARENA_ALLOC: c_int = 26;
pub(super) const VISIT_ABANDONED: c_int = 28;
pub(super) const PAGE_COMMIT_ON_DEMAND: c_int = 40;
pub(super) const ALLOW_THP: c_int = 43;

unsafe extern "C" {
    pub(super) fn mi_version() -> c_int;
    pub(super) fn mi_process_init();
    pub(super) fn mi_collect(force: bool);
    pub(super) fn mi_option_get(option: c_int) -> c_long;
    pub(super) fn mi_good_size(size: usize) -> usize;
    pub(super) fn mi_heap_visit_blocks(
        heap: *mut c_void,
        each_block: bool,
        visit: VisitFunction,
        argument: *mut c_void,
    ) -> bool;
    fn mi_subproc_main() -> *mut c_void;
    fn mi_subproc_stats_get_exclusive(process: *mut c_void, statistics: *mut Statistics) -> bool;
    pub(super) fn mi_manage_memory(
        start: *mut c_void,
        size: usize,
        is_committed: bool,
        is_pinned: bool,
        is_zero: bool,
        numa_node: c_int,
        exclusive: bool,
        commit: CommitFunction,
        argument: *mut c_void,
        arena: *mut *mut c_void,
    ) -> bool;
}

impl Statistics {
    /// Reads the counters of the whole process: copies some KiB, without a lock. `None` if this
    /// mimalloc has a different layout.
    pub(super) fn read() -> Option<Self> {
        // SAFETY: all zeros is a value of this type. mimalloc refuses a structure of another size
        // or version, which are at the beginning.
        unsafe {
            let mut statistics: Self = std::mem::zeroed();
            statistics.size = size_of::<Self>();
            statistics.version = VERSION;
            let copied = mi_subproc_stats_get_exclusive(mi_subproc_main(), &raw mut statistics);
            copied.then_some(statistics)
        }
    }
}
