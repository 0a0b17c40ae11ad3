//! A program for tests of the emulated machine, of `cargo xtask test-aarch64`. Its argument says
//! how it ends. It prints summaries as a test binary does.

use std::ffi::{c_char, c_void};
use std::process::ExitCode;

unsafe extern "C" {
    fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void;
}

fn main() -> ExitCode {
    let behaviour = std::env::args().nth(1).unwrap_or_default();
    let is_emulated = std::env::var_os("PLIMSOLL_EMULATED").is_some();
    match behaviour.as_str() {
        "rseq" => {
            let size = rseq_size();
            println!("restartable sequences: size {size}");
            if size == 0 {
                println!("test result: FAILED. 0 passed; 1 failed; 0 ignored");
                return ExitCode::FAILURE;
            }
            println!("test result: ok. 1 passed; 0 failed; 0 ignored");
            ExitCode::SUCCESS
        }
        "fail" => {
            println!("test result: FAILED. 0 passed; 1 failed; 0 ignored");
            ExitCode::from(3)
        }
        "abort" => std::process::abort(),
        "hang" => loop {
            std::thread::park();
        },
        "panic" if is_emulated => {
            std::fs::write("/proc/sysrq-trigger", "c").expect("the kernel panics on request");
            ExitCode::SUCCESS
        }
        _ => {
            eprintln!("machine_probe: not for use outside of the emulated machine");
            ExitCode::from(2)
        }
    }
}

/// Returns the size of the area that the C library registered for restartable sequences, 0 if it
/// registered none.
fn rseq_size() -> u32 {
    // SAFETY: the name is a string, and the null handle selects the default search order.
    let size = unsafe { dlsym(std::ptr::null_mut(), c"__rseq_size".as_ptr()) };
    match size.is_null() {
        true => 0,
        // SAFETY: the symbol is a constant `unsigned int`, by the C library's documentation.
        false => unsafe { size.cast::<u32>().read() },
    }
}
