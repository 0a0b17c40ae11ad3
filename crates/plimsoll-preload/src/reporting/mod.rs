//! The report at the end of the process, and what prepares it.
//!
//! Before the process confines itself, as by a system call filter, [`before_confinement`] prepares the report: see
//! `confined`. From then on, a filter leaves the library no system call.
//!
//! Plimsoll creates a thread in such a program only when the program has several threads, or if
//! pages, a memory limit or a wall-clock profile are requested. The program may count its threads, and the C library is
//! faster in a process of one thread.

mod arguments;
mod confined;
mod inherited;
mod maximum;
mod report;
mod roll;
mod shared_file;
mod wall;

use std::ffi::c_void;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

use plimsoll_process::file_size;
use plimsoll_process::thread_stack;
use plimsoll_process::wipe_on_fork::Forgotten;
use plimsoll_sys::os::files;
use plimsoll_sys::os::filter::{self, Calls};
use plimsoll_sys::os::fork::{Member, Rank, join};
use plimsoll_sys::os::privileges;
use plimsoll_sys::os::process_id;
use plimsoll_sys::os::signals::BlockedSignals;
use plimsoll_sys::primitives::{AtomicBool, AtomicI32, AtomicU32, Ordering};
use plimsoll_unwind::unwind_tables::known_rules;

use plimsoll::preload;
use plimsoll_backend::backend;
use plimsoll_core::alloc::counts::HEAP;
use plimsoll_core::alloc::interposition::UnderlyingKind;
use plimsoll_core::alloc::{interposition, process, thread as alloc_thread};
use plimsoll_core::deferred_signals::Counting;
use plimsoll_core::fork::Order;
use plimsoll_core::stack::{CPU_TABLE, TABLE};
use plimsoll_core::{
    alloc, internal_heap, internal_scope, internal_thread, sampler, single_thread, stack, wakeup,
};
use plimsoll_ledger::postmortem_file;
use plimsoll_profiles::hook;
use plimsoll_profiles::maintenance;
use plimsoll_profiles::maintenance::PeriodicCheck;
use plimsoll_profiles::symbol;
use plimsoll_threads::thread;

/// The directory for reports.
static DIRECTORY: OnceLock<PathBuf> = OnceLock::new();

/// The process that reports; a process that is forked from it is another.
static PROCESS: AtomicI32 = AtomicI32::new(0);

/// Whether the settings were activated.
static SET_OFF: AtomicBool = AtomicBool::new(false);

/// Sets the process up, if no allocation has done that. Must be called before anything is allocated
/// here: such a block would become the program's.
pub(crate) fn open() {
    process::open();
}

/// Returns whether the environment may control this library. It must not in a process with
/// privileges that the user who started it lacks.
pub(crate) fn may_obey_environment() -> bool {
    !privileges::are_elevated()
}

/// Begins, before `main`: from now on, the process reports to files in `directory`. `library` interposes `malloc`. With
/// `children`, processes that are forked from this one report as well. With `wall`, the report
/// contains a wall-clock profile.
pub(crate) fn begin(
    library: &'static dyn interposition::Interposition,
    directory: PathBuf,
    children: bool,
    wall: bool,
) {
    interposition::register(library);
    preload::prepare_postmortem();
    let _own = internal_scope::scope();
    join(&Forks);
    if postmortem_file::header().is_some() {
        let library = interposition::registered();
        let obstacle = library.and_then(|library| library.why_not_redirected());
        postmortem_file::notes::allocator(report::allocator(), &obstacle.unwrap_or_default());
    }
    wakeup::call_after_samples(work_if_alone);
    static CHECK: PeriodicCheck = PeriodicCheck {
        period: last_thread_after,
        check: end_if_no_thread_is_left,
    };
    maintenance::check_periodically(&CHECK);
    hook::threads::call_at_creations(activate);
    hook::filters::observe(hook::filters::Observer {
        before: before_filter,
        refused: after_refused_filter,
        confined: before_confinement,
        ends: before_raw_end,
    });
    PROCESS.store(own_process(), Ordering::Relaxed);
    IS_REPORTER.prepare();
    IS_REPORTER.store(1, Ordering::Relaxed);
    roll::open(&directory);
    let _ = DIRECTORY.set(directory);
    report::begin();
    maximum::begin();
    notice_end_of_first();
    single_thread::find();
    CHILDREN.store(children, Ordering::Relaxed);
    if children {
        SERVES_PAGES.store(preload::wants_pages(), Ordering::Relaxed);
        known_rules::share_with_children();
    }
    // No other part reports the underlying allocator.
    if interposition::underlying_kind() == Some(UnderlyingKind::Libc) {
        backend::notice(&backend::System::PLAIN);
    }
    preload::start_cpu_samples();
    if wall || preload::wants_thread() {
        activate();
    }
    if wall {
        wall::begin();
    }
}

