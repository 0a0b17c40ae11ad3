//! The purpose of an allocator's mappings.

/// The purpose of memory that an allocator has mapped.
///
/// ```
/// use plimsoll::stats::backend::{Backend, Pages, Usage};
/// use std::ops::Range;
///
/// struct Region(Range<usize>);
///
/// impl Backend for Region {
///     fn visit_memory(&self, visit: &mut dyn FnMut(Usage, Range<usize>)) -> bool {
///         visit(Usage::Structures, self.0.start..self.0.start + 4096);
///         visit(Usage::Blocks, self.0.start + 4096..self.0.end);
///         true
///     }
/// #     fn name(&self) -> &'static str { "region" }
/// #     fn pages(&self) -> Pages { Pages::ABSENT }
/// #     fn purge(&self) {}
/// }
/// # let mut bytes = 0;
/// # assert!(Region(0..1 << 20).visit_memory(&mut |_, range| bytes += range.len()));
/// # assert_eq!(bytes, 1 << 20);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Usage {
    /// The program's blocks, with free and not yet used memory between them.
    Blocks,
    /// The allocator's own structures.
    Structures,
}
