//! Memory use and memory limits of the process's control group, of version 1 or 2.

use std::path::{Path, PathBuf};

use plimsoll_sys::os::files;

/// The memory of a control group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// Bytes in use by all processes of the group, including the files that they use. If this group
    /// does not count memory, this is the figure of the nearest group above it that does.
    pub current: Option<u64>,
    /// The least limit of the group and all groups that contain it; `None` without a limit.
    pub limit: Option<u64>,
}

/// The least value that means no limit; version 1 states the largest number of whole pages.
const NONE_FROM: u64 = 1 << 62;

/// Returns the memory of the process's control group. Returns `None` if no group counts its memory,
/// or if the files are unreadable. Reads several files.
#[inline]
pub fn memory() -> Option<Memory> {
    let groups = files::read_to_string("/proc/self/cgroup").ok()?;
    let mounts = files::read_to_string("/proc/self/mountinfo").ok()?;
    memory_by(&groups, &mounts)
}

fn memory_by(groups: &str, mounts: &str) -> Option<Memory> {
    let group = |wanted: &dyn Fn(&str, &str) -> bool| {
        groups.lines().find_map(|line| {
            let (number, rest) = line.split_once(':')?;
            let (controllers, path) = rest.split_once(':')?;
            wanted(number, controllers).then_some(path)
        })
    };
    let has_memory = |list: &str| list.split(',').any(|one| one == "memory");
    if let Some(path) = group(&|_, controllers| has_memory(controllers)) {
        let mounts = mounts_of(mounts, "cgroup").filter(|mount| has_memory(mount.options));
        let place = GroupDirectories::find(mounts, path)?;
        let files = ["memory.usage_in_bytes", "memory.limit_in_bytes"];
        let mut memory = place.read(files)?;
        // This limit includes groups above the mounted part, and considers whether they count.
        if let Some(least) = place.least_limit() {
            memory.limit = (least < NONE_FROM).then_some(least);
        }
        return Some(memory);
    }
    let path = group(&|number, _| number == "0")?;
    let place = GroupDirectories::find(mounts_of(mounts, "cgroup2"), path)?;
    place.read(["memory.current", "memory.max"])
}

/// The mount point of a hierarchy of groups, or of a part of one.
struct Mount<'m> {
    /// The group at the mount point.
    group: PathBuf,
    directory: PathBuf,
    options: &'m str,
}

/// Returns the mounts of a file system type, from lines of the form
/// `id parent device root directory options [tag...] - kind source options`.
fn mounts_of<'m>(mounts: &'m str, wanted: &str) -> impl Iterator<Item = Mount<'m>> {
    mounts.lines().filter_map(move |line| {
        let (place, what) = line.split_once(" - ")?;
        let mut place = place.split(' ').skip(3);
        let mut what = what.split(' ');
        let (group, directory) = (unescaped(place.next()?), unescaped(place.next()?));
        (what.next()? == wanted).then_some(Mount {
            group: group.into(),
            directory: directory.into(),
            options: what.nth(1)?,
        })
    })
}

/// Replaces escapes of a backslash and three octal digits, which the kernel writes for separators.
fn unescaped(word: &str) -> String {
    let mut parts = word.split('\\');
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let code = part.get(..3).map(|digits| u8::from_str_radix(digits, 8));
        match code {
            Some(Ok(code)) => {
                text.push(char::from(code));
                text.push_str(&part[3..]);
            }
            _ => {
                text.push('\\');
                text.push_str(part);
            }
        }
    }
    text
}

/// The directory of a group, and of the topmost visible group above it.
struct GroupDirectories {
    directory: PathBuf,
    top: PathBuf,
}

