//! Memory of the process's control group and of the groups that contain it, of version 1 or 2.

use std::path::{Path, PathBuf};
use std::time::Duration;

use plimsoll_sys::os::files;

use crate::control_group::{ControlGroup, Machine, Stalled};

/// The least value that means no limit; version 1 states the largest number of whole pages.
const NONE_FROM: u64 = 1 << 62;

/// The files of a group that counts memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    First,
    Second,
}

/// Returns the process's control group and those that contain it, from the inside out, as far as the process sees them
/// and they count memory. Empty if none does, or if the files are unreadable. Reads two files, and up to nine for each
/// group.
pub fn groups() -> Vec<ControlGroup> {
    let groups = files::read_to_string("/proc/self/cgroup");
    let mounts = files::read_to_string("/proc/self/mountinfo");
    match (groups, mounts) {
        (Ok(groups), Ok(mounts)) => groups_by(&groups, &mounts),
        _ => Vec::new(),
    }
}

/// Returns the least limit of the process's control group and of those that contain it, in bytes; `None` without a limit.
pub fn limit() -> Option<u64> {
    groups().iter().filter_map(|group| group.max).min()
}

/// Returns the memory of the machine; `None` if the system does not report it. Reads one file.
pub fn machine() -> Option<Machine> {
    machine_by(&files::read_to_string("/proc/meminfo").ok()?)
}

fn machine_by(text: &str) -> Option<Machine> {
    let bytes = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        let number = line.strip_prefix(':')?.trim().strip_suffix(" kB")?;
        number.parse::<u64>().ok()?.checked_mul(1024)
    };
    Some(Machine {
        total: bytes("MemTotal")?,
        available: bytes("MemAvailable")?,
        swap: bytes("SwapTotal")?,
        swap_free: bytes("SwapFree")?,
    })
}

/// The control group with the least limit, of the process's group and those that contain it.
#[derive(Debug)]
pub struct LimitingGroup {
    directory: PathBuf,
    version: Version,
}

impl LimitingGroup {
    /// Finds the group. `None` if no visible group has a limit. Reads as many files as [`groups`].
    pub fn find() -> Option<Self> {
        let groups = files::read_to_string("/proc/self/cgroup").ok()?;
        let mounts = files::read_to_string("/proc/self/mountinfo").ok()?;
        Self::find_by(&groups, &mounts)
    }

    fn find_by(groups: &str, mounts: &str) -> Option<Self> {
        let (directories, version) = directories_by(groups, mounts)?;
        let groups = directories.read(version);
        let limits = groups
            .iter()
            .filter_map(|group| Some((group.max?, &group.path)));
        let (_, path) = limits.min()?;
        let directory = directories.ancestor(Path::new(path))?;
        Some(Self { directory, version })
    }

    /// Returns the bytes in use of all processes of the group that the kernel cannot take back, and 0 if these are certainly
    /// less than `from`; `None` if the group has ended. Reads one file, and near `from` another, for which the kernel
    /// collects figures.
    pub fn held(&self, from: u64) -> Option<u64> {
        let files = Files(&self.directory);
        let (current, names): (_, &[&str]) = match self.version {
            Version::First => ("memory.usage_in_bytes", &FIRST_RECLAIMABLE),
            Version::Second => ("memory.current", &SECOND_RECLAIMABLE),
        };
        let current = files.number(current)?;
        if current < from {
            return Some(0);
        }
        Some(current.saturating_sub(files.stat().sum(names)))
    }
}

/// The memory that the kernel can take back, in version 1.
const FIRST_RECLAIMABLE: [&str; 2] = ["total_active_file", "total_inactive_file"];

/// The memory that the kernel can take back, in version 2.
const SECOND_RECLAIMABLE: [&str; 3] = ["active_file", "inactive_file", "slab_reclaimable"];

fn groups_by(groups: &str, mounts: &str) -> Vec<ControlGroup> {
    let found = directories_by(groups, mounts);
    found.map_or_else(Vec::new, |(directories, version)| directories.read(version))
}

