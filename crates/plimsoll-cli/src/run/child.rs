//! The program as a child of this one: what it is sent and how it ends goes through.

use std::ffi::OsString;
use std::io;
use std::mem::{MaybeUninit, zeroed};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};
use std::time::Duration;

/// How the program ended, and what the system says that it took.
#[derive(Clone, Copy, Debug)]
pub struct Ended {
    /// As `waitpid` has it.
    status: i32,
    /// Processor time in the program, and in the system for it.
    pub user: Duration,
    pub system: Duration,
    /// The most memory that was resident, in bytes.
    pub resident: u64,
}

/// Signals that are handed on, but those that the kernel sends: from a terminal, the program has
/// them as well.
fn handed_on() -> impl Iterator<Item = i32> {
    let named = [
        libc::SIGHUP,
        libc::SIGINT,
        libc::SIGQUIT,
        libc::SIGTERM,
        libc::SIGUSR1,
        libc::SIGUSR2,
        libc::SIGALRM,
        libc::SIGVTALRM,
        libc::SIGPROF,
        libc::SIGCONT,
        libc::SIGTSTP,
        libc::SIGWINCH,
        libc::SIGIO,
        libc::SIGPWR,
    ];
    named.into_iter().chain(libc::SIGRTMIN()..=libc::SIGRTMAX())
}

static CHILD: AtomicI32 = AtomicI32::new(0);

/// What was in force for `SIGPIPE` when this program began; Rust ignores it from then on.
static PIPE_AT_START: AtomicUsize = AtomicUsize::new(libc::SIG_DFL);

#[used]
#[unsafe(link_section = ".init_array")]
static AT_START: extern "C" fn() = note_at_start;

extern "C" fn note_at_start() {
    // SAFETY: a valid place for the action.
    unsafe {
        let mut action = MaybeUninit::<libc::sigaction>::zeroed();
        if libc::sigaction(libc::SIGPIPE, std::ptr::null(), action.as_mut_ptr()) == 0 {
            PIPE_AT_START.store(action.assume_init().sa_sigaction, Ordering::Relaxed);
        }
    }
}

/// The program while it runs.
pub struct Running {
    child: Child,
}

/// Starts the program. From the first instant on, signals are handed on to it.
pub fn start(command: &[OsString], environment: &[(&str, OsString)]) -> io::Result<Running> {
    let mut child = Command::new(&command[0]);
    child.args(&command[1..]);
    for (name, value) in environment {
        child.env(name, value);
    }
    let held = Held::hold();
    let mask = held.before;
    // Whoever ignores it is not told how its children end.
    let of_children = act(libc::SIGCHLD, libc::SIG_DFL);
    // SAFETY: the closure makes some system calls.
    unsafe {
        child.pre_exec(move || {
            libc::signal(libc::SIGPIPE, PIPE_AT_START.load(Ordering::Relaxed));
            libc::sigaction(libc::SIGCHLD, &of_children, std::ptr::null_mut());
            libc::sigprocmask(libc::SIG_SETMASK, &mask, std::ptr::null_mut());
            Ok(())
        });
    }
    let child = child.spawn()?;
    CHILD.store(child.id() as i32, Ordering::Relaxed);
    for signal in handed_on() {
        act(signal, hand_on as *const () as usize);
    }
    Ok(Running { child })
}

/// Signals are held back until this is dropped.
struct Held {
    before: libc::sigset_t,
}

impl Held {
    fn hold() -> Self {
        // SAFETY: valid places for the masks.
        unsafe {
            let (mut held, mut before) = (zeroed(), zeroed());
            libc::sigemptyset(&raw mut held);
            for signal in handed_on() {
                libc::sigaddset(&raw mut held, signal);
            }
            libc::sigprocmask(libc::SIG_BLOCK, &held, &raw mut before);
            Self { before }
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        // SAFETY: a valid mask.
        unsafe { libc::sigprocmask(libc::SIG_SETMASK, &self.before, std::ptr::null_mut()) };
    }
}

impl Running {
    /// The number of its process.
    pub fn process(&self) -> u32 {
        self.child.id()
    }