/// Whether this process is the one that reports. The system clears it in children: in another namespace, a child may
/// have its parent's number, and a filter may forbid to ask for the number.
static IS_REPORTER: Forgotten<AtomicU32> = Forgotten::new(AtomicU32::new(0));

/// The end of Plimsoll's threads before a filter takes at most so long.
const PATIENCE: Duration = Duration::from_secs(2);

/// Memory of Plimsoll's own heap in bytes that is made accessible for what follows a filter.
const HEAP_AHEAD: usize = 8 << 20;

/// The same for new stacks.
const TABLE_AHEAD: usize = 1 << 20;

/// Functions of the preloaded library that a filter concerns.
static OF_FILTERS: OnceLock<[fn(); 2]> = OnceLock::new();

/// Registers functions that are called before each filter, and after one that the kernel refused.
pub(crate) fn call_around_filters(before: fn(), refused: fn()) {
    let _ = OF_FILTERS.set([before, refused]);
}

/// Gives address space back, before the process limits its own to `limit` bytes. Call it before each such change. The
/// child of a `vfork` gives none back: it is its parent's.
pub(crate) fn before_address_space_limit(limit: usize) {
    if !filter::is_restricted() && !alloc_thread::is_lent() {
        plimsoll_core::alloc::process::before_address_space_limit(limit);
    }
}

/// Prepares the report of a process that is about to confine itself, so that it could not write one at its end. Call it
/// before each change of the user, of the root directory, of namespaces and of limits.
pub(crate) fn before_confinement() {
    if let Some(directory) = DIRECTORY.get().filter(|_| reports()) {
        let _counting = Counting::begin();
        let _blocked = BlockedSignals::new();
        let _own = internal_scope::scope();
        report::program();
        // Without the file, the process has no report if it cannot write one.
        let _ = confined::prepare(directory);
    }
}

/// Ends Plimsoll's threads, before a call that only a process of one thread may make. Such a call of a program with more
/// threads fails; Plimsoll's end all the same, since the system still counts a thread that was just joined.
pub(crate) fn leave_one_thread() {
    let _counting = Counting::begin();
    let _blocked = BlockedSignals::new();
    if reports() {
        internal_thread::end_all(PATIENCE);
    }
}

/// Prepares the process for a filter. Returns the calls that Plimsoll goes on to make, of those that the filter allows: it
/// reads the clock, which takes a system call on few machines.
fn before_filter(allowed: &Calls) -> Calls {
    internal_thread::end_all(PATIENCE);
    if reports() {
        before_confinement();
        symbol::remember_objects();
        report::before_filter();
        // Without them, the heap may be full.
        let _ = internal_heap::commit_ahead(HEAP_AHEAD + 2 * TABLE.bytes());
        alloc::commit_for_samples();
        TABLE.prepare_pages(TABLE_AHEAD, false);
    }
    if let Some([before, _]) = OF_FILTERS.get() {
        before();
    }
    match allowed.contains(libc::SYS_clock_gettime) {
        true => Calls::NONE.with(libc::SYS_clock_gettime),
        false => Calls::NONE,
    }
}

/// Reports before the program ends its process by `syscall`, or the only thread.
fn before_raw_end(is_of_thread: bool) {
    if !is_of_thread || single_thread::is_single_threaded() == Some(true) {
        report("_exit");
    }
}

fn after_refused_filter() {
    report::after_refused_filter();
    if let Some([_, refused]) = OF_FILTERS.get() {
        refused();
    }
}

/// Whether processes that are forked from this one report as well.
static CHILDREN: AtomicBool = AtomicBool::new(false);

/// Whether the settings request pages, which each process serves.
static SERVES_PAGES: AtomicBool = AtomicBool::new(false);

/// The reports of the children of forks.
struct Forks;

impl Member for Forks {
    fn rank(&self) -> Rank {
        Order::Preload.rank()
    }

    fn prepare(&self) {
        before_fork();
    }

    fn resume(&self) {
        after_fork_in_child();
    }
}

/// Finds what the reports of children need: the loaded objects, the program's path, the place of its arguments,
/// and the counts that they inherit.
fn before_fork() {
    if CHILDREN.load(Ordering::Relaxed) {
        let counting = Counting::begin();
        symbol::remember_objects();
        report::program();
        arguments::find();
        // In a signal handler that interrupted Plimsoll, a reading might wait for this thread.
        if counting.is_outermost() {
            inherited::prepare();
        }
    }
}

