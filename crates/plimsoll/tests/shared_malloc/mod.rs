//! C code that uses the allocator of the program, as with an allocator that is built to replace `malloc`: blocks of C code are not
//! memory that the allocator holds without a block.

use std::ffi::{c_int, c_void};

use plimsoll_checks::profile::read_profile;

/// Defines functions with the name and the meaning of the C library's over those of the allocator.
macro_rules! over_theirs {
    ($($name:ident = $to:ident($($argument:ident: $kind:ty),*) $(-> $result:ty)?;)*) => {
        $(
            #[unsafe(no_mangle)]
            unsafe extern "C" fn $name($($argument: $kind),*) $(-> $result)? {
                // SAFETY: the caller keeps the rules of the C library's function, which are those of the allocator's.
                unsafe { crate::theirs::$to($($argument),*) }
            }
        )*
    };
}

over_theirs! {
    malloc = malloc(size: usize) -> *mut c_void;
    calloc = calloc(count: usize, size: usize) -> *mut c_void;
    realloc = realloc(block: *mut c_void, size: usize) -> *mut c_void;
    free = free(block: *mut c_void);
    memalign = memalign(alignment: usize, size: usize) -> *mut c_void;
    aligned_alloc = memalign(alignment: usize, size: usize) -> *mut c_void;
    posix_memalign = posix_memalign(to: *mut *mut c_void, alignment: usize, size: usize) -> c_int;
}

#[test]
fn blocks_of_c_code_are_not_called_held() {
    const BLOCKS: usize = 500;
    const SIZE: usize = 100 << 10;
    let blocks: Vec<usize> = (0..BLOCKS)
        .map(|_| {
            // SAFETY: the block has `SIZE` bytes.
            unsafe {
                let block = libc::malloc(SIZE);
                assert!(!block.is_null());
                libc::memset(block, 1, SIZE);
                block as usize
            }
        })
        .collect();
    let full = plimsoll::reconcile();
    let row = |name: &str| full.rows.iter().find(|row| row.name == name);
    assert!(row("heap: held or fragmented").is_none(), "{full}");
    let of_others = row("heap: held, fragmented or of other code").expect("a row");
    assert!(of_others.resident >= (BLOCKS * SIZE) as u64, "{full}");
    let memory = read_profile("memory");
    let bytes = |category: &str| -> u64 {
        let samples = memory.sample.iter();
        let samples = samples.filter(|sample| memory.names(sample).contains(&category));
        samples.map(|sample| sample.value[0] as u64).sum()
    };
    let others = bytes("[heap: free, or blocks of other code]");
    // jemalloc counts a page for each of these blocks as free space.
    assert!(others >= (BLOCKS * SIZE / 100 * 95) as u64, "{full}");
    assert_eq!(bytes("[heap: slack of blocks]"), 0, "{full}");
    for block in blocks {
        // SAFETY: each block is freed once.
        unsafe { libc::free(block as *mut _) };
    }
}
