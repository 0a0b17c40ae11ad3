//! A program whose C code uses the same mimalloc, as with that library's `override`: blocks of C code are not memory that the
//! allocator holds without a block.

use plimsoll::stats::backend::MiMalloc;
use plimsoll_checks::profile::read_profile;

#[global_allocator]
static ALLOC: plimsoll::Alloc<MiMalloc> = plimsoll::Alloc::mimalloc();

/// The functions of the C library that allocate, over mimalloc.
#[cfg(target_os = "linux")]
mod malloc {
    use std::ffi::{c_int, c_void};

    unsafe extern "C" {
        fn mi_malloc(size: usize) -> *mut c_void;
        fn mi_calloc(count: usize, size: usize) -> *mut c_void;
        fn mi_realloc(block: *mut c_void, size: usize) -> *mut c_void;
        fn mi_free(block: *mut c_void);
        fn mi_memalign(alignment: usize, size: usize) -> *mut c_void;
        fn mi_posix_memalign(to: *mut *mut c_void, alignment: usize, size: usize) -> c_int;
    }

    /// Defines functions with the name and the meaning of the C library's.
    macro_rules! over_mimalloc {
        ($($name:ident = $to:ident($($argument:ident: $kind:ty),*) $(-> $result:ty)?;)*) => {
            $(
                #[unsafe(no_mangle)]
                unsafe extern "C" fn $name($($argument: $kind),*) $(-> $result)? {
                    // SAFETY: the caller keeps the rules of the C library's function, which are those of mimalloc's.
                    unsafe { $to($($argument),*) }
                }
            )*
        };
    }

    over_mimalloc! {
        malloc = mi_malloc(size: usize) -> *mut c_void;
        calloc = mi_calloc(count: usize, size: usize) -> *mut c_void;
        realloc = mi_realloc(block: *mut c_void, size: usize) -> *mut c_void;
        free = mi_free(block: *mut c_void);
        memalign = mi_memalign(alignment: usize, size: usize) -> *mut c_void;
        aligned_alloc = mi_memalign(alignment: usize, size: usize) -> *mut c_void;
        posix_memalign = mi_posix_memalign(to: *mut *mut c_void, alignment: usize, size: usize) -> c_int;
    }
}

#[cfg(target_os = "linux")]
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
    assert!(others >= (BLOCKS * SIZE) as u64, "{full}");
    assert_eq!(bytes("[heap: slack of blocks]"), 0, "{full}");
    for block in blocks {
        // SAFETY: each block is freed once.
        unsafe { libc::free(block as *mut _) };
    }
}
