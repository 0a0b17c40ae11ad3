//! What the control group of the process says of memory, of either version.

use std::fs;
use std::path::{Path, PathBuf};

/// The memory of a control group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Memory {
    /// Bytes that are in use, by all of its processes and for the files they use.
    pub(crate) current: Option<u64>,
    /// The least limit of the group and those it is in; `None` if there is none.
    pub(crate) limit: Option<u64>,
}

/// What stands for no limit in version 1: the largest number of whole pages.
const NONE_FROM: u64 = 1 << 62;

/// `None` if the process is in no group that counts memory, or the system does not say. Reads some
/// files.
pub(crate) fn memory() -> Option<Memory> {
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    memory_in(Path::new("/sys/fs/cgroup"), &groups)
}

fn memory_in(root: &Path, groups: &str) -> Option<Memory> {
    let group = |wanted: &dyn Fn(&str, &str) -> bool| {
        groups.lines().find_map(|line| {
            let (number, rest) = line.split_once(':')?;
            let (controllers, path) = rest.split_once(':')?;
            wanted(number, controllers).then_some(path)
        })
    };
    let first = group(&|_, controllers| controllers.split(',').any(|one| one == "memory"));
    if let Some(path) = first {
        let files = ["memory.usage_in_bytes", "memory.limit_in_bytes"];
        return read(&root.join("memory"), path, files);
    }
    let path = group(&|number, _| number == "0")?;
    let files = ["memory.current", "memory.max"];
    read(root, path, files).or_else(|| read(&root.join("unified"), path, files))
}

/// From the group's directory up. Within a container, the group may be what is mounted, and its
/// path another.
fn read(root: &Path, path: &str, [current, limit]: [&str; 2]) -> Option<Memory> {
    let number = |directory: &Path, file: &str| {
        let text = fs::read_to_string(directory.join(file)).ok()?;
        text.trim().parse::<u64>().ok()
    };
    let mut directory: PathBuf = root.join(path.trim_start_matches('/'));
    if !directory.join(current).exists() {
        directory = root.to_owned();
    }
    let mut memory = Memory {
        current: number(&directory, current),
        limit: None,
    };
    memory.current?;
    loop {
        if let Some(found) = number(&directory, limit).filter(|&found| found < NONE_FROM) {
            memory.limit = Some(memory.limit.map_or(found, |least| least.min(found)));
        }
        if directory == root || !directory.pop() {
            return Some(memory);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Directory(PathBuf);

    impl Directory {
        fn new(name: &str, files: &[(&str, &str)]) -> Self {
            let name = format!("plimsoll-cgroup-{}-{name}", std::process::id());
            let root = std::env::temp_dir().join(name);
            for (file, text) in files {
                let path = root.join(file);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, text).unwrap();
            }
            Self(root)
        }
    }

    impl Drop for Directory {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn the_least_limit_on_the_way_up_counts() {
        let root = Directory::new(
            "second",
            &[
                ("a/b/memory.current", "1000\n"),
                ("a/b/memory.max", "max\n"),
                ("a/memory.max", "5000\n"),
                ("memory.max", "7000\n"),
            ],
        );
        let expected = Memory {
            current: Some(1000),
            limit: Some(5000),
        };
        assert_eq!(memory_in(&root.0, "0::/a/b\n"), Some(expected));
        assert_eq!(memory_in(&root.0, "0::/x\n"), None, "no such group");
        assert_eq!(memory_in(&root.0, ""), None);
    }

    #[test]
    fn the_first_version_is_read_from_its_own_place() {
        let root = Directory::new(
            "first",
            &[
                ("memory/a/memory.usage_in_bytes", "1000\n"),
                ("memory/a/memory.limit_in_bytes", "9223372036854771712\n"),
                ("memory/memory.usage_in_bytes", "2000\n"),
                ("memory/memory.limit_in_bytes", "3000\n"),
            ],
        );
        let groups = |path| format!("9:cpu,memory:{path}\n0::/\n");
        let of = |current| Memory {
            current: Some(current),
            limit: Some(3000),
        };
        assert_eq!(memory_in(&root.0, &groups("/a")), Some(of(1000)));
        assert_eq!(memory_in(&root.0, &groups("/elsewhere")), Some(of(2000)));
    }
}
