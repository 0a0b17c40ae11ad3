//! The report of a process at its end: profiles with addresses, which the reader of the report
//! resolves to names, and numbers.
//!
//! A report has parts. Each part follows a line with its name and its length in bytes. The numbers are
//! the last part: a report that ends with them is complete. A report is a file, or a piece of the file
//! that forked children share: see [`super::shared_file`]. In a piece, the profiles share their tables, which
//! are another part: they have most stacks in common, and are shorter than their tables.

use std::fs::File;
use std::io::{self, BufWriter, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

use plimsoll_pprof::kinds::{AT_EXIT, ProfileKind};
use plimsoll_pprof::symbolized;
use plimsoll_sys::os::files;
use plimsoll_sys::os::process_id;
use plimsoll_sys::os::region;
use plimsoll_sys::os::signals;
use plimsoll_sys::os::{self, clock, filter};
use plimsoll_sys::primitives::{AtomicU32, AtomicU64, Ordering};

use super::inherited::{self, Counted, Inherited, Live};
use super::{arguments, confined, maximum, roll, shared_file, wall};
use plimsoll_core::alloc::interposition::{self, UnderlyingKind};
use plimsoll_core::internal_heap;
use plimsoll_core::sampler;
use plimsoll_core::single_thread;
use plimsoll_core::stack::{self, TABLE};
use plimsoll_profiles::export;
use plimsoll_profiles::profile;
use plimsoll_profiles::profile::memory::AtExit;
use plimsoll_profiles::profile::reading::Reading;
use plimsoll_stats::json::Object;
use plimsoll_stats::stats::outside_heap::OutsideHeap;
use plimsoll_stats::stats::{ClassCounts, HeapStats};

/// The start of the process, as far as this library knows it, by [`clock::since_boot`].
static BEGAN: AtomicU64 = AtomicU64::new(0);

/// The parent at the start: at the end, another process may have taken its place.
static PARENT: AtomicU32 = AtomicU32::new(0);

pub(super) fn begin() {
    BEGAN.store(clock::since_boot(), Ordering::Relaxed);
    // SAFETY: the call has no arguments.
    let parent = unsafe { libc::getppid() };
    PARENT.store(parent as u32, Ordering::Relaxed);
}

/// The life of a forked child below which its resident memory is not divided: that takes longer than
/// all else at its end.
const SHORT_LIFE: Duration = Duration::from_millis(100);

/// Returns the time since the start of the process.
fn elapsed() -> Duration {
    Duration::from_nanos(age())
}

/// Returns the time since the start of the process in nanoseconds.
pub(super) fn age() -> u64 {
    let began = BEGAN.load(Ordering::Relaxed);
    clock::since_boot().saturating_sub(began)
}

/// The age of the process in nanoseconds when a system call filter began to restrict it, plus 1; 0 without a filter.
static FILTERED: AtomicU64 = AtomicU64::new(0);

/// Prepares the report for a filter, after which nothing can be asked of the system.
pub(super) fn before_filter() {
    program();
    arguments::keep();
    symbolized::prepare();
    single_thread::find_out_whether_alone();
    FILTERED.store(age() + 1, Ordering::Relaxed);
}

/// Forgets a filter that the kernel refused.
pub(super) fn after_refused_filter() {
    FILTERED.store(0, Ordering::Relaxed);
}

/// More memory in bytes than a report takes, besides twice the table of stacks.
const PROFILES_HEAP: usize = 1 << 20;

/// The same without profiles.
const NUMBERS_HEAP: usize = 256 << 10;

/// The name of a part without content that takes the place of the profiles, if the report is limited to its numbers.
const CUT: &str = "cut";

/// Writes everything; parts that cannot be written are missing. The roll states whether that succeeded.
pub(super) fn write(directory: &Path, ending: &str) {
    roll::note(&write_all_parts(directory, ending));
}

fn write_all_parts(directory: &Path, ending: &str) -> io::Result<()> {
    let process = process_id();
    let is_restricted = filter::is_restricted();
    // A process at the limit of its memory may have none for profiles.
    let has_profiles = is_restricted || internal_heap::has_room(PROFILES_HEAP + 2 * TABLE.bytes());
    if !has_profiles && !internal_heap::has_room(NUMBERS_HEAP) {
        return Err(io::ErrorKind::OutOfMemory.into());
    }
    let inherited = inherited::get();
    // Read before the profiles, to exclude their memory. The numbers of mappings are the sums of
    // their profile, because other threads map and unmap meanwhile.
    let mut counted = Counted::read();
    if has_profiles {
        stack::refresh_modules();
    }
    // First, to exclude the work for the report.
    let mut cpu = (profile::cpu::rate() != 0 && has_profiles)
        .then(|| inherited::own_reading(inherited, "profile"))
        .flatten();
    let mut mmap = has_profiles
        .then(|| inherited::own_reading(inherited, "mmap"))
        .flatten();
    let mapped = mmap.as_ref().map(Mapped::from_reading).unwrap_or_default();
    let is_short = inherited.is_some() && elapsed() < SHORT_LIFE;
    // After a fault, the program's allocator may be in the middle of a call, and the list of mappings may need more
    // memory than Plimsoll's own heap has.
    let mut memory = (!is_short && !is_restricted && has_profiles && !signals::is_fault(ending))
        .then(profile::memory::read_at_exit)
        .flatten();
    let numbers = numbers(ending, &mut counted, inherited, mapped, memory.as_ref());
    let kinds = AT_EXIT.into_iter().filter(|_| has_profiles);
    let readings = kinds.filter_map(|ProfileKind { name, .. }| {
        let reading = match name {
            "profile" => cpu.take(),
            // A forked child shares most of its memory with its parent.
            "memory" if inherited.is_some() => None,
            "memory" => memory.take().map(|memory| memory.reading),
            "mmap" => mmap.take(),
            "wall" => wall::read(),
            _ => inherited::own_reading(inherited, name),
        };
        // Most profiles of most forked children are empty, and there may be many.
        let is_written = |reading: &Reading| inherited.is_none() || !reading.samples.is_empty();
        Some((name, reading.filter(is_written)?))
    });
    let readings: Vec<(&str, Reading)> = readings.collect();
    let names = readings.iter().map(|(name, _)| *name);
    let plain = readings.iter().map(|(_, reading)| reading);
    let numbers = Part::new(("numbers", numbers.into_bytes()));
    let cut = Part::new((CUT, Vec::new()));
    let without_profiles: Vec<&[u8]> = [&cut, &numbers]
        .into_iter()
        .flat_map(Part::pieces)
        .collect();
    if is_restricted || confined::is_prepared() {
        let parts = names.zip(export::plain_pprof(plain)).map(Part::new);
        let parts: Vec<Part> = parts.collect();
        let parts = parts.iter().chain([&numbers]);
        let pieces: Vec<&[u8]> = parts.flat_map(Part::pieces).collect();
        let is_written =
            has_profiles && confined::write(&pieces) || confined::write(&without_profiles);
        return match is_written {
            true => Ok(()),
            false => Err(io::ErrorKind::FileTooLarge.into()),
        };
    }
    if !has_profiles {
        return write_numbers(directory, ending, &without_profiles);
    }
    // The report of a program that the process executes has the same process number, and replaces this.
    if inherited.is_some() && ending != "exec" {
        let (profiles, tables) = export::sharing_pprof(plain);
        let tables = (!profiles.is_empty()).then_some(("tables", tables));
        let parts = names.zip(profiles).chain(tables);
        let parts: Vec<Part> = parts.map(Part::new).collect();
        let parts = parts.iter().chain([&numbers]);
        let pieces: Vec<&[u8]> = parts.flat_map(Part::pieces).collect();
        if shared_file::append(directory, process, &pieces).is_ok() {
            return Ok(());
        }
        let written = put(directory, ending, |mut file| write_all(&mut file, &pieces));
        return match is_too_large(&written) {
            true => write_numbers(directory, ending, &without_profiles),
            false => written,
        };
    }
    // Part by part, because profiles may be large.
    let parts = names.zip(export::plain_pprof(plain)).map(Part::new);
    let written = put(directory, ending, |file| {
        let mut file = BufWriter::new(file);
        for part in parts {
            write_all(&mut file, &part.pieces())?;
        }
        write_all(&mut file, &numbers.pieces())?;
        file.flush()
    });
    match is_too_large(&written) {
        true => write_numbers(directory, ending, &without_profiles),
        false => written,
    }
}

/// Writes the file of this program. The number of the namespace and the time of the start distinguish processes of equal
/// numbers. A report before an execution has a name that the executed program removes with its own report. If that file
/// belongs to another user, which the process was before, it stays.
fn put(
    directory: &Path,
    ending: &str,
    write: impl FnOnce(File) -> io::Result<()>,
) -> io::Result<()> {
    let stem = format!("{}-{}", process_id(), roll::namespace());
    let began = BEGAN.load(Ordering::Relaxed);
    let before = format!("{stem}.exec");
    if ending == "exec" {
        return match super::belongs_to_another(&directory.join(&before)) {
            true => super::put(directory, &format!("{stem}-{began}.exec"), write),
            false => super::put(directory, &before, write),
        };
    }
    super::put(directory, &format!("{stem}-{began}.report"), write)?;
    // Usually, the process has executed no program before.
    let _ = std::fs::remove_file(directory.join(before));
    Ok(())
}

/// Writes a report without its profiles, because the whole report exceeds the limit on the size of files.
fn write_numbers(directory: &Path, ending: &str, without_profiles: &[&[u8]]) -> io::Result<()> {
    put(directory, ending, |mut file| {
        write_all(&mut file, without_profiles)
    })
}

fn write_all(to: &mut impl io::Write, pieces: &[&[u8]]) -> io::Result<()> {
    pieces.iter().try_for_each(|piece| to.write_all(piece))
}

fn is_too_large(written: &io::Result<()>) -> bool {
    let error = written.as_ref().err();
    error.is_some_and(|error| error.kind() == io::ErrorKind::FileTooLarge)
}

/// A part of a report. A file for each part would take longer than to read them.
struct Part {
    /// The line with the name and the length.
    line: String,
    content: Vec<u8>,
}

impl Part {
    fn new((name, content): (&str, Vec<u8>)) -> Self {
        let line = format!("{name} {}\n", content.len());
        Self { line, content }
    }

    fn pieces(&self) -> [&[u8]; 2] {
        [self.line.as_bytes(), &self.content]
    }
}

/// Mappings of the program, by the values of their profile.
#[derive(Clone, Copy, Default)]
struct Mapped {
    calls: i64,
    bytes: i64,
    mappings: i64,
    live_bytes: i64,
}

impl Mapped {
    fn from_reading(reading: &Reading) -> Self {
        let mut sum = Self::default();
        for sample in &reading.samples {
            let [calls, bytes, mappings, live_bytes, ..] = sample.values;
            sum.calls += calls;
            sum.bytes += bytes;
            sum.mappings += mappings;
            sum.live_bytes += live_bytes;
        }
        sum
    }
}

/// Returns the name of the allocator that is observed.
pub(super) fn allocator() -> &'static str {
    let Some(library) = interposition::registered() else {
        return "unmeasured";
    };
    match library.underlying_kind() {
        _ if library.is_linked_redirected() => "redirected",
        UnderlyingKind::Libc => "libc",
        UnderlyingKind::Other => "other",
        UnderlyingKind::Unmeasured => "unmeasured",
        UnderlyingKind::Program => "program",
        UnderlyingKind::Redirected => "redirected",
    }
}

