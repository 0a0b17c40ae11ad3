//! Files of valid structure with hostile content: each field is plausible in isolation.

use std::fs;
use std::os::unix::process::CommandExt;
use std::process::Command;

use plimsoll_command::profile::{Limits, parse};
use plimsoll_symbolize::Detail;

use crate::command::{Directory, file_of_command};
use crate::hostile::{file, is_shown, part};

/// Positions of words in the header.
const NOTES: usize = 6;
const TABLE: usize = 8;
const NOTES_USED: usize = 22;

/// Kinds of notes.
const MODULE: u32 = 2;
const LABELS: u32 = 3;

/// Positions in a bucket.
const BEFORE: usize = 12;
const STACK: usize = 16;
const SET: usize = 20;

/// The position of the newest bucket's name in the table.
const NEWEST: usize = 56;

/// The unit of the names of stacks and buckets, in bytes.
const UNIT: usize = 16;

fn note(kind: u32, content: &[u8]) -> Vec<u8> {
    let mut note = kind.to_ne_bytes().to_vec();
    note.extend((content.len() as u32).to_ne_bytes());
    note.extend(content);
    note.resize(note.len().next_multiple_of(8), 0);
    note
}

fn module(start: u64, limit: u64, file: &str) -> Vec<u8> {
    module_at(start, limit, 0x1000, file)
}

fn module_at(start: u64, limit: u64, offset: u64, file: &str) -> Vec<u8> {
    let mut content = Vec::new();
    for word in [start, limit, offset] {
        content.extend(word.to_ne_bytes());
    }
    content.extend(0_u32.to_ne_bytes());
    content.extend((file.len() as u32).to_ne_bytes());
    content.extend(file.as_bytes());
    note(MODULE, &content)
}

fn label_set(number: u32, labels: &[(String, String)]) -> Vec<u8> {
    let mut content = number.to_ne_bytes().to_vec();
    for text in labels.iter().flat_map(|(key, value)| [key, value]) {
        content.extend((text.len() as u32).to_ne_bytes());
        content.extend(text.as_bytes());
    }
    note(LABELS, &content)
}

fn put(bytes: &mut [u8], at: usize, value: u64) {
    bytes[at..at + 8].copy_from_slice(&value.to_ne_bytes());
}

fn put_half(bytes: &mut [u8], at: usize, value: u32) {
    bytes[at..at + 4].copy_from_slice(&value.to_ne_bytes());
}

/// Replaces the notes of a file by others at its end.
fn replace_notes(bytes: &mut Vec<u8>, notes: &[u8]) {
    bytes.resize(bytes.len().next_multiple_of(4096), 0);
    let at = bytes.len() as u64;
    bytes.extend(notes);
    for (word, value) in [
        (NOTES, at),
        (NOTES + 1, notes.len() as u64),
        (NOTES_USED, notes.len() as u64),
    ] {
        put(bytes, 8 * word, value);
    }
}

/// Adds stacks and buckets to the table of a file, which moves to the file's end. Each bucket has
/// one of the stacks, a set of labels, and the counts of the largest bucket of [`file`].
fn add_buckets(bytes: &mut Vec<u8>, stacks: &[Vec<u64>], buckets: &[(usize, u32)]) {
    let table = part(bytes, TABLE);
    let used = u64::from_ne_bytes(bytes[table..][..8].try_into().unwrap()) as usize;
    let mut copy = bytes[table..table + used].to_vec();
    let newest = u32::from_ne_bytes(copy[NEWEST..][..4].try_into().unwrap());
    let word = |at: usize| u64::from_ne_bytes(copy[at..at + 8].try_into().unwrap());
    let mut model = newest as usize * UNIT;
    while word(model) != 10_240 {
        model = (word(model + 8) >> 32) as usize * UNIT;
    }
    // At least as long as any bucket; the bytes behind it are harmless.
    let mut model: Vec<u8> = copy[model..].iter().copied().take(512).collect();
    model.resize(512, 0);
    let mut names = Vec::new();
    for stack in stacks {
        copy.resize(copy.len().next_multiple_of(UNIT), 0);
        names.push((copy.len() / UNIT) as u32);
        copy.extend([0; 12]);
        copy.extend((stack.len() as u32).to_ne_bytes());
        for frame in stack {
            copy.extend(frame.to_ne_bytes());
        }
    }
    let mut before = newest;
    for &(stack, labels) in buckets {
        copy.resize(copy.len().next_multiple_of(64), 0);
        let name = (copy.len() / UNIT) as u32;
        let at = copy.len();
        copy.extend(&model);
        put_half(&mut copy, at + BEFORE, before);
        put_half(&mut copy, at + STACK, names[stack]);
        put_half(&mut copy, at + SET, labels);
        before = name;
    }
    put_half(&mut copy, NEWEST, before);
    let length = copy.len() as u64;
    put(&mut copy, 0, length);
    bytes.resize(bytes.len().next_multiple_of(4096), 0);
    let at = bytes.len() as u64;
    put(bytes, 8 * TABLE, at);
    put(bytes, 8 * (TABLE + 1), length);
    bytes.extend(copy);
}