/// Begins the report of a fork's child, when everything else is ready in it. In a child that does not
/// report, ends the samples of allocations, which have no reader.
fn after_fork_in_child() {
    maximum::end_in_child();
    confined::after_fork_in_child();
    // The child of a process with a filter has the filter, and no place for a report.
    let follows = CHILDREN.load(Ordering::Relaxed);
    let reports = follows && !filter::is_restricted();
    if follows {
        roll::after_fork_in_child(reports);
    }
    if !reports {
        sampler::set_rate(0);
        alloc_thread::draw_anew();
        return;
    }
    PROCESS.store(own_process(), Ordering::Relaxed);
    IS_REPORTER.store(1, Ordering::Relaxed);
    let _counting = Counting::begin();
    let _own = internal_scope::scope();
    report::begin();
    inherited::take_down();
    stack::cache_later();
    wall::after_fork_in_child();
    if SERVES_PAGES.load(Ordering::Relaxed)
        && let Some(address) = preload::serve_in_child()
    {
        note_address(address);
    }
}

/// Writes the address of the pages and the name of the process to a file in the directory for
/// reports. The file is named after the process's number.
fn note_address(address: std::net::SocketAddr) {
    if let Some(directory) = DIRECTORY.get() {
        let process = own_process();
        let name = files::read_to_string("/proc/self/comm").unwrap_or_default();
        let text = format!("{address}\n{name}");
        let _ = put_whole(directory, &format!("{process}.http"), |mut file| {
            file.write_all(text.as_bytes())
        });
    }
}

/// Writes a file in the directory for reports, whose form shows a reader whether it is complete. Replaces
/// an earlier one when the new one is whole. Processes of several users may write to this directory, so
/// links of that name are not followed. Beyond the limit on the size of files, it fails without a signal.
fn put(directory: &Path, name: &str, write: impl FnOnce(File) -> io::Result<()>) -> io::Result<()> {
    match create(&directory.join(name)) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            put_whole(directory, name, write)
        }
        created => {
            let file = created?;
            file_size::without_signal(|| write(file))
        }
    }
}

/// Writes a file in that directory so that it appears whole.
fn put_whole(
    directory: &Path,
    name: &str,
    write: impl FnOnce(File) -> io::Result<()>,
) -> io::Result<()> {
    let beside = directory.join(format!("{name}.part"));
    let _ = std::fs::remove_file(&beside);
    let file = create(&beside)?;
    file_size::without_signal(|| write(file))?;
    std::fs::rename(&beside, directory.join(name))
}

/// Creates a file under an unused name, which only the user of this process can read.
fn create(path: &Path) -> io::Result<File> {
    let mut options = File::options();
    options.write(true).create_new(true).mode(0o600).open(path)
}

/// Returns whether a file exists and belongs to another user than the effective one of this process.
fn belongs_to_another(path: &Path) -> bool {
    // SAFETY: the call has no arguments and does not fail.
    let user = unsafe { libc::geteuid() };
    path.symlink_metadata()
        .is_ok_and(|found| found.uid() != user)
}

fn own_process() -> i32 {
    process_id() as i32
}

/// Activates the settings, once. Unless they need a thread of Plimsoll, this is delayed until the
/// program has several threads.
fn activate() {
    if reports() && !SET_OFF.swap(true, Ordering::Relaxed) {
        let _counting = Counting::begin();
        let _blocked = BlockedSignals::new();
        let _own = internal_scope::scope();
        let started = plimsoll::start();
        if let Some(address) = started.http_address() {
            note_address(address);
        }
        // For as long as the process lives.
        std::mem::forget(started);
    }
}

/// More stack in bytes than a refresh of the list of modules takes.
const REFRESH_STACK: usize = 64 << 10;

/// More memory in bytes than it takes.
const REFRESH_HEAP: usize = 1 << 20;

/// Refreshes the list of modules after a sample, if a capture met unknown code, and reads the resident
/// memory. While the process has one thread, no other can hold the loader's lock. Later, the
/// maintenance thread does this.
fn work_if_alone() {
    if is_alone() {
        // The loader's functions would overrun the stack of a coroutine.
        if thread_stack::has_room(REFRESH_STACK) && internal_heap::has_room(REFRESH_HEAP) {
            maintenance::refresh_if_requested();
        }
        maximum::after_sample();
    }
}

/// Calls a function that unloads a library. Before, refreshes the list of modules as after a sample, so that it has the library;
/// afterwards, so that the library is known to be unloaded. In a process with several threads, the maintenance thread
/// does that soon.
pub(crate) fn around_unloading<R>(unload: impl FnOnce() -> R) -> R {
    if !reports() {
        return unload();
    }
    work_if_alone();
    let result = unload();
    wakeup::request_modules();
    work_if_alone();
    result
}

/// Reports whether the process has one thread, so that no maintenance thread exists.
fn is_alone() -> bool {
    PROCESS.load(Ordering::Relaxed) != 0
        && !SET_OFF.load(Ordering::Relaxed)
        && single_thread::is_single_threaded().unwrap_or(true)
}

/// Whether the first thread has ended, as by `pthread_exit`, and the program has not.
static FIRST_HAS_ENDED: AtomicBool = AtomicBool::new(false);