/// The path of the program, once it is needed: the system takes longer to find it than to read most numbers.
static PROGRAM: OnceLock<PathBuf> = OnceLock::new();

/// Returns the path of the program, as it was executed; empty if it is unknown. Children of forks inherit it.
pub(super) fn program() -> &'static Path {
    PROGRAM.get_or_init(|| files::program().unwrap_or_default())
}

// Not inlined, so that its memory on the stack is free again while the profiles are encoded: each page of it
// would cost a forked child a page fault.
#[inline(never)]
fn numbers(
    ending: &str,
    counted: &mut Counted,
    inherited: Option<&Inherited>,
    mapped: Mapped,
    memory: Option<&AtExit>,
) -> String {
    let library = interposition::registered();
    let peak = library.map(|library| library.peak(Live::new(&counted.heap).bytes));
    let live = inherited.map_or(Live::default(), |inherited| inherited.live);
    if let Some(inherited) = inherited {
        counted.subtract(&inherited.counted);
    }
    let heap = HeapStats::from_cut(&counted.heap);
    let maximum = maximum::highest(memory.map(|memory| &memory.by_owner));
    // The kernel's maximum lacks pages that a processor has not added yet: the kernel counts them apart, and adds
    // some dozen at a time. The accounts have all pages.
    let accounts = [
        memory.map_or(0, |memory| memory.bytes),
        maximum.as_ref().map_or(0, |maximum| maximum.bytes()),
    ];
    let (locks, lost) = (&counted.locks, &counted.lost);
    let usage = Usage::read();
    let elapsed = elapsed();
    let now = Duration::from_nanos(clock::unix_nanos());
    let mut to = Object::with_capacity(1024);
    to.number("version", 1);
    if inherited.is_some() {
        to.numbers("inherited", &[live.objects, live.bytes]);
    }
    to.number("process", process_id().into());
    to.number("namespace", roll::namespace());
    if let Some(limit) = region::address_space_limit() {
        to.number("address_space_limit", limit as u64);
    }
    if let Some(filtered) = FILTERED.load(Ordering::Relaxed).checked_sub(1) {
        to.seconds("filter_seconds", Duration::from_nanos(filtered));
    }
    to.text("program", &program().to_string_lossy());
    to.text("ending", ending);
    to.number("parent", PARENT.load(Ordering::Relaxed).into());
    put_arguments(&mut to);
    to.seconds("cpu_seconds", usage.cpu);
    to.seconds("started", now.saturating_sub(elapsed));
    to.seconds("seconds", elapsed);
    to.text("allocator", allocator());
    if let Some(obstacle) = library.and_then(|library| library.why_not_redirected()) {
        to.text("obstacle", &obstacle);
    }
    to.flag("peak_estimated", peak.is_some_and(|peak| peak.is_estimated));
    to.flag("exact", heap.exact);
    let classes = heap.by_class.iter();
    let classes = classes.filter(|class| class.mallocs != 0 || class.frees != 0);
    let row = |class: &ClassCounts| [class.size as u64, class.mallocs, class.frees];
    to.rows("classes", classes.map(row));
    let large = &heap.large;
    to.numbers(
        "large",
        &[
            large.mallocs,
            large.frees,
            large.malloc_bytes,
            large.free_bytes,
        ],
    );
    let nanoseconds = |time: Duration| time.as_nanos() as u64;
    for (name, value) in [
        ("heap_rate", sampler::rate() as u64),
        ("block_rate", nanoseconds(profile::block_rate())),
        ("mutex_fraction", profile::mutex_fraction().into()),
        ("mallocs", heap.mallocs),
        ("frees", heap.frees),
        ("malloc_bytes", heap.malloc_bytes),
        ("free_bytes", heap.free_bytes),
        ("asked_bytes", counted.heap.delta.asked_bytes),
        (
            "peak_bytes",
            peak.map_or(0, |peak| peak.bytes).saturating_sub(live.bytes),
        ),
        ("threads", counted.threads),
        ("waits", locks.waits),
        ("waited_ns", nanoseconds(locks.waited)),
        ("lock_waits", locks.lock_waits),
        ("lock_waited_ns", nanoseconds(locks.mutex_wait_total())),
        ("contended_releases", locks.contended_releases),
        ("blamed_ns", nanoseconds(locks.blamed)),
        ("without_stack", lost.without_stack),
        ("cut_stacks", lost.cut_stacks),
        ("shortened_stacks", lost.shortened_stacks),
        ("table_full", lost.table_full),
        ("untracked", lost.untracked),
        ("lost_waits", lost.waits),
        ("mappings", mapped.mappings.max(0) as u64),
        ("mapping_calls", mapped.calls.max(0) as u64),
        ("mapped_bytes", mapped.bytes.max(0) as u64),
        (
            "unmapped_bytes",
            (mapped.bytes - mapped.live_bytes).max(0) as u64,
        ),
        ("lost_mappings", lost.mappings),
        ("own_bytes", OutsideHeap::without_stacks().of_plimsoll()),
        (
            "peak_resident",
            match inherited {
                // The process has executed no program since its fork.
                Some(_) => usage.resident,
                None => highest_resident(),
            }
            .max(accounts[0])
            .max(accounts[1]),
        ),
    ] {
        to.number(name, value);
    }
    if let Some(memory) = memory {
        let owners = memory.by_owner.iter();
        let owners = owners.map(|(owner, bytes)| (*owner, *bytes));
        to.number("heap_in_use", memory.heap_in_use);
        to.number("heap_error", memory.heap_error);
        to.object("memory", by_owner(memory.bytes, owners));
    }
    if let Some(maximum) = maximum {
        let mut account = Object::with_capacity(256);
        account.seconds("seconds", Duration::from_nanos(maximum.after_ns));
        account.object("memory", by_owner(maximum.bytes(), maximum.by_owner()));
        to.object("maximum", account);
    }
    to.finish()
}

