//! Programs, by linker.

use std::path::Path;

use crate::commands::{c_compiler_can, rust_libraries};
use crate::form::{is_in_this_form, profiles, say};
use crate::package::Package;
use crate::report::{holds, is_interposed};

/// A linker, by its name for the C compiler.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Linker {
    Bfd,
    Gold,
    Lld,
}

impl Linker {
    pub fn name(self) -> &'static str {
        match self {
            Self::Bfd => "bfd",
            Self::Gold => "gold",
            Self::Lld => "lld",
        }
    }

    /// Returns the arguments for the C compiler, which select Rust's own lld if it is installed.
    pub fn arguments(self) -> Vec<String> {
        let mut arguments = vec![format!("-fuse-ld={}", self.name())];
        let own = rust_libraries().with_file_name("bin").join("gcc-ld");
        if self == Self::Lld && own.exists() {
            arguments.push(format!("-B{}", own.display()));
        }
        arguments
    }

    pub fn is_here(self) -> bool {
        let arguments = self.arguments();
        let mut arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
        arguments.push("-Wl,--version");
        let is_here = c_compiler_can(&arguments);
        if !is_here {
            say(&format!("{}: skipped: not installed", self.name()));
        }
        is_here
    }

    /// Returns the linker that produced the file, by the mark that it left there.
    pub fn of(file: &Path) -> Self {
        if holds(file, b"Linker: LLD ") {
            Self::Lld
        } else if holds(file, b"GNU\0gold ") {
            Self::Gold
        } else {
            Self::Bfd
        }
    }

    pub fn applied_to(self, package: Package) -> Package {
        self.arguments().iter().fold(package, |package, argument| {
            package.flag(format!("link-arg={argument}"))
        })
    }
}

fn a_linked_program_is_interposed(linker: Linker) {
    if !linker.is_here() {
        return;
    }
    for profile in profiles() {
        let case = format!("{}-{profile}", linker.name());
        let package = linker.applied_to(Package::program(&case).profile(profile));
        let program = package.build_program();
        assert!(Linker::of(&program) == linker, "{case}");
        is_interposed(&case, &program);
    }
}

#[test]
fn a_program_linked_by_bfd_is_interposed() {
    a_linked_program_is_interposed(Linker::Bfd);
}

#[test]
fn a_program_linked_by_gold_is_interposed() {
    if is_in_this_form("gold") {
        a_linked_program_is_interposed(Linker::Gold);
    }
}

#[test]
fn a_program_linked_by_lld_is_interposed() {
    if is_in_this_form("lld") {
        a_linked_program_is_interposed(Linker::Lld);
    }
}
