//! Threads that are blocked in every possible way, and count calls that were interrupted.

use std::hint::black_box;
use std::os::unix::thread::JoinHandleExt;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// A way to block.
pub struct Kind {
    /// The function that blocks.
    pub function: &'static str,
    /// The reason that the profile gives for the wait.
    pub wait: &'static str,
    work: fn(&Shared),
}

pub const KINDS: [Kind; 9] = [
    Kind {
        function: "crowd::in_mutex",
        wait: "mutex",
        work: in_mutex,
    },
    Kind {
        function: "crowd::in_condvar",
        wait: "condvar",
        work: in_condvar,
    },
    Kind {
        function: "crowd::in_park",
        wait: "park",
        work: in_park,
    },
    Kind {
        function: "crowd::in_futex",
        wait: "other",
        work: in_futex,
    },
    Kind {
        function: "crowd::in_read",
        wait: "io",
        work: in_read,
    },
    Kind {
        function: "crowd::in_recv",
        wait: "io",
        work: in_recv,
    },
    Kind {
        function: "crowd::in_sleep",
        wait: "sleep",
        work: in_sleep,
    },
    Kind {
        function: "crowd::in_epoll",
        wait: "epoll",
        work: in_epoll,
    },
    Kind {
        function: "crowd::in_poll",
        wait: "poll",
        work: in_poll,
    },
];

/// The objects for which the threads wait.
struct Shared {
    mutex: Mutex<()>,
    changed: Condvar,
    over: AtomicBool,
    word: AtomicU32,
    /// The read end and the other end, which is closed to end the waits.
    pipe: [i32; 2],
    socket: [i32; 2],
    interruptions: AtomicI64,
}

pub struct Crowd {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    /// Held until the end, so that threads wait for the mutex.
    _locked: Option<MutexGuard<'static, ()>>,
}

impl Crowd {
    /// Starts `size` threads and waits until all of them are blocked.
    pub fn gather(size: usize) -> Self {
        extern "C" fn nothing(_: i32) {}
        let mut pipe = [0; 2];
        let mut socket = [0; 2];
        // SAFETY: the handler has the right signature and does nothing. Without `SA_RESTART`, the
        // kernel does not restart interrupted calls.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = nothing as extern "C" fn(i32) as usize;
            let set = libc::sigaction(libc::SIGUSR1, &raw const action, std::ptr::null_mut());
            assert_eq!(set, 0);
        }
        // SAFETY: each call fills an array of two descriptors.
        unsafe {
            assert_eq!(libc::pipe(pipe.as_mut_ptr()), 0);
            let made = libc::socketpair(libc::AF_UNIX, libc::SOCK_STREAM, 0, socket.as_mut_ptr());
            assert_eq!(made, 0);
        }
        let shared = Arc::new(Shared {
            mutex: Mutex::new(()),
            changed: Condvar::new(),
            over: AtomicBool::new(false),
            word: AtomicU32::new(0),
            pipe,
            socket,
            interruptions: AtomicI64::new(0),
        });
        // SAFETY: the mutex is in an `Arc` that is dropped after the guard.
        let locked = unsafe {
            std::mem::transmute::<MutexGuard<'_, ()>, MutexGuard<'static, ()>>(Waiting::lock(
                &shared,
            ))
        };
        let (tell, numbers) = std::sync::mpsc::channel();
        let threads = (0..size)
            .map(|number| {
                let (shared, tell) = (Arc::clone(&shared), tell.clone());
                thread::Builder::new()
                    .stack_size(256 << 10)
                    .spawn(move || {
                        // SAFETY: has no preconditions.
                        tell.send(unsafe { libc::gettid() }).unwrap();
                        drop(tell);
                        begins_here(&KINDS[number % KINDS.len()], &shared, 4);
                    })
                    .unwrap()
            })
            .collect();
        drop(tell);
        for thread in numbers {
            until_blocked(thread);
        }
        Self {
            shared,
            threads,
            _locked: Some(locked),
        }
    }

    pub fn members(&self, kind: &Kind) -> i64 {
        let at = KINDS
            .iter()
            .position(|other| other.function == kind.function)
            .unwrap();
        (0..self.threads.len())
            .filter(|number| number % KINDS.len() == at)
            .count() as i64
    }

    /// Returns how many calls were interrupted.
    pub fn interruptions(&self) -> i64 {
        self.shared.interruptions.load(Ordering::SeqCst)
    }
}

impl Drop for Crowd {
    fn drop(&mut self) {
        self.shared.over.store(true, Ordering::SeqCst);
        self._locked = None;
        drop(self.shared.mutex.lock().unwrap());
        self.shared.word.store(1, Ordering::SeqCst);
        // SAFETY: wakes all waiters of a live word; closes each unread end once.
        unsafe {
            libc::syscall(
                libc::SYS_futex,
                &raw const self.shared.word,
                libc::FUTEX_WAKE,
                i32::MAX,
            );
            libc::close(self.shared.pipe[1]);
            libc::close(self.shared.socket[1]);
        }
        for thread in self.threads.drain(..) {
            thread.thread().unpark();
            // Ends the waits that nothing else ends. Repeats, because the thread may only be about
            // to wait.
            while !thread.is_finished() {
                self.shared.changed.notify_all();
                // SAFETY: the thread has not been joined, and the signal has a handler.
                unsafe {
                    // The standard library has musl's type as a number.
                    libc::pthread_kill(thread.as_pthread_t() as libc::pthread_t, libc::SIGUSR1)
                };
                thread::sleep(Duration::from_micros(100));
            }
            thread.join().expect("its wait ends well");
        }
        // SAFETY: the descriptors are open, and no thread reads from them any more.
        unsafe {
            libc::close(self.shared.pipe[0]);
            libc::close(self.shared.socket[0]);
        }
    }
}

