//! Linux: reads the probes of running programs.

mod arch;
pub mod usdt;