/// Returns the directories of the process's group and of those above it.
fn directories_by(groups: &str, mounts: &str) -> Option<(GroupDirectories, Version)> {
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
        return Some((GroupDirectories::find(mounts, path)?, Version::First));
    }
    let path = group(&|number, _| number == "0")?;
    let directories = GroupDirectories::find(mounts_of(mounts, "cgroup2"), path)?;
    Some((directories, Version::Second))
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
    /// The path of the group in its hierarchy.
    path: PathBuf,
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
                        path: path.into(),
                    });
                }
            }
            unseen.get_or_insert((directory, group));
        }
        unseen.map(|(top, path)| Self {
            directory: top.clone(),
            top,
            path,
        })
    }

    /// Reads the group and all visible groups above it, without those that do not count memory.
    fn read(&self, version: Version) -> Vec<ControlGroup> {
        let mut groups = Vec::new();
        let mut directory = self.directory.clone();
        let mut path = self.path.clone();
        loop {
            let mut group = match version {
                Version::First => Files(&directory).first_version(),
                Version::Second => Files(&directory).second_version(),
            };
            if let Some(group) = &mut group {
                group.path = path.to_string_lossy().into_owned();
            }
            groups.extend(group);
            if directory == self.top || !directory.pop() {
                break;
            }
            path.pop();
        }
        if version == Version::First {
            self.add_unseen_limits(&mut groups);
        }
        groups
    }

    /// Returns the directory of the group at `path`, which is this one or above it.
    fn ancestor(&self, path: &Path) -> Option<PathBuf> {
        let mut groups = self.path.ancestors().zip(self.directory.ancestors());
        let (_, directory) = groups.find(|(group, _)| *group == path)?;
        Some(directory.to_owned())
    }

    /// Corrects the limits by the one that version 1 reports for the group and all above it. It includes groups above
    /// the mounted part, and considers whether they count.
    fn add_unseen_limits(&self, groups: &mut [ControlGroup]) {
        let stat = Files(&self.directory).stat();
        let Some(least) = stat.get("hierarchical_memory_limit") else {
            return;
        };
        for group in &mut *groups {
            if group.max.is_some_and(|max| max < least) {
                (group.max, group.swap_max) = (None, None);
            }
        }
        let is_seen = groups.iter().any(|group| group.max == Some(least));
        if is_seen || least >= NONE_FROM {
            return;
        }
        if let Some(top) = groups.last_mut() {
            let with_swap = stat.get("hierarchical_memsw_limit");
            let with_swap = with_swap.filter(|&both| both < NONE_FROM);
            top.max = Some(least);
            top.swap_max = with_swap.map(|both| both.saturating_sub(least));
        }
    }
}

/// The files in the directory of a group.
struct Files<'d>(&'d Path);

impl Files<'_> {
    fn text(&self, file: &str) -> Option<String> {
        files::read_to_string(self.0.join(file)).ok()
    }

    /// Returns a number; `None` for no limit, and if the file is missing.
    fn number(&self, file: &str) -> Option<u64> {
        let number = self.text(file)?.trim().parse::<u64>().ok()?;
        (number < NONE_FROM).then_some(number)
    }

    fn stat(&self) -> Words {
        Words(self.text("memory.stat").unwrap_or_default())
    }

    fn second_version(&self) -> Option<ControlGroup> {
        let current = self.number("memory.current")?;
        let stat = self.stat();
        let sum = |names: &[&str]| stat.sum(names);
        let events = Words(self.text("memory.events").unwrap_or_default());
        let shared = sum(&["shmem"]);
        // Kernels before 5.18 report the parts only.
        let kernel = stat.get("kernel").unwrap_or_else(|| {
            sum(&[
                "kernel_stack",
                "pagetables",
                "percpu",
                "vmalloc",
                "slab_reclaimable",
                "slab_unreclaimable",
            ])
        });
        Some(ControlGroup {
            path: String::new(),
            current,
            anonymous: sum(&["anon"]),
            files: sum(&["file"]).saturating_sub(shared),
            shared,
            kernel,
            sockets: sum(&["sock"]),
            reclaimable: sum(&SECOND_RECLAIMABLE),
            swapped: self.number("memory.swap.current"),
            max: self.number("memory.max"),
            high: self.number("memory.high"),
            swap_max: self.number("memory.swap.max"),
            kills: events.get("oom_kill"),
            slowdowns: events.get("high"),
            stalled: self.text("memory.pressure").and_then(|text| stalled(&text)),
        })
    }

    fn first_version(&self) -> Option<ControlGroup> {
        let current = self.number("memory.usage_in_bytes")?;
        let stat = self.stat();
        let all = |name: &str| stat.get(&format!("total_{name}")).unwrap_or(0);
        let shared = all("shmem");
        let max = self.number("memory.limit_in_bytes");
        let with_swap = self.number("memory.memsw.limit_in_bytes");
        let kernel = self.number("memory.kmem.usage_in_bytes").unwrap_or(0);
        let control = Words(self.text("memory.oom_control").unwrap_or_default());
        Some(ControlGroup {
            path: String::new(),
            current,
            anonymous: all("rss"),
            files: all("cache").saturating_sub(shared),
            shared,
            kernel,
            sockets: 0,
            reclaimable: stat.sum(&FIRST_RECLAIMABLE),
            swapped: stat.get("total_swap"),
            max,
            high: None,
            swap_max: with_swap.map(|both| both.saturating_sub(max.unwrap_or(both))),
            kills: control.get("oom_kill"),
            slowdowns: None,
            stalled: None,
        })
    }
}