/// Waits until a thread is blocked in its final call, not on the way to it.
pub fn until_blocked(thread: i32) {
    let deadline = Instant::now() + Duration::from_secs(60);
    let mut times = 0;
    loop {
        let call = std::fs::read_to_string(format!("/proc/self/task/{thread}/syscall"));
        if call.is_ok_and(|call| !call.starts_with("running")) {
            times += 1;
            if times == 2 {
                return;
            }
        } else {
            times = 0;
        }
        assert!(
            Instant::now() < deadline,
            "thread {thread} does not come to rest"
        );
        thread::sleep(Duration::from_micros(200));
    }
}

struct Waiting;

impl Waiting {
    fn lock(shared: &Shared) -> MutexGuard<'_, ()> {
        shared.mutex.lock().unwrap()
    }
}

/// Admits one test at a time, because threads belong to the whole process.
pub fn alone() -> impl Drop {
    static ALONE: AtomicBool = AtomicBool::new(false);
    struct Alone;
    impl Drop for Alone {
        fn drop(&mut self) {
            ALONE.store(false, Ordering::Release);
        }
    }
    while ALONE.swap(true, Ordering::Acquire) {
        thread::sleep(Duration::from_millis(1));
    }
    Alone
}

#[inline(never)]
fn begins_here(kind: &Kind, shared: &Shared, depth: usize) {
    let padding = black_box([depth; 3]);
    if depth == 0 {
        (kind.work)(shared);
    } else {
        begins_here(kind, shared, depth - 1);
    }
    black_box(padding[1]);
}

#[inline(never)]
fn in_mutex(shared: &Shared) {
    drop(shared.mutex.lock().unwrap());
    black_box(());
}

#[inline(never)]
fn in_condvar(shared: &Shared) {
    // A separate mutex, since another thread holds the shared one all the time.
    let own = Mutex::new(());
    let mut guard = own.lock().unwrap();
    while !shared.over.load(Ordering::SeqCst) {
        guard = shared.changed.wait(guard).unwrap();
    }
}

#[inline(never)]
fn in_park(shared: &Shared) {
    while !shared.over.load(Ordering::SeqCst) {
        thread::park();
    }
}

fn count_interruption(shared: &Shared, result: i64) {
    if result < 0
        && !shared.over.load(Ordering::SeqCst)
        && std::io::Error::last_os_error().raw_os_error() == Some(libc::EINTR)
    {
        shared.interruptions.fetch_add(1, Ordering::SeqCst);
    }
}

#[inline(never)]
fn in_futex(shared: &Shared) {
    while shared.word.load(Ordering::SeqCst) == 0 {
        // SAFETY: waits on a word that outlives the call.
        let result = unsafe {
            libc::syscall(
                libc::SYS_futex,
                &raw const shared.word,
                libc::FUTEX_WAIT,
                0,
                std::ptr::null::<libc::timespec>(),
            )
        };
        count_interruption(shared, result);
    }
}

#[inline(never)]
fn in_read(shared: &Shared) {
    let mut byte = 0u8;
    loop {
        // SAFETY: reads at most one byte into `byte`.
        let result = unsafe { libc::read(shared.pipe[0], (&raw mut byte).cast(), 1) };
        count_interruption(shared, result as i64);
        if result == 0 {
            return;
        }
    }
}

#[inline(never)]
fn in_recv(shared: &Shared) {
    let mut byte = 0u8;
    loop {
        // SAFETY: receives at most one byte into `byte`.
        let result = unsafe { libc::recv(shared.socket[0], (&raw mut byte).cast(), 1, 0) };
        count_interruption(shared, result as i64);
        if result == 0 {
            return;
        }
    }
}

#[inline(never)]
fn in_sleep(shared: &Shared) {
    while !shared.over.load(Ordering::SeqCst) {
        let time = libc::timespec {
            tv_sec: 600,
            tv_nsec: 0,
        };
        // SAFETY: `time` is initialized, and a null pointer is allowed for the remaining time.
        let result = unsafe { libc::nanosleep(&raw const time, std::ptr::null_mut()) };
        count_interruption(shared, result.into());
    }
}

#[inline(never)]
fn in_epoll(shared: &Shared) {
    // SAFETY: a private descriptor without events, so the call waits until its timeout; `event` has
    // room for one entry.
    unsafe {
        let epoll = libc::epoll_create1(0);
        let mut event = std::mem::zeroed();
        while !shared.over.load(Ordering::SeqCst) {
            let result = libc::epoll_wait(epoll, &raw mut event, 1, 600_000);
            count_interruption(shared, result.into());
        }
        libc::close(epoll);
    }
}

#[inline(never)]
fn in_poll(shared: &Shared) {
    let mut wanted = libc::pollfd {
        fd: shared.pipe[0],
        events: libc::POLLIN,
        revents: 0,
    };
    while !shared.over.load(Ordering::SeqCst) {
        // SAFETY: the array has one entry, as passed.
        let result = unsafe { libc::poll(&raw mut wanted, 1, 600_000) };
        count_interruption(shared, result.into());
    }
}

/// Waits until the profile has a thread in this function.
pub fn until_some_thread_is_in(function: &str) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while super::within(&super::goroutine(), function).is_empty() {
        assert!(Instant::now() < deadline, "no thread is in {function}");
    }
}
