//! The assembly of the interposed functions, one folder per processor with the same items.
//!
//! | item | meaning |
//! |---|---|
//! | `thread_pointer` | the register in which the C library keeps its thread control block |
//! | `syscall::FUTEX` | the number of the system call |
//! | `syscall::body` | `syscall` |
//! | `vfork::body` | `vfork` |
//! | `threads::begin` | the first function of a thread with a token |
//! | `threads::pthread_create`, `threads::thrd_create` | the functions of these names |
//! | `threads::sanitizers` | the address of a sanitizer's `pthread_create`, if the program has one |
//! | `mappings::MAP`, `UNMAP`, `REMAP` | the numbers of the system calls |
//! | `mappings::body` | a function that maps memory |
//! | `pthread::CONDITIONS` | the C library's version since which conditions have their layout |
//! | `pthread::shared` | functions that all functions for locks share |
//! | `pthread::arrives`, `attempt`, `release`, `wait`, `is_reported` | the parts of a function for locks |
//!
//! The bodies are macros, which expand to text. They refer to data by symbols that the modules
//! define which use them.

#[cfg(target_arch = "aarch64")]
mod aarch64;
#[cfg(target_arch = "x86_64")]
mod x86_64;

#[cfg(target_arch = "aarch64")]
pub(crate) use aarch64::*;
#[cfg(target_arch = "x86_64")]
pub(crate) use x86_64::*;
