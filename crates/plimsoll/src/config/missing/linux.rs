//! Linux.

/// Parts, and whether they are available.
pub(super) const PARTS: &[(&str, bool)] = &[];