/// Writes the arguments of the process.
fn put_arguments(to: &mut Object) {
    let line = arguments::read();
    let line = String::from_utf8_lossy(&line);
    // Zeros follow the last argument, and all of a title.
    let line = line.trim_end_matches('\0');
    if !line.is_empty() {
        to.texts("arguments", line.split('\0'));
    }
}

/// Reads the beginning of a file in one call.
fn read(path: &str, to: &mut [u8]) -> io::Result<usize> {
    files::open(path)?.read(to)
}

/// Resources that the process used, without its children; zeros if a filter forbids to ask for them.
#[derive(Default)]
struct Usage {
    cpu: Duration,
    /// The highest resident memory in bytes, also in programs that the process executed before.
    resident: u64,
}

impl Usage {
    fn read() -> Self {
        let Some(usage) = os::usage() else {
            return Self::default();
        };
        let time = |time: libc::timeval| {
            Duration::from_secs(time.tv_sec as u64) + Duration::from_micros(time.tv_usec as u64)
        };
        Self {
            cpu: time(usage.ru_utime) + time(usage.ru_stime),
            resident: 1024 * usage.ru_maxrss as u64,
        }
    }
}

/// Returns the highest resident memory of the process in bytes, without programs that it executed before;
/// 0 if it is unknown.
// Not inlined, for the same reason as `numbers`.
#[inline(never)]
fn highest_resident() -> u64 {
    // The line is among the first, which have less than 2 KiB.
    let mut status = [0; 4096];
    let length = read("/proc/self/status", &mut status).unwrap_or(0);
    let status = String::from_utf8_lossy(&status[..length]);
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
    1024 * kib.unwrap_or(0)
}

/// Returns the resident bytes and those of each owner that has some.
fn by_owner<'a>(resident: u64, owners: impl Iterator<Item = (&'a str, u64)>) -> Object {
    let mut to = Object::with_capacity(256);
    to.number("resident", resident);
    for (owner, bytes) in owners {
        to.number(owner, bytes);
    }
    to
}
