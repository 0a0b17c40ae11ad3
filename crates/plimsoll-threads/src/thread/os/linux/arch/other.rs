//! Every processor that Linux supports since these calls have successors.

/// Returns `None`: the system has no such call.
pub(crate) fn legacy_call(_call: i64) -> Option<&'static str> {
    None
}
