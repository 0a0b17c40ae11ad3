//! Uses one part of Plimsoll after the other, and marks the beginning of each by a call that fails.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::io::{self, Read as _, Write};
use std::os::unix::net::UnixStream;
use std::ptr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use plimsoll::profile::{self, Detail};

#[global_allocator]
static ALLOC: plimsoll::Alloc = plimsoll::Alloc::system();

/// Begins a part in the calling thread. A part without a name is not compared.
fn part(name: &str) {
    // SAFETY: the kernel reads nothing, since there is no such descriptor.
    unsafe { libc::write(-1, name.as_ptr().cast(), name.len()) };
}

/// The loader calls this before the initializers of Plimsoll, which have no priority.
#[used]
#[unsafe(link_section = ".init_array.00101")]
static BEFORE_ALL: extern "C" fn(c_int, *const *const c_char) = {
    extern "C" fn begin(count: c_int, arguments: *const *const c_char) {
        // SAFETY: the C library passes so many C strings.
        let argument = (count > 1).then(|| unsafe { CStr::from_ptr(*arguments.add(1)) });
        part(match argument.map(CStr::to_bytes) {
            Some(b"postmortem") => "start of the process with a post-mortem file",
            Some(b"inherited") => "start of the process with inherited filters",
            _ => "start of the process",
        });
    }
    begin
};

/// # Safety
/// There are `count` arguments.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn main(count: c_int, arguments: *const *const c_char) -> c_int {
    part("");
    // SAFETY: sets parameters of the C library's allocator; frees a block that it has made. Later blocks of the program
    // need no memory of the system.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, 1);
        libc::mallopt(libc::M_MMAP_THRESHOLD, c_int::MAX);
        libc::mallopt(libc::M_TRIM_THRESHOLD, c_int::MAX);
        libc::free(libc::malloc(64 << 20));
    }
    // SAFETY: there are so many C strings, by this function's contract.
    let argument = (count > 1).then(|| unsafe { CStr::from_ptr(*arguments.add(1)) });
    match argument.map(CStr::to_bytes) {
        Some(b"postmortem") => part("end of the process with a post-mortem file"),
        Some(b"inherited") => {}
        _ => use_all_parts(),
    }
    0
}

struct Discarded;

impl Write for Discarded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn use_all_parts() {
    let rate = profile::set_heap_rate(0);
    part("allocations that are not sampled");
    allocate();
    part("");
    profile::set_heap_rate(1);
    part("sampled allocations");
    allocate();
    part("");
    profile::set_heap_rate(rate);
    in_thread(|| {
        part("first allocation of a thread");
        std::hint::black_box(vec![1_u8; 100]);
        part("");
    });
    part("creation and end of a thread");
    in_thread(|| part("creation and end of a thread"));
    part("");
    part("start of Plimsoll");
    let started = plimsoll::start();
    part("");
    wait_for_a_lock();
    wait_for_history();
    read_statistics();
    read_profiles();
    record_cpu_samples();
    request_pages();
    part("dump of all threads");
    plimsoll::dump(&mut Discarded).expect("no error");
    part("");
    dump_on_signal();
    fork();
    part("end of Plimsoll with files");
    drop(started);
    part("");
    part("installation of a filter");
    install_filter();
    part("");
    // SAFETY: replaces the program by itself. Arguments and environment are C strings with a null pointer at the end.
    unsafe {
        unsafe extern "C" {
            static environ: *const *const c_char;
        }
        let arguments = [c"parts".as_ptr(), c"inherited".as_ptr(), ptr::null()];
        libc::execve(c"/proc/self/exe".as_ptr(), arguments.as_ptr(), environ);
    }
}

/// Makes, resizes and frees blocks of many sizes.
fn allocate() {
    for size in 1..300_usize {
        let mut block = vec![1_u8; size * 97];
        block.reserve_exact(size * 101);
        std::hint::black_box(block);
    }
}

/// Runs `work` in a thread of the C library, and waits for it.
fn in_thread(work: fn()) {
    extern "C" fn run(work: *mut c_void) -> *mut c_void {
        // SAFETY: the argument is the function below.
        let work: fn() = unsafe { std::mem::transmute(work) };
        work();
        ptr::null_mut()
    }
    // SAFETY: `run` accepts the function as its argument. The thread is joined once.
    unsafe {
        let mut thread = 0;
        let argument = work as *mut c_void;
        assert_eq!(
            libc::pthread_create(&raw mut thread, ptr::null(), run, argument),
            0
        );
        libc::pthread_join(thread, ptr::null_mut());
    }
}

