//! Runs the program as a child process: forwards signals to it, and ends in the way it ended.

use std::ffi::{CString, OsString, c_char, c_int};
use std::io;
use std::mem::{MaybeUninit, zeroed};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};
use std::time::Duration;

/// The program's end, with the resources that it used by the kernel's account.
#[derive(Clone, Copy, Debug)]
pub struct Ended {
    /// The status in the format of `waitpid`.
    status: i32,
    /// CPU time in user mode; `system` is the CPU time in the kernel.
    pub user: Duration,
    /// The CPU time in the kernel.
    pub system: Duration,
    /// The peak resident memory in bytes, of the program and of the children for which it waited. 0 if it is not above
    /// the command's own: the kernel counts the memory before `exec` as well.
    pub resident: u64,
    /// Whether it waited for children: `resident` may be a child's.
    pub has_waited: bool,
    /// If the program was killed: how many processes of the control group the kernel killed for lack of memory while it ran.
    pub killed_in_group: u64,
}

/// Returns the signals that are forwarded. Those that the kernel sends are not, except `SIGALRM`: a
/// terminal sends its signals to the program as well.
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

/// The program's status in the format of `waitpid`, once it has ended; -1 before.
static STATUS: AtomicI32 = AtomicI32::new(-1);

/// The disposition of `SIGPIPE` when this process started. Rust's runtime ignores the signal later.
static PIPE_AT_START: AtomicUsize = AtomicUsize::new(libc::SIG_DFL);

/// The standard descriptors that were closed when this process started, a bit for each. Rust's runtime opens `/dev/null`
/// in their places later.
static CLOSED_AT_START: AtomicI32 = AtomicI32::new(0);

/// Returns the standard descriptors that were closed when this process started.
fn closed_at_start() -> impl Iterator<Item = c_int> {
    let closed = CLOSED_AT_START.load(Ordering::Relaxed);
    (0..3).filter(move |file| closed >> file & 1 == 1)
}

#[used]
#[unsafe(link_section = ".init_array")]
static AT_START: extern "C" fn() = note_at_start;

extern "C" fn note_at_start() {
    for file in 0..3 {
        // SAFETY: the call only reads the flags of a descriptor.
        if unsafe { libc::fcntl(file, libc::F_GETFD) } < 0 {
            CLOSED_AT_START.fetch_or(1 << file, Ordering::Relaxed);
        }
    }
    // SAFETY: `action` has space for a `sigaction`. It is initialized if the call succeeds.
    unsafe {
        let mut action = MaybeUninit::<libc::sigaction>::zeroed();
        if libc::sigaction(libc::SIGPIPE, std::ptr::null(), action.as_mut_ptr()) == 0 {
            PIPE_AT_START.store(action.assume_init().sa_sigaction, Ordering::Relaxed);
        }
    }
}

/// The program while it runs.
pub struct Running {
    process: u32,
    /// The peak resident memory of this process in bytes, when the program was executed.
    own_resident: u64,
}

/// Starts the program. Signals are forwarded to it from its first instant.
pub fn start(command: &[OsString], environment: &[(&str, OsString)]) -> io::Result<Running> {
    let held = Held::hold();
    // If this process ignored SIGCHLD, it could not wait for the status of its child.
    let of_children = act(libc::SIGCHLD, libc::SIG_DFL);
    let process = match of_children.sa_sigaction {
        libc::SIG_DFL => spawn(command, environment, held.before),
        _ => Err(io::ErrorKind::Unsupported.into()),
    };
    let process = match process {
        // A file without a format, which the shell executes.
        Err(error) if error.raw_os_error() == Some(libc::ENOEXEC) => None,
        Err(error) if error.kind() == io::ErrorKind::Unsupported => None,
        process => Some(process?),
    };
    let process = match process {
        Some(process) => process,
        None => fork(command, environment, held.before, of_children)?,
    };
    CHILD.store(process as i32, Ordering::Relaxed);
    for signal in handed_on() {
        act(signal, hand_on as *const () as usize);
    }
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: `usage` is writable, and holds integers only, for which zero is valid.
    let usage = unsafe {
        libc::getrusage(libc::RUSAGE_SELF, usage.as_mut_ptr());
        usage.assume_init()
    };
    Ok(Running {
        process,
        own_resident: resident(&usage),
    })
}

