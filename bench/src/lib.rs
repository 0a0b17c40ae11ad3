//! What the measuring programs share.

pub mod clock;
pub mod machine;
pub mod pairs;
pub mod quantiles;
