//! Shared code of the measuring programs. No function uses Plimsoll, so that programs that measure
//! without it do not contain it.

pub mod arguments;
pub mod callgrind;
pub mod calls;
pub mod children;
pub mod clock;
pub mod crew;
pub mod environment;
pub mod load;
pub mod machine;
pub mod pairs;
pub mod process_memory;
pub mod pthread;
pub mod quantiles;
pub mod rounds;
pub mod table;
pub mod thread_memory;
pub mod waits;