/// Starts the program by `posix_spawn`, which copies none of this process's page tables. It can set a signal
/// to its default action, but not ignore it.
fn spawn(
    command: &[OsString],
    environment: &[(&str, OsString)],
    mask: libc::sigset_t,
) -> io::Result<u32> {
    let text = |text: &[u8]| CString::new(text).map_err(io::Error::from);
    let arguments = command.iter().map(|argument| text(argument.as_bytes()));
    let arguments = arguments.collect::<io::Result<Vec<CString>>>()?;
    let is_replaced = |name: &OsString| environment.iter().any(|(replaced, _)| name == replaced);
    let kept = std::env::vars_os().filter(|(name, _)| !is_replaced(name));
    let added = environment
        .iter()
        .map(|(name, value)| (OsString::from(name), value.clone()));
    let variables = kept
        .chain(added)
        .map(|(name, value)| text(&[name.as_bytes(), b"=", value.as_bytes()].concat()));
    let variables = variables.collect::<io::Result<Vec<CString>>>()?;
    let list = |texts: &[CString]| {
        let pointers = texts.iter().map(|text| text.as_ptr().cast_mut());
        let list: Vec<*mut c_char> = pointers.chain([std::ptr::null_mut()]).collect();
        list
    };
    let (arguments_list, variables_list) = (list(&arguments), list(&variables));
    let mut process = 0;
    // SAFETY: the attributes are initialized before they are used and destroyed once; both lists end with
    // a null pointer, and their strings live until the call returns.
    let error = unsafe {
        let mut attributes = MaybeUninit::uninit();
        let error = libc::posix_spawnattr_init(attributes.as_mut_ptr());
        if error != 0 {
            return Err(io::Error::from_raw_os_error(error));
        }
        let attributes = attributes.as_mut_ptr();
        let mut defaults = zeroed();
        libc::sigemptyset(&raw mut defaults);
        if PIPE_AT_START.load(Ordering::Relaxed) == libc::SIG_DFL {
            libc::sigaddset(&raw mut defaults, libc::SIGPIPE);
        }
        let flags = libc::POSIX_SPAWN_SETSIGMASK | libc::POSIX_SPAWN_SETSIGDEF;
        libc::posix_spawnattr_setflags(attributes, flags as libc::c_short);
        libc::posix_spawnattr_setsigmask(attributes, &raw const mask);
        libc::posix_spawnattr_setsigdefault(attributes, &raw const defaults);
        let mut actions = MaybeUninit::uninit();
        let error = libc::posix_spawn_file_actions_init(actions.as_mut_ptr());
        if error != 0 {
            libc::posix_spawnattr_destroy(attributes);
            return Err(io::Error::from_raw_os_error(error));
        }
        let actions = actions.as_mut_ptr();
        for file in closed_at_start() {
            libc::posix_spawn_file_actions_addclose(actions, file);
        }
        let error = libc::posix_spawnp(
            &raw mut process,
            arguments_list[0],
            actions,
            attributes,
            arguments_list.as_ptr(),
            variables_list.as_ptr(),
        );
        libc::posix_spawn_file_actions_destroy(actions);
        libc::posix_spawnattr_destroy(attributes);
        error
    };
    match error {
        0 => Ok(process as u32),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

/// Starts the program by `fork`, for what `posix_spawn` cannot do.
fn fork(
    command: &[OsString],
    environment: &[(&str, OsString)],
    mask: libc::sigset_t,
    of_children: libc::sigaction,
) -> io::Result<u32> {
    let mut child = Command::new(&command[0]);
    child.args(&command[1..]);
    for (name, value) in environment {
        child.env(name, value);
    }
    // SAFETY: between `fork` and `exec` the closure makes only async-signal-safe calls, and it
    // allocates nothing.
    unsafe {
        child.pre_exec(move || {
            libc::signal(libc::SIGPIPE, PIPE_AT_START.load(Ordering::Relaxed));
            for file in closed_at_start() {
                libc::close(file);
            }
            libc::sigaction(libc::SIGCHLD, &of_children, std::ptr::null_mut());
            libc::sigprocmask(libc::SIG_SETMASK, &mask, std::ptr::null_mut());
            Ok(())
        });
    }
    Ok(child.spawn()?.id())
}

/// A guard that blocks the forwarded signals until it is dropped.
struct Held {
    before: libc::sigset_t,
}

impl Held {
    fn hold() -> Self {
        // SAFETY: `held` and `before` are local signal sets, and every signal number is valid.
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
        // SAFETY: `before` is the mask that `hold` saved.
        unsafe { libc::sigprocmask(libc::SIG_SETMASK, &self.before, std::ptr::null_mut()) };
    }
}

impl Running {
    /// Returns the id of the process.
    pub fn process(&self) -> u32 {
        self.process
    }

    /// Waits for the end of the program, and calls `ends` while its process id is still its own. Stops
    /// this process whenever the program stops.
    pub fn wait(self, ends: impl FnOnce()) -> io::Result<Ended> {
        let process = self.process;
        // The process id stays valid until `wait4` below reaps the child.
        while let Event::Stops = event(process)? {
            // This process stops as well, so that its parent sees the stop. The signal that
            // continues it is forwarded.
            // SAFETY: `raise` has no preconditions.
            unsafe { libc::raise(libc::SIGSTOP) };
        }
        ends();
        let has_waited = has_waited(process);
        CHILD.store(0, Ordering::Relaxed);
        let mut status = 0;
        let mut usage = MaybeUninit::<libc::rusage>::zeroed();
        // SAFETY: `status` and `usage` are local and have space for the results.
        retried(|| unsafe { libc::wait4(process as i32, &raw mut status, 0, usage.as_mut_ptr()) })?;
        STATUS.store(status, Ordering::Relaxed);
        // SAFETY: `usage` is initialized: `rusage` holds integers only, for which zero is valid.
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
            resident: match resident(&usage) {
                all if all > self.own_resident => all,
                _ => 0,
            },
            has_waited,
            killed_in_group: 0,
        })
    }
}