/// Waits until `is_over`, for a minute at most.
fn wait_until(is_over: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is_over() {
        assert!(begun.elapsed() < Duration::from_secs(60));
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn wait_for_a_lock() {
    static LOCK: Mutex<()> = Mutex::new(());
    static IS_THERE: AtomicU32 = AtomicU32::new(0);
    profile::set_block_rate(Duration::from_nanos(1));
    profile::set_mutex_fraction(1);
    let held = LOCK.lock().expect("not poisoned");
    let thread = std::thread::spawn(|| {
        // SAFETY: the call has no preconditions.
        IS_THERE.store(unsafe { libc::gettid() } as u32, Ordering::Relaxed);
        part("waits for locks");
        drop(LOCK.lock());
        part("");
    });
    wait_until(|| {
        let path = format!(
            "/proc/self/task/{}/syscall",
            IS_THERE.load(Ordering::Relaxed)
        );
        let futex = libc::SYS_futex.to_string();
        std::fs::read_to_string(path).is_ok_and(|call| call.split(' ').next() == Some(&futex))
    });
    part("waits for locks");
    drop(held);
    part("");
    thread.join().expect("no panic");
    profile::set_block_rate(Duration::ZERO);
    profile::set_mutex_fraction(0);
}

/// Waits until the maintenance thread has read statistics several times.
fn wait_for_history() {
    wait_until(|| {
        let steps = plimsoll::history::read().steps;
        steps.first().is_some_and(|step| step.points.len() >= 3)
    });
}

fn read_statistics() {
    let mut samples: Vec<_> = plimsoll::metrics::all()
        .map(|metric| plimsoll::metrics::Sample::new(metric.name))
        .collect();
    part("statistics and metrics");
    std::hint::black_box((plimsoll::heap_stats(), plimsoll::mem_stats()));
    std::hint::black_box((
        plimsoll::lock_stats(),
        plimsoll::cpu_stats(),
        plimsoll::gc_stats(),
    ));
    plimsoll::metrics::read(&mut samples);
    part("");
}

fn read_profiles() {
    static IS_OVER: AtomicBool = AtomicBool::new(false);
    static RUNS: AtomicBool = AtomicBool::new(false);
    // A running thread is interrupted by a signal.
    let thread = std::thread::spawn(|| {
        part("signal that reads the stack of a thread");
        while !IS_OVER.load(Ordering::Relaxed) {
            RUNS.store(true, Ordering::Relaxed);
            std::hint::spin_loop();
        }
        part("");
    });
    wait_until(|| RUNS.load(Ordering::Relaxed));
    let mut snapshots = Vec::new();
    for profile in profile::profiles() {
        // Reads the CPU samples that are recorded all the time.
        part(&format!("profile {}", profile.name()));
        snapshots.push(profile.snapshot());
        part("");
    }
    IS_OVER.store(true, Ordering::Relaxed);
    thread.join().expect("no panic");
    part("names of functions");
    for snapshot in snapshots {
        let written = snapshot.write_to(&mut Discarded, Detail::Full);
        written.expect("no error");
    }
    part("");
}

/// Returns the CPU time of the calling thread.
fn cpu_time() -> Duration {
    // SAFETY: all zeros is a valid time, which the call sets.
    let time = unsafe {
        let mut time: libc::timespec = std::mem::zeroed();
        libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time);
        time
    };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn record_cpu_samples() {
    part("CPU samples");
    profile::cpu::start().expect("a recording");
    // Several samples, which are taken on the clock of the thread's CPU time.
    let end = cpu_time() + Duration::from_millis(200);
    while cpu_time() < end {
        (0..100_000).for_each(|_| std::hint::spin_loop());
    }
    profile::cpu::stop().expect("a recording");
    part("");
}

/// Requests all pages. The threads of the server are compared, not this one.
fn request_pages() {
    let path = std::env::var_os("PLIMSOLL_TEST_SOCKET").expect("a path");
    for page in [
        "/debug/pprof/",
        "/debug/pprof/heap",
        "/debug/pprof/goroutine?debug=2",
        "/debug/pprof/wall?seconds=1",
        "/debug/vars",
        "/metrics",
        "/debug/plimsoll/history",
    ] {
        let mut stream = UnixStream::connect(&path).expect("a server");
        let request =
            format!("GET {page} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).expect("a request");
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).expect("an answer");
        assert!(answer.starts_with(b"HTTP/1.1 200"), "{page}");
    }
}

/// Makes Plimsoll's thread dump to standard error, which is a file.
fn dump_on_signal() {
    part("signal that requests a dump");
    // SAFETY: the signal has a handler.
    unsafe { libc::raise(libc::SIGQUIT) };
    part("");
    wait_until(|| {
        // SAFETY: all zeros is a valid description of a file, which the call fills.
        unsafe {
            let mut file: libc::stat = std::mem::zeroed();
            libc::fstat(2, &raw mut file) == 0 && file.st_size > 0
        }
    });
}

fn fork() {
    part("forks");
    // SAFETY: the child only ends.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: ends the process.
        unsafe { libc::_exit(0) };
    }
    part("");
    // SAFETY: waits for the child.
    unsafe { libc::waitpid(child, ptr::null_mut(), 0) };
}

/// Installs a filter that allows all calls.
fn install_filter() {
    let mut allow = libc::sock_filter {
        code: (libc::BPF_RET | libc::BPF_K) as u16,
        jt: 0,
        jf: 0,
        k: libc::SECCOMP_RET_ALLOW,
    };
    let filter = libc::sock_fprog {
        len: 1,
        filter: &raw mut allow,
    };
    // SAFETY: the filter is valid.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        assert_eq!(libc::prctl(libc::PR_SET_SECCOMP, 2, &raw const filter), 0);
    }
}
