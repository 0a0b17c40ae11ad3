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

/// Returns how many processes of the process's control group the kernel has killed for lack of memory: that of
/// [`ControlGroup`], without the other figures, which the kernel would have to collect. Reads three files; `None` if they
/// do not state it.
pub fn kills() -> Option<u64> {
    let groups = files::read_to_string("/proc/self/cgroup").ok()?;
    let mounts = files::read_to_string("/proc/self/mountinfo").ok()?;
    let (directories, version) = directories_by(&groups, &mounts)?;
    Files(&directories.directory).kills(version)
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

    fn kills(&self, version: Version) -> Option<u64> {
        let file = match version {
            Version::First => "memory.oom_control",
            Version::Second => "memory.events",
        };
        Words(self.text(file)?).get("oom_kill")
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
            kills: self.kills(Version::First),
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
mod tests;