/// Returns whether a process has waited for children: each of them has caused page faults. `false` if that is unknown.
fn has_waited(process: u32) -> bool {
    // Behind the name of the program, which may contain anything: state, parent, group, session, terminal, its group, flags,
    // page faults, those of children.
    const FAULTS_OF_CHILDREN: usize = 8;
    let faults = || {
        let stat = std::fs::read(format!("/proc/{process}/stat")).ok()?;
        let stat = String::from_utf8_lossy(&stat);
        let (_, numbers) = stat.rsplit_once(") ")?;
        let number = numbers.split(' ').nth(FAULTS_OF_CHILDREN)?;
        number.parse::<u64>().ok()
    };
    faults().is_some_and(|faults| faults > 0)
}

/// Returns the peak resident memory in bytes.
fn resident(usage: &libc::rusage) -> u64 {
    usage.ru_maxrss.unsigned_abs() * 1024
}

enum Event {
    Stops,
    Ends,
}

/// Waits until the program stops or ends. An ended child remains to be reaped.
fn event(process: u32) -> io::Result<Event> {
    let wait = |kind, process, what| {
        let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
        // SAFETY: `info` has space for the result, and zero is valid for `siginfo_t`.
        retried(|| unsafe { libc::waitid(kind, process, info.as_mut_ptr(), what) })
            .map(|()| unsafe { info.assume_init() })
    };
    // The first process of a container inherits orphans, which only it can reap.
    let (kind, of) = match std::process::id() {
        1 => (libc::P_ALL, 0),
        _ => (libc::P_PID, process),
    };
    loop {
        let info = wait(kind, of, libc::WEXITED | libc::WSTOPPED | libc::WNOWAIT)?;
        // SAFETY: `waitid` has stored an event of a child.
        let child = unsafe { info.si_pid() } as u32;
        if child != process {
            let what = libc::WEXITED | libc::WSTOPPED | libc::WNOHANG;
            wait(libc::P_PID, child, what)?;
            continue;
        }
        if info.si_code != libc::CLD_STOPPED {
            return Ok(Event::Ends);
        }
        // The program may have continued since, so the call that consumes the stop must not block.
        wait(libc::P_PID, process, libc::WSTOPPED | libc::WNOHANG)?;
        return Ok(Event::Stops);
    }
}