    /// Waits for its end.
    pub fn wait(self) -> io::Result<Ended> {
        let process = self.child.id();
        // Its number is its own until it is waited for once more, below.
        while let Event::Stops = event(process)? {
            // So that whoever waits for this program sees that. What lets it go on is handed on.
            // SAFETY: sends a signal to this process.
            unsafe { libc::raise(libc::SIGSTOP) };
        }
        CHILD.store(0, Ordering::Relaxed);
        let mut status = 0;
        let mut usage = MaybeUninit::<libc::rusage>::zeroed();
        // SAFETY: valid places for the answers.
        retried(|| unsafe { libc::wait4(process as i32, &raw mut status, 0, usage.as_mut_ptr()) })?;
        // SAFETY: zero is a value of it.
        let usage = unsafe { usage.assume_init() };
        let time = |time: libc::timeval| {
            Duration::new(
                time.tv_sec.unsigned_abs(),
                1000 * time.tv_usec.unsigned_abs() as u32,
            )
        };
        Ok(Ended {
            status,
            user: time(usage.ru_utime),
            system: time(usage.ru_stime),
            resident: usage.ru_maxrss.unsigned_abs() * 1024,
        })
    }
}

enum Event {
    Stops,
    Ends,
}

/// Waits until the program stops, or ends, which is left to be waited for.
fn event(process: u32) -> io::Result<Event> {
    let wait = |what| {
        let mut told = MaybeUninit::<libc::siginfo_t>::zeroed();
        // SAFETY: a valid place for the answer, of which zero is a value.
        retried(|| unsafe { libc::waitid(libc::P_PID, process, told.as_mut_ptr(), what) })
            .map(|()| unsafe { told.assume_init() })
    };
    let told = wait(libc::WEXITED | libc::WSTOPPED | libc::WNOWAIT)?;
    if told.si_code != libc::CLD_STOPPED {
        return Ok(Event::Ends);
    }
    // It may go on already.
    wait(libc::WSTOPPED | libc::WNOHANG)?;
    Ok(Event::Stops)
}

/// A call of the system's, again for as long as signals interrupt it.
fn retried(mut call: impl FnMut() -> i32) -> io::Result<()> {
    while call() < 0 {
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
    Ok(())
}

/// Sets what a signal does; returns what it did.
fn act(signal: i32, handler: usize) -> libc::sigaction {
    // SAFETY: a valid action; the handler does what handlers may.
    unsafe {
        let (mut action, mut before): (libc::sigaction, libc::sigaction) = (zeroed(), zeroed());
        action.sa_sigaction = handler;
        action.sa_flags = libc::SA_RESTART | libc::SA_SIGINFO;
        libc::sigaction(signal, &action, &raw mut before);
        before
    }
}

/// The first one after the program's end lets the summary be written; the next one ends it.
unsafe extern "C" fn hand_on(signal: i32, info: *const libc::siginfo_t, _: *mut libc::c_void) {
    let child = CHILD.load(Ordering::Relaxed);
    // SAFETY: the system passes valid information. The child is not waited for yet.
    unsafe {
        if child == 0 {
            libc::signal(signal, libc::SIG_DFL);
        } else if (*info).si_code != libc::SI_KERNEL || signal == libc::SIGALRM {
            libc::kill(child, signal);
        }
    }
}

impl Ended {
    /// In words.
    pub fn how(&self) -> String {
        let status = self.status;
        if libc::WIFSIGNALED(status) {
            let signal = libc::WTERMSIG(status);
            // SAFETY: the C library's own string.
            let name = unsafe {
                let name = libc::strsignal(signal);
                std::ffi::CStr::from_ptr(name)
                    .to_string_lossy()
                    .into_owned()
            };
            format!("was ended by signal {signal} ({name})")
        } else {
            format!("ended with status {}", libc::WEXITSTATUS(status))
        }
    }

    /// The number of the signal that ended it, if one did.
    pub fn signal(&self) -> Option<i32> {
        libc::WIFSIGNALED(self.status).then(|| libc::WTERMSIG(self.status))
    }

    /// Ends this program in the same way.
    pub fn pass_on(&self) -> ! {
        if let Some(signal) = self.signal() {
            act(signal, libc::SIG_DFL);
            // SAFETY: valid arguments. One core dump is enough.
            unsafe {
                let none: libc::rlimit = zeroed();
                libc::setrlimit(libc::RLIMIT_CORE, &none);
                let mut mask = zeroed();
                libc::sigemptyset(&raw mut mask);
                libc::sigaddset(&raw mut mask, signal);
                libc::sigprocmask(libc::SIG_UNBLOCK, &mask, std::ptr::null_mut());
                libc::raise(signal);
            }
            std::process::exit(128 + signal);
        }
        std::process::exit(libc::WEXITSTATUS(self.status));
    }
}