/// Registers a destructor that notices the end of the calling thread, which is the first.
fn notice_end_of_first() {
    let mut key = 0;
    // SAFETY: `key` is writable, and `first_ends` has the type of a destructor, which ignores its
    // value.
    unsafe {
        if libc::pthread_key_create(&raw mut key, Some(first_ends)) == 0 {
            libc::pthread_setspecific(key, (&raw const FIRST_HAS_ENDED).cast());
        }
    }
}

extern "C" fn first_ends(_: *mut c_void) {
    FIRST_HAS_ENDED.store(true, Ordering::Relaxed);
    wakeup::wake();
}

/// Returns the interval at which the maintenance thread checks whether the program still has
/// threads; `None` until the first thread has ended.
fn last_thread_after() -> Option<Duration> {
    let ended = FIRST_HAS_ENDED.load(Ordering::Relaxed);
    ended.then_some(Duration::from_millis(200))
}

/// Ends the program if only Plimsoll's threads are left. A program whose `main` has ended by
/// `pthread_exit` ends with its last thread, but the C library takes Plimsoll's thread for the
/// last. Runs on the maintenance thread.
fn end_if_no_thread_is_left() {
    if !thread::is_any_left() {
        abandon_what_is_under_way();
        // SAFETY: `exit` may be called on any thread.
        unsafe { libc::exit(0) };
    }
}

/// Returns whether this process reports. The child of a `vfork` does not: it shares its parent's memory.
pub(crate) fn reports() -> bool {
    let process = PROCESS.load(Ordering::Relaxed);
    let is_known = IS_REPORTER.is_forgotten();
    let is_copy = is_known && IS_REPORTER.load(Ordering::Relaxed) == 0;
    let is_reporter = match filter::is_restricted() {
        true => process != 0 && is_known,
        false => process == own_process(),
    };
    // Last: a child by `clone` in its parent's memory may have no storage for threads.
    is_reporter && !is_copy && !alloc_thread::is_lent()
}

/// Writes the report, in place of an earlier one. `ending` is a word for the cause of the end, such
/// as `exit`. In a process that does not report, only notes that. Blocks the thread's signals meanwhile, because a
/// signal handler may fork.
pub(crate) fn report(ending: &str) {
    if reports() {
        let _blocked = BlockedSignals::new();
        report_blocked(ending);
    } else if follows_children() {
        roll::child_ends(IS_REPORTER.load(Ordering::Relaxed) != 0 || !IS_REPORTER.is_forgotten());
    }
}

/// Returns whether processes that are forked from this one report as well.
fn follows_children() -> bool {
    DIRECTORY.get().is_some() && CHILDREN.load(Ordering::Relaxed)
}

/// Why a program that is executed cannot report, as an error number of the system; 0 if it can.
pub(crate) type Obstacle = i32;

/// Reports before the process executes the program of that name.
pub(crate) fn report_execution(name: &[u8], obstacle: Obstacle) {
    report("exec");
    roll::executes(
        PROCESS.load(Ordering::Relaxed).unsigned_abs(),
        name,
        obstacle,
    );
}

/// Notes that the execution failed.
pub(crate) fn note_failed_execution() {
    roll::stays();
}

/// Notes that a child that does not report executes the program of that name. Takes no memory but the stack's.
pub(crate) fn note_execution_in_child(name: &[u8], obstacle: Obstacle) {
    if follows_children() {
        roll::child_executes(name, obstacle);
    }
}

/// Notes that this process has started another one with the program of that name.
pub(crate) fn note_spawned(process: u32, name: &[u8]) {
    if reports() && follows_children() {
        roll::spawned(process, name);
    }
}

/// Notes that children may be in another namespace.
pub(crate) fn note_namespace() {
    roll::may_change_namespace();
}

/// Does the same in the handler of a signal that ends the process, such as `SIGTERM`. The caller has blocked all
/// signals but that one.
pub(crate) fn report_blocked(ending: &str) {
    if let Some(directory) = DIRECTORY.get().filter(|_| reports()) {
        let counting = Counting::begin();
        discard_interrupted(!counting.is_outermost());
        let _own = internal_scope::scope();
        report::write(directory, ending);
    }
}

/// Discards what the calling thread was counting when a signal handler interrupted it, for which readings would wait
/// forever. In an event, which `in_event` means, those of other threads are discarded as well: the report may have
/// a part of such an event.
fn discard_interrupted(in_event: bool) {
    HEAP.discard_interrupted(alloc_thread::writer());
    if in_event {
        TABLE.discard_writers();
        CPU_TABLE.discard_writers();
    }
}

/// Abandons the thread's current work. For signal handlers that end the process.
pub(crate) fn abandon_what_is_under_way() {
    plimsoll_core::internal_scope::leave_all();
}
