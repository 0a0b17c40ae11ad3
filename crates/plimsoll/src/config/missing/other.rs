//! Other systems.

use plimsoll_process::loader;

/// Parts, and whether they are available.
pub(super) const PARTS: &[(&str, bool)] = &[
    ("threads other than the calling one", false),
    ("resident memory and mappings", false),
    ("CPU and wall-clock profiles", false),
    ("post-mortem files", false),
    ("dumps on SIGQUIT", false),
    ("stacks", cfg!(any(unix, windows))),
    ("function names", loader::LISTS_OBJECTS),
    ("the HTTP server", cfg!(unix)),
];
