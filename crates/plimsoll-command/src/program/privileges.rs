//! Decides whether executing a program gains privileges.
//!
//! The loader of such a program ignores `LD_PRELOAD` (the kernel sets `AT_SECURE`). Otherwise any
//! user could run code with those privileges. The change of user decides, not the set-user-ID bit:
//! a program that runs as its caller's user anyway gains nothing.

use std::ffi::CString;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// The user and groups of a process that executes a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Identity {
    pub(super) user: u32,
    pub(super) effective_user: u32,
    pub(super) group: u32,
    pub(super) effective_group: u32,
    /// Whether execution grants this process no rights (`no_new_privs`).
    pub(super) gets_no_rights: bool,
}

/// The privileges that a file grants to a process that executes it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Rights {
    /// The owner's user and group.
    pub(super) owner: (u32, u32),
    pub(super) mode: u32,
    /// Whether the file has capabilities, in the attribute `security.capability`.
    pub(super) has_capabilities: bool,
    /// Whether the file system grants no rights (`nosuid`).
    pub(super) is_on_nosuid: bool,
}

impl Identity {
    pub(super) fn of_this_process() -> Self {
        // SAFETY: these calls take no pointers.
        unsafe {
            Self {
                user: libc::getuid(),
                effective_user: libc::geteuid(),
                group: libc::getgid(),
                effective_group: libc::getegid(),
                gets_no_rights: libc::prctl(libc::PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1,
            }
        }
    }
}

impl Rights {
    pub(super) fn from_path(path: &Path) -> Option<Self> {
        let metadata = fs::metadata(path).ok()?;
        let path = CString::new(path.as_os_str().as_bytes()).ok()?;
        // SAFETY: both strings end with NUL. `getxattr` writes nothing to an empty buffer. `system`
        // is a valid `statvfs`, for which zero is valid.
        let (capabilities, is_on_nosuid) = unsafe {
            let capabilities = libc::getxattr(
                path.as_ptr(),
                c"security.capability".as_ptr(),
                std::ptr::null_mut(),
                0,
            );
            let mut system: libc::statvfs = std::mem::zeroed();
            let known = libc::statvfs(path.as_ptr(), &raw mut system) == 0;
            (capabilities, known && system.f_flag & libc::ST_NOSUID != 0)
        };
        Some(Self {
            owner: (metadata.uid(), metadata.gid()),
            mode: metadata.mode(),
            has_capabilities: capabilities > 0,
            is_on_nosuid,
        })
    }

    /// Returns why the loader would ignore `LD_PRELOAD` if `identity` executes the file; `None` if
    /// it would not.
    pub(super) fn gained_by(&self, identity: Identity) -> Option<String> {
        let set_id = !self.is_on_nosuid && !identity.gets_no_rights;
        let sets_user = set_id && self.mode & libc::S_ISUID != 0;
        // Without group execute permission, the bit does not set the group (it marked mandatory
        // locking).
        let both = libc::S_ISGID | libc::S_IXGRP;
        let sets_group = set_id && self.mode & both == both;
        let (owner, group) = self.owner;
        let user_then = if sets_user {
            owner
        } else {
            identity.effective_user
        };
        let group_then = if sets_group {
            group
        } else {
            identity.effective_group
        };
        if user_then != identity.user {
            return Some(match sets_user {
                true => format!("it is setuid: it runs as user {owner}"),
                false => "plimsoll itself runs with another user's rights".into(),
            });
        }
        if group_then != identity.group {
            return Some(match sets_group {
                true => format!("it is setgid: it runs as group {group}"),
                false => "plimsoll itself runs with another group's rights".into(),
            });
        }
        let capable = self.has_capabilities && !self.is_on_nosuid && identity.user != 0;
        capable.then(|| "it has capabilities (getcap shows them)".into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const USER: Identity = Identity {
        user: 1000,
        effective_user: 1000,
        group: 100,
        effective_group: 100,
        gets_no_rights: false,
    };
    const ROOT: Identity = Identity {
        user: 0,
        effective_user: 0,
        group: 0,
        effective_group: 0,
        gets_no_rights: false,
    };
    const PLAIN: Rights = Rights {
        owner: (0, 0),
        mode: 0o755,
        has_capabilities: false,
        is_on_nosuid: false,
    };

    fn with_mode(mode: u32) -> Rights {
        Rights { mode, ..PLAIN }
    }

    #[test]
    fn only_gained_privileges_count() {
        assert_eq!(PLAIN.gained_by(USER), None);
        assert!(
            with_mode(0o4755)
                .gained_by(USER)
                .unwrap()
                .contains("setuid")
        );
        assert_eq!(with_mode(0o4755).gained_by(ROOT), None);
        assert!(
            with_mode(0o2755)
                .gained_by(USER)
                .unwrap()
                .contains("setgid")
        );
        assert_eq!(with_mode(0o2755).gained_by(ROOT), None);
        assert_eq!(with_mode(0o2745).gained_by(USER), None, "no S_IXGRP");
        let own = Rights {
            owner: (1000, 100),
            ..with_mode(0o6755)
        };
        assert_eq!(own.gained_by(USER), None);
        assert!(own.gained_by(ROOT).is_some());
    }

    #[test]
    fn capabilities_are_rights_but_not_to_root() {
        let capable = Rights {
            has_capabilities: true,
            ..PLAIN
        };
        assert!(capable.gained_by(USER).unwrap().contains("capabilities"));
        assert_eq!(capable.gained_by(ROOT), None);
    }

    #[test]
    fn a_file_without_privileges_gives_none() {
        let there = Rights {
            is_on_nosuid: true,
            has_capabilities: true,
            ..with_mode(0o6755)
        };
        assert_eq!(there.gained_by(USER), None);
        let identity = Identity {
            gets_no_rights: true,
            ..USER
        };
        assert_eq!(with_mode(0o6755).gained_by(identity), None);
    }

    #[test]
    fn a_process_with_another_effective_user_gains_privileges() {
        let identity = Identity {
            effective_user: 0,
            ..USER
        };
        assert!(PLAIN.gained_by(identity).is_some());
        let identity = Identity {
            effective_group: 0,
            ..USER
        };
        assert!(PLAIN.gained_by(identity).is_some());
    }
}
