//! System call filters, which only Linux has.

/// Returns `false`: nothing restricts the process.
#[inline]
pub fn is_restricted() -> bool {
    false
}

/// Returns `true`.
#[inline]
pub fn may_read_files() -> bool {
    true
}

/// Returns `true`.
#[inline]
pub fn may_write() -> bool {
    true
}

/// Returns `true`.
#[inline]
pub fn may_close_files() -> bool {
    true
}

/// Returns `true`.
#[inline]
pub fn may_release_memory() -> bool {
    true
}

/// Does nothing.
#[inline]
pub fn notice_inherited(_known: Option<u32>) {}

/// Returns `None`.
#[inline]
pub fn inherited_filters() -> Option<u32> {
    None
}

/// Returns `false`.
#[inline]
pub fn ends_processes() -> bool {
    false
}

/// Does nothing.
///
/// # Errors
/// None.
#[inline]
pub fn check_writing() -> std::io::Result<()> {
    Ok(())
}

/// Does nothing.
///
/// # Errors
/// None.
#[inline]
pub fn check_server() -> std::io::Result<()> {
    Ok(())
}

/// Does nothing.
///
/// # Errors
/// None.
#[inline]
pub fn check_unix_socket() -> std::io::Result<()> {
    Ok(())
}