impl GroupDirectories {
    /// Finds the directory of the group at `path`. In a container, the mounted directory may be the
    /// group itself, and its path may be one outside. Then the topmost visible group is used.
    fn find<'m>(mounts: impl Iterator<Item = Mount<'m>>, path: &str) -> Option<Self> {
        let mut unseen = None;
        for Mount {
            group, directory, ..
        } in mounts
        {
            let below = Path::new(path).strip_prefix(&group);
            let found = below.map(|below| directory.join(below));
            if let Ok(found) = found {
                // A path with `..` leads to a group outside of the process's namespace.
                if !path.contains("/..") && found.is_dir() {
                    return Some(Self {
                        directory: found,
                        top: directory,
                    });
                }
            }
            unseen.get_or_insert(directory);
        }
        unseen.map(|top| Self {
            directory: top.clone(),
            top,
        })
    }

    /// Reads the files of the group, and the limits of all visible groups above it.
    fn read(&self, [current, limit]: [&str; 2]) -> Option<Memory> {
        let mut memory = Memory::default();
        let mut directory = self.directory.clone();
        loop {
            let number = |file: &str| {
                let text = files::read_to_string(directory.join(file)).ok()?;
                text.trim().parse::<u64>().ok()
            };
            memory.current = memory.current.or_else(|| number(current));
            if let Some(found) = number(limit).filter(|&found| found < NONE_FROM) {
                memory.limit = Some(memory.limit.map_or(found, |least| least.min(found)));
            }
            if directory == self.top || !directory.pop() {
                break;
            }
        }
        memory.current.map(|_| memory)
    }

    /// Returns the least limit of a group and those above it, as version 1 reports it.
    fn least_limit(&self) -> Option<u64> {
        let text = files::read_to_string(self.directory.join("memory.stat")).ok()?;
        let mut lines = text.lines();
        let limit = lines.find_map(|line| line.strip_prefix("hierarchical_memory_limit "))?;
        limit.trim().parse().ok()
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

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

        /// Returns a line of the mount list: `group` mounted at `directory` below this one.
        fn mount(&self, group: &str, directory: &str, kind: &str) -> String {
            let directory = self.0.join(directory);
            let directory = directory.to_str().unwrap().replace(' ', "\\040");
            format!("35 31 0:32 {group} {directory} rw,relatime shared:9 master:1 - {kind}\n")
        }
    }

    impl Drop for Directory {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    const OTHERS: &str = "\
24 1 0:1 / / rw - ext4 /dev/root rw
33 31 0:30 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu
";

    #[test]
    fn the_least_limit_on_the_way_up_counts() {
        let root = Directory::new(
            "second",
            &[
                ("a/b/memory.current", "1000\n"),
                ("a/b/memory.max", "max\n"),
                ("a/b/c/cgroup.procs", ""),
                ("a/memory.current", "1500\n"),
                ("a/memory.max", "5000\n"),
                ("memory.max", "7000\n"),
            ],
        );
        let mounts = format!("{OTHERS}{}", root.mount("/", "", "cgroup2 none rw"));
        let expected = Memory {
            current: Some(1000),
            limit: Some(5000),
        };
        assert_eq!(memory_by("0::/a/b\n", &mounts), Some(expected));
        // A group that does not count memory is part of the next one that does.
        assert_eq!(memory_by("0::/a/b/c\n", &mounts), Some(expected));
        assert_eq!(memory_by("0::/x\n", &mounts), None, "no such group");
        assert_eq!(memory_by("", &mounts), None);
        assert_eq!(memory_by("0::/a/b\n", OTHERS), None, "not mounted");
    }

    #[test]
    fn the_first_version_is_read_from_its_own_place() {
        let root = Directory::new(
            "first",
            &[
                ("my memory/a/memory.usage_in_bytes", "1000\n"),
                ("my memory/a/memory.limit_in_bytes", "9223372036854771712\n"),
                ("my memory/memory.usage_in_bytes", "2000\n"),
                ("my memory/memory.limit_in_bytes", "3000\n"),
            ],
        );
        let mounts = [
            root.mount("/", "unified", "cgroup2 cgroup2 rw"),
            root.mount("/", "my memory", "cgroup cgroup rw,cpu,memory"),
        ];
        let mounts = format!("{OTHERS}{}", mounts.concat());
        let groups = |path| format!("9:cpu,memory:{path}\n0::/\n");
        let of = |current| Memory {
            current: Some(current),
            limit: Some(3000),
        };
        assert_eq!(memory_by(&groups("/a"), &mounts), Some(of(1000)));
        assert_eq!(memory_by(&groups("/elsewhere"), &mounts), Some(of(2000)));
    }

    #[test]
    fn within_a_container_only_a_part_of_the_hierarchy_is_there() {
        let root = Directory::new(
            "container",
            &[
                ("first/memory.usage_in_bytes", "2000\n"),
                ("first/memory.limit_in_bytes", "9223372036854771712\n"),
                (
                    "first/memory.stat",
                    "cache 0\nhierarchical_memory_limit 800\n",
                ),
                ("first/b/memory.usage_in_bytes", "1000\n"),
                ("first/b/memory.limit_in_bytes", "700\n"),
                // Limits of groups above do not apply to this one.
                (
                    "first/b/memory.stat",
                    "hierarchical_memory_limit 9223372036854771712\n",
                ),
                ("second/memory.current", "30\n"),
                ("second/memory.max", "40\n"),
                ("second/b/memory.current", "10\n"),
            ],
        );
        let mounts = root.mount("/docker/a", "first", "cgroup cgroup rw,memory");
        let groups = |path| format!("9:memory:{path}\n");
        let of = |current, limit| {
            Some(Memory {
                current: Some(current),
                limit,
            })
        };
        assert_eq!(
            memory_by(&groups("/docker/a"), &mounts),
            of(2000, Some(800))
        );
        assert_eq!(memory_by(&groups("/docker/a/b"), &mounts), of(1000, None));
        // The path inside the container, or of a process that was moved to another group.
        assert_eq!(memory_by(&groups("/"), &mounts), of(2000, Some(800)));
        assert_eq!(
            memory_by(&groups("/docker/ab"), &mounts),
            of(2000, Some(800))
        );
        let mounts = root.mount("/", "second", "cgroup2 cgroup rw,nsdelegate");
        assert_eq!(memory_by("0::/b\n", &mounts), of(10, Some(40)));
        assert_eq!(memory_by("0::/../b\n", &mounts), of(30, Some(40)));
    }
}