/// Runs `report` with a limit on its CPU time: five times the need of a build without optimization.
/// A limit on elapsed time would fail on a busy machine.
fn report_is_quick(name: &str, bytes: &[u8], directory: &Directory) {
    let path = directory.file(name, bytes);
    let mut command = Command::new(file_of_command());
    command.args(["report", &path, "--comments"]);
    let limit = libc::rlimit {
        rlim_cur: 15,
        rlim_max: 15,
    };
    // SAFETY: between fork and exec, only a system call is made.
    unsafe {
        command.pre_exec(
            move || match libc::setrlimit(libc::RLIMIT_CPU, &raw const limit) {
                0 => Ok(()),
                _ => Err(std::io::Error::last_os_error()),
            },
        );
    }
    let output = command.output().unwrap();
    assert!(output.status.success(), "{name}: {output:?}");
    fs::remove_file(path).unwrap();
}

/// As many adjacent modules as fit in 9 MiB.
#[test]
fn many_modules_are_read_in_linear_time() {
    let directory = Directory::new("postmortem-modules");
    let mut bytes = file(&directory);
    let modules = (1..120_000).map(|at| module(at << 12, (at + 1) << 12, "[x]"));
    replace_notes(&mut bytes, &modules.collect::<Vec<_>>().concat());
    report_is_quick("modules", &bytes, &directory);
}

/// As many modules as a process can record, and a million addresses, each in another module.
#[test]
fn many_addresses_find_their_modules_in_linear_time() {
    let directory = Directory::new("postmortem-addresses");
    let mut bytes = file(&directory);
    let count = 23_000;
    let modules = (1..count).map(|at| module(at << 12, (at + 1) << 12, "[x]"));
    replace_notes(&mut bytes, &modules.collect::<Vec<_>>().concat());
    let stack = |first: u64| (0..1000).map(|at| (first * 1000 + at) * 64).collect();
    let stacks: Vec<Vec<u64>> = (0..1000).map(stack).collect();
    let buckets: Vec<_> = (0..stacks.len()).map(|stack| (stack, 0)).collect();
    add_buckets(&mut bytes, &stacks, &buckets);
    report_is_quick("addresses", &bytes, &directory);
}

/// Returns the address range of this program's code, and its offset in the file.
fn own_code(program: &str) -> (u64, u64, u64) {
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    let is_code = |line: &&str| line.contains(" r-xp ") && line.ends_with(program);
    let line = maps.lines().find(is_code).expect("it is mapped");
    let mut numbers = line.split(['-', ' ']);
    let mut next = || u64::from_str_radix(numbers.next().unwrap(), 16);
    let (start, limit) = (next().unwrap(), next().unwrap());
    let offset = line.split(' ').nth(2).unwrap();
    (start, limit, u64::from_str_radix(offset, 16).unwrap())
}

