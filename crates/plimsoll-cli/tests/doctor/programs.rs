//! Helpers of the tests of `doctor`: small programs built by the C compiler, and their directory.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Creates an empty directory for one test.
pub fn directory(name: &str) -> PathBuf {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = fs::remove_dir_all(&directory);
    fs::create_dir_all(&directory).unwrap();
    directory
}

/// A program with a few functions that have frames.
pub const PLAIN: &str = r#"
#include <stdio.h>
#include <stdlib.h>
__attribute__((noinline)) int first(char *p, int n) {
    char room[64]; int s = snprintf(room, sizeof room, "%s %d", p, n); return s + room[0];
}
__attribute__((noinline)) int second(int n) {
    int a = first("a", n), b = first("b", a), c = first("c", b); return a + b * c + first("d", c);
}
__attribute__((noinline)) int third(int n) {
    volatile char *p = malloc(n + 1); p[n] = 1; int r = second(n) + p[n]; free((void *)p); return r;
}
int main(int count, char **words) { return third(count) + second(count) == 12345; }
"#;

/// Compiles a C program. Prints a message and returns `None` if this compiler cannot do so.
pub fn compile(directory: &Path, name: &str, source: &str, flags: &[&str]) -> Option<PathBuf> {
    compile_with("cc", directory, name, source, flags)
}

/// Does the same as [`compile`] with another compiler, which must be installed.
pub fn compile_with(
    compiler: &str,
    directory: &Path,
    name: &str,
    source: &str,
    flags: &[&str],
) -> Option<PathBuf> {
    let text = directory.join(format!("{name}.c"));
    fs::write(&text, source).unwrap();
    let program = directory.join(name);
    let output = Command::new(compiler)
        .arg("-o")
        .args([&program, &text])
        .args(flags)
        .output()
        .expect("a C compiler is installed");
    if !output.status.success() {
        plimsoll_testkit::skip!(
            "{compiler} {flags:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        return None;
    }
    Some(program)
}

/// Creates a file with these contents and this mode.
pub fn file(directory: &Path, name: &str, contents: &[u8], mode: u32) -> PathBuf {
    let path = directory.join(name);
    fs::write(&path, contents).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
    path
}

/// Returns whether this process is root, which bypasses permission checks.
pub fn is_root() -> bool {
    // SAFETY: takes no pointers.
    unsafe { libc::geteuid() == 0 }
}

/// A generator of pseudo-random numbers, the same in each run.
pub struct Numbers(pub u64);

impl Numbers {
    /// Returns the next number below `limit`.
    pub fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % limit
    }
}