/// Lines of a name and a number.
struct Words(String);

impl Words {
    fn get(&self, name: &str) -> Option<u64> {
        let mut lines = self.0.lines();
        lines.find_map(|line| {
            let rest = line.strip_prefix(name)?.strip_prefix(' ')?;
            rest.trim().parse().ok()
        })
    }

    fn sum(&self, names: &[&str]) -> u64 {
        let numbers = names.iter().filter_map(|name| self.get(name));
        numbers.fold(0, u64::saturating_add)
    }
}

/// Parses the lines `some avg10=0.00 avg60=0.00 avg300=0.00 total=0` and `full ...`.
fn stalled(text: &str) -> Option<Stalled> {
    let total = |kind: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(kind))?;
        let total = line
            .split(' ')
            .find_map(|word| word.strip_prefix("total="))?;
        total.parse().ok().map(Duration::from_micros)
    };
    Some(Stalled {
        some: total("some ")?,
        full: total("full ").unwrap_or_default(),
    })
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

    /// Returns the memory in use of the process's group, and the least limit.
    fn memory_by(groups: &str, mounts: &str) -> Option<(u64, Option<u64>)> {
        let groups = groups_by(groups, mounts);
        let limit = groups.iter().filter_map(|group| group.max).min();
        Some((groups.first()?.current, limit))
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
        let expected = Some((1000, Some(5000)));
        assert_eq!(memory_by("0::/a/b\n", &mounts), expected);
        // A group that does not count memory is part of the next one that does.
        assert_eq!(memory_by("0::/a/b/c\n", &mounts), expected);
        assert_eq!(memory_by("0::/x\n", &mounts), None, "no such group");
        assert_eq!(memory_by("", &mounts), None);
        assert_eq!(memory_by("0::/a/b\n", OTHERS), None, "not mounted");
        let groups = groups_by("0::/a/b/c\n", &mounts);
        let paths: Vec<&str> = groups.iter().map(|group| &*group.path).collect();
        // The topmost group has a limit, and does not count.
        assert_eq!(paths, ["/a/b", "/a"]);
        let limiting = LimitingGroup::find_by("0::/a/b/c\n", &mounts).unwrap();
        assert_eq!(
            (limiting.held(0), limiting.directory),
            (Some(1500), root.0.join("a"))
        );
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
        let of = |current| Some((current, Some(3000)));
        assert_eq!(memory_by(&groups("/a"), &mounts), of(1000));
        assert_eq!(memory_by(&groups("/elsewhere"), &mounts), of(2000));
        let limiting = LimitingGroup::find_by(&groups("/a"), &mounts).unwrap();
        assert_eq!(
            (limiting.held(0), limiting.directory),
            (Some(2000), root.0.join("my memory"))
        );
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
        let of = |current, limit| Some((current, limit));
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

    #[test]
    fn the_parts_of_the_second_version_are_read() {
        let root = Directory::new(
            "parts",
            &[
                ("a/memory.current", "1000\n"),
                ("a/memory.max", "2000\n"),
                ("a/memory.high", "1500\n"),
                ("a/memory.swap.current", "30\n"),
                ("a/memory.swap.max", "max\n"),
                (
                    "a/memory.stat",
                    "anon 400\nfile 300\nkernel 90\nkernel_stack 5\nsock 20\nshmem 100\nfile_mapped 7\n\
                     inactive_file 120\nactive_file 80\nslab_reclaimable 40\nslab_unreclaimable 10\n",
                ),
                (
                    "a/memory.events",
                    "low 0\nhigh 3\nmax 4\noom 2\noom_kill 1\n",
                ),
                (
                    "a/memory.pressure",
                    "some avg10=1.00 avg60=0.50 avg300=0.00 total=5000\n\
                     full avg10=0.00 avg60=0.00 avg300=0.00 total=700\n",
                ),
            ],
        );
        let groups = groups_by("0::/a\n", &root.mount("/", "", "cgroup2 none rw"));
        let expected = ControlGroup {
            path: "/a".to_owned(),
            current: 1000,
            anonymous: 400,
            files: 200,
            shared: 100,
            kernel: 90,
            sockets: 20,
            reclaimable: 240,
            swapped: Some(30),
            max: Some(2000),
            high: Some(1500),
            swap_max: None,
            kills: Some(1),
            slowdowns: Some(3),
            stalled: Some(Stalled {
                some: Duration::from_micros(5000),
                full: Duration::from_micros(700),
            }),
        };
        assert_eq!(groups, [expected]);
        assert_eq!(groups[0].held(), 760);
        let limiting = LimitingGroup::find_by("0::/a\n", &root.mount("/", "", "cgroup2 none rw"));
        let limiting = limiting.unwrap();
        let held = [0, 1000, 1001].map(|from| limiting.held(from));
        assert_eq!(held, [Some(760), Some(760), Some(0)]);
    }

    #[test]
    fn the_parts_of_the_first_version_are_read() {
        let root = Directory::new(
            "first-parts",
            &[
                ("a/memory.usage_in_bytes", "1000\n"),
                ("a/memory.limit_in_bytes", "2000\n"),
                ("a/memory.memsw.limit_in_bytes", "2500\n"),
                ("a/memory.kmem.usage_in_bytes", "60\n"),
                (
                    "a/memory.stat",
                    "cache 1\nrss 1\ntotal_cache 300\ntotal_rss 500\ntotal_shmem 100\ntotal_swap 9\n\
                     total_inactive_file 150\ntotal_active_file 50\nhierarchical_memory_limit 2000\n",
                ),
                (
                    "a/memory.oom_control",
                    "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n",
                ),
            ],
        );
        let mounts = root.mount("/", "", "cgroup cgroup rw,memory");
        let groups = groups_by("4:memory:/a\n", &mounts);
        let expected = ControlGroup {
            path: "/a".to_owned(),
            current: 1000,
            anonymous: 500,
            files: 200,
            shared: 100,
            kernel: 60,
            reclaimable: 200,
            swapped: Some(9),
            max: Some(2000),
            swap_max: Some(500),
            kills: Some(2),
            ..ControlGroup::default()
        };
        assert_eq!(groups, [expected]);
    }

    #[test]
    fn damaged_files_are_passed_over() {
        for stat in [
            "",
            "anon\n",
            "anon x\nanonymous 5\n",
            "\0\u{1}",
            "anon 99999999999999999999\n",
        ] {
            let files = [
                ("a/memory.current", "7\n"),
                ("a/memory.stat", stat),
                ("a/memory.max", "-1\n"),
            ];
            let root = Directory::new("damaged", &files);
            let groups = groups_by("0::/a\n", &root.mount("/", "", "cgroup2 none rw"));
            let expected = ControlGroup {
                path: "/a".to_owned(),
                current: 7,
                ..ControlGroup::default()
            };
            assert_eq!(groups, [expected], "{stat:?}");
        }
    }

    #[test]
    fn the_limit_that_contains_the_process_is_found() {
        // Whatever the machine has: the figures agree with each other.
        for group in groups() {
            assert!(group.held() <= group.current, "{group:?}");
            assert!(group.path.starts_with('/'), "{group:?}");
        }
        let least = groups().iter().filter_map(|group| group.max).min();
        assert_eq!(limit(), least);
    }

    #[test]
    fn the_memory_of_the_machine_is_read() {
        let text = "MemTotal:  100 kB\nMemFree: 1 kB\nMemAvailable: 60 kB\nSwapTotal: 9 kB\nSwapFree: 8 kB\n";
        let expected = Machine {
            total: 100 << 10,
            available: 60 << 10,
            swap: 9 << 10,
            swap_free: 8 << 10,
        };
        assert_eq!(machine_by(text), Some(expected));
        for (from, to) in [
            ("60 kB", "60"),
            ("60", "x"),
            ("Total", "All"),
            ("100", "99999999999999999999"),
        ] {
            assert_eq!(machine_by(&text.replace(from, to)), None, "{to}");
        }
        assert!(machine().is_some_and(|machine| machine.available <= machine.total));
    }
}