/// Repeats a system call for as long as signals interrupt it.
fn retried(mut call: impl FnMut() -> i32) -> io::Result<()> {
    while call() < 0 {
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
    Ok(())
}

/// Sets the handler of a signal and returns the previous action.
fn act(signal: i32, handler: usize) -> libc::sigaction {
    // SAFETY: both actions are local and valid. `handler` is `SIG_DFL` or `hand_on`, which is
    // async-signal-safe, as this call is.
    unsafe {
        let (mut action, mut before): (libc::sigaction, libc::sigaction) = (zeroed(), zeroed());
        action.sa_sigaction = handler;
        action.sa_flags = libc::SA_RESTART | libc::SA_SIGINFO;
        libc::sigaction(signal, &action, &raw mut before);
        before
    }
}

/// Forwards a signal to the program. After the program's end, the first signal of each kind is
/// ignored, so that the summary can be written; a second one that ends processes ends this one as the
/// program ended.
unsafe extern "C" fn hand_on(signal: i32, info: *const libc::siginfo_t, _: *mut libc::c_void) {
    let child = CHILD.load(Ordering::Relaxed);
    // SAFETY: the kernel passes valid information. `CHILD` is reset before the child is reaped, so
    // the process id is the child's. The error number is the calling thread's, whose code the signal interrupted.
    unsafe {
        let error = *libc::__errno_location();
        if child == 0 {
            let next = match signal {
                libc::SIGCONT | libc::SIGTSTP | libc::SIGWINCH => libc::SIG_DFL,
                _ => end_without_summary as *const () as usize,
            };
            libc::signal(signal, next);
        } else if (*info).si_code != libc::SI_KERNEL || signal == libc::SIGALRM {
            libc::kill(child, signal);
        }
        *libc::__errno_location() = error;
    }
}

/// Ends this process at once, as the program ended if it has.
extern "C" fn end_without_summary(signal: i32) {
    match STATUS.load(Ordering::Relaxed) {
        -1 => end_by_signal(signal),
        status if libc::WIFSIGNALED(status) => end_by_signal(libc::WTERMSIG(status)),
        // SAFETY: the call has no preconditions.
        status => unsafe { libc::_exit(libc::WEXITSTATUS(status)) },
    }
}

/// Ends this process by a signal. Safe in a signal handler.
fn end_by_signal(signal: i32) -> ! {
    act(signal, libc::SIG_DFL);
    // SAFETY: all arguments are local and valid. This process dumps no core, because the
    // program may have dumped one.
    unsafe {
        let none: libc::rlimit = zeroed();
        libc::setrlimit(libc::RLIMIT_CORE, &none);
        let mut mask = zeroed();
        libc::sigemptyset(&raw mut mask);
        libc::sigaddset(&raw mut mask, signal);
        libc::sigprocmask(libc::SIG_UNBLOCK, &mask, std::ptr::null_mut());
        libc::raise(signal);
        libc::_exit(128 + signal);
    }
}

impl Ended {
    /// Describes the end in words.
    pub fn how(&self) -> String {
        let status = self.status;
        if libc::WIFSIGNALED(status) {
            let signal = libc::WTERMSIG(status);
            // SAFETY: `strsignal` returns a string that stays valid until the next call; only this
            // thread calls it.
            let name = unsafe {
                let name = libc::strsignal(signal);
                std::ffi::CStr::from_ptr(name)
                    .to_string_lossy()
                    .into_owned()
            };
            let for_memory = match self.killed_in_group {
                0 => String::new(),
                killed => format!(
                    ", while the kernel killed {} of the control group for lack of memory",
                    match killed {
                        1 => "a process".to_owned(),
                        several => format!("{several} processes"),
                    }
                ),
            };
            format!("was ended by signal {signal} ({name}){for_memory}")
        } else {
            format!("ended with status {}", libc::WEXITSTATUS(status))
        }
    }

    /// Returns whether the program ended with status 0.
    pub fn is_success(&self) -> bool {
        self.status == 0
    }

    /// Returns the number of the signal that ended the program, if one did.
    pub fn signal(&self) -> Option<i32> {
        libc::WIFSIGNALED(self.status).then(|| libc::WTERMSIG(self.status))
    }

    /// Ends this process in the same way.
    pub fn pass_on(&self) -> ! {
        if let Some(signal) = self.signal() {
            end_by_signal(signal);
        }
        std::process::exit(libc::WEXITSTATUS(self.status));
    }
}
