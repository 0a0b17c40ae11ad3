//! The warning about parts that are not available on this system.

#[cfg(all(target_os = "linux", not(plimsoll_portable_os)))]
mod linux;
#[cfg(not(all(target_os = "linux", not(plimsoll_portable_os))))]
mod other;

#[cfg(all(target_os = "linux", not(plimsoll_portable_os)))]
use linux::PARTS;
#[cfg(not(all(target_os = "linux", not(plimsoll_portable_os))))]
use other::PARTS;

use plimsoll_sys::os::region::is_page_size_supported;
use plimsoll_sys::primitives::{AtomicBool, Ordering};

use plimsoll_core::warning;

/// Warns about the parts of this system, once in a process.
pub(super) fn warn() {
    static WARNED: AtomicBool = AtomicBool::new(false);
    let of_process = [
        (
            "waits for locks other than those of plimsoll::sync",
            plimsoll_core::INTERPOSES,
        ),
        (
            "memory for counts and profiles, with pages of this size",
            is_page_size_supported(),
        ),
    ];
    let missing = of_process
        .iter()
        .chain(PARTS)
        .filter(|(_, is_available)| !is_available)
        .map(|&(name, _)| name);
    if let Some(text) = text(&missing.collect::<Vec<_>>()) {
        if !WARNED.swap(true, Ordering::Relaxed) {
            warning::warn(text);
        }
    }
}

/// Returns the warning about these parts; `None` for none.
fn text(missing: &[&str]) -> Option<String> {
    let (last, others) = missing.split_last()?;
    let parts = match others {
        [] => (*last).to_owned(),
        others => format!("{} and {last}", others.join(", ")),
    };
    Some(format!("not available on this system: {parts}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_warning_names_every_missing_part() {
        assert_eq!(text(&[]), None);
        let warning = |missing| text(missing).unwrap();
        assert_eq!(warning(&["stacks"]), "not available on this system: stacks");
        assert_eq!(
            warning(&["other threads", "the server", "stacks"]),
            "not available on this system: other threads, the server and stacks"
        );
    }

    #[test]
    #[cfg(all(target_os = "linux", not(plimsoll_portable_os)))]
    fn linux_lacks_nothing() {
        assert!(PARTS.iter().all(|&(_, is_available)| is_available));
    }
}
