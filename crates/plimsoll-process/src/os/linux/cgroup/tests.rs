//! Groups in directories that the tests write, and those of this machine.

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
    let text =
        "MemTotal:  100 kB\nMemFree: 1 kB\nMemAvailable: 60 kB\nSwapTotal: 9 kB\nSwapFree: 8 kB\n";
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

#[test]
fn kills_are_read_without_the_other_figures() {
    let first = "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n";
    let second = "low 0\nhigh 3\nmax 4\noom 2\noom_kill 1\n";
    let files = [("memory.oom_control", first), ("memory.events", second)];
    let directory = Directory::new("kills", &files);
    let files = Files(&directory.0);
    assert_eq!(files.kills(Version::First), Some(2));
    assert_eq!(files.kills(Version::Second), Some(1));
    // Of this process, if its group counts memory.
    if let Some(group) = groups().first() {
        assert_eq!(kills(), group.kills);
    }
}
