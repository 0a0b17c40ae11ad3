//! Pools and caches of other crates, whose memory is declared to Plimsoll. To be copied.

pub mod arrow;
pub mod datafusion;
pub mod weighed;
