//! What the measuring programs share. Nothing here uses Plimsoll, so that the programs which
//! measure without it are without it.

pub mod callgrind;
pub mod children;
pub mod clock;
pub mod crew;
pub mod load;
pub mod machine;
pub mod pairs;
pub mod process_memory;
pub mod pthread;
pub mod quantiles;
pub mod thread_memory;
pub mod waits;