/// One real file with debug information, mapped at many addresses. Its debug information is not
/// read again for each mapping.
#[test]
fn a_file_that_is_mapped_thousands_of_times_is_not_read_as_often() {
    let directory = Directory::new("postmortem-copies");
    let mut bytes = file(&directory);
    let program = std::env::current_exe().unwrap();
    let program = program.to_str().unwrap();
    let (start, limit, offset) = own_code(program);
    let modules =
        (1..1000).map(|at| module_at(at << 32, (at << 32) + limit - start, offset, program));
    replace_notes(&mut bytes, &modules.collect::<Vec<_>>().concat());
    let within = file as *const () as u64 - start + 1;
    let stack: Vec<u64> = (1..1000).map(|at| (at << 32) + within).collect();
    add_buckets(&mut bytes, &[stack], &[(0, 0)]);
    report_is_quick("copies", &bytes, &directory);
}

/// A set of 60,000 labels, shared by 20,000 buckets.
#[test]
fn labels_that_all_sites_have_are_limited() {
    let directory = Directory::new("postmortem-many-labels");
    let mut bytes = file(&directory);
    let labels: Vec<_> = (0..60_000)
        .map(|at| (format!("{at}"), String::new()))
        .collect();
    replace_notes(&mut bytes, &label_set(1, &labels));
    let stacks: Vec<_> = (1..20_000).map(|at| vec![at << 12]).collect();
    let buckets: Vec<_> = (0..stacks.len()).map(|stack| (stack, 1)).collect();
    add_buckets(&mut bytes, &stacks, &buckets);
    let path = directory.file("labels", &bytes);
    let left = plimsoll_postmortem::read(&fs::File::open(path).unwrap()).unwrap();
    assert!(left.damaged, "the profile reports missing labels");
    assert!(left.sites.len() > stacks.len());
}

/// A generator of numbers with a fixed seed.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

/// Notes that overlap, repeat and contradict one another, and buckets with any stack and labels.
/// The modules shown are those of a list from which each new module removes those that it overlaps.
#[test]
fn well_formed_notes_and_buckets_are_shown_with_any_values() {
    let directory = Directory::new("postmortem-structure");
    let whole = file(&directory);
    let mut random = Random(11);
    for round in 0..150 {
        let mut bytes = whole.clone();
        let mut notes = Vec::new();
        let mut expected: Vec<(u64, u64)> = Vec::new();
        for _ in 0..random.below(60) {
            if random.below(3) > 0 {
                let (one, other) = (random.below(200), random.below(200));
                let (start, limit) = (one << 12, other << 12);
                let file = ["", "[vdso]", "/nowhere", "/bin/sh", "\u{202e}\n"];
                notes.extend(module(start, limit, file[random.below(5) as usize]));
                if start < limit {
                    expected.retain(|&(s, l)| l <= start || limit <= s);
                    expected.push((start, limit));
                }
            } else {
                let set: Vec<_> = (0..random.below(5))
                    .map(|_| {
                        let text = |number: u64| "k".repeat(number as usize);
                        (text(random.below(4)), text(random.below(4)))
                    })
                    .collect();
                notes.extend(label_set(1 + random.below(6) as u32, &set));
            }
        }
        let is_cut = round % 5 == 4;
        if is_cut {
            notes.truncate(notes.len().saturating_sub(random.below(40) as usize));
        }
        replace_notes(&mut bytes, &notes);
        let stacks: Vec<Vec<u64>> = (0..=random.below(5))
            .map(|_| {
                (0..random.below(60))
                    .map(|_| random.below(220 << 12))
                    .collect()
            })
            .collect();
        let buckets: Vec<_> = (0..random.below(20))
            .map(|_| {
                let stack = random.below(stacks.len() as u64);
                (stack as usize, random.below(8) as u32)
            })
            .collect();
        add_buckets(&mut bytes, &stacks, &buckets);
        assert!(is_shown(&bytes, &directory), "round {round}");
        let path = directory.path("damaged");
        let left = plimsoll_postmortem::read(&fs::File::open(path).unwrap()).unwrap();
        let read = parse(&left.to_pprof(Detail::Addresses), Limits::default()).unwrap();
        let mut shown: Vec<_> = read
            .mappings()
            .iter()
            .map(|mapping| (mapping.start, mapping.limit))
            .collect();
        shown.sort_unstable();
        expected.sort_unstable();
        if expected.is_empty() {
            expected.push((0, 0));
        }
        assert!(is_cut || shown == expected, "{round}: {shown:x?}");
    }
}
