//! System call filters (seccomp): the calls that this process may still make.
//!
//! A filter may end the process for a call that it forbids, or have the program handle a signal. So a call must be
//! known to be allowed before it is made: [`super::syscall::call`] makes no other, and code that calls the C library
//! asks [`allows`] first. A process without a filter may make all calls.
//!
//! The program's own installation of a filter is intercepted above this module, which evaluates the filter before
//! the kernel gets it. A filter decides by the number, the arguments and the address of a call. [`Calls::allowed_by`]
//! follows all paths that one number can take, whatever the arguments: a call counts as allowed only if each of these
//! paths ends with `SECCOMP_RET_ALLOW`.

mod inherited;

use std::cell::UnsafeCell;
use std::error::Error;
use std::ffi::c_long;
use std::{fmt, io};

use crate::arch::FILTER_ARCHITECTURE;
use crate::primitives::{AtomicBool, AtomicU64, Ordering};

/// The number of system calls that are distinguished; numbers from here on count as forbidden by each filter.
const NUMBERS: usize = 512;

const WORDS: usize = NUMBERS / 64;

/// The longest program that the kernel accepts, in instructions.
const MAX_LENGTH: usize = 4096;

/// Whether the process has a filter that Plimsoll knows of.
static IS_RESTRICTED: AtomicBool = AtomicBool::new(false);

/// The calls that a filter may forbid, one bit for each number.
static FORBIDDEN: [AtomicU64; WORDS] = [const { AtomicU64::new(0) }; WORDS];

/// Returns whether a filter restricts the process, or one of its threads.
#[inline]
pub fn is_restricted() -> bool {
    IS_RESTRICTED.load(Ordering::Relaxed)
}

/// Returns whether the process may make the system call of that number, whatever its arguments.
#[inline]
pub fn allows(number: c_long) -> bool {
    !is_restricted() || is_allowed(number)
}

#[cold]
fn is_allowed(number: c_long) -> bool {
    current().contains(number)
}

/// Returns the calls that the process may make.
pub fn current() -> Calls {
    Calls(std::array::from_fn(|word| {
        !FORBIDDEN[word].load(Ordering::Relaxed)
    }))
}

/// Forbids all calls but these from now on. Returns those that were allowed before, for [`restore`].
pub fn restrict_to(allowed: &Calls) -> Calls {
    let before = current();
    for (word, allowed) in FORBIDDEN.iter().zip(allowed.0) {
        word.fetch_or(!allowed, Ordering::Relaxed);
    }
    // After the words: a thread that sees this sees them too.
    IS_RESTRICTED.store(true, Ordering::SeqCst);
    before
}

/// Returns the number of filters of the calling thread; `None` if it cannot be read.
pub fn inherited_filters() -> Option<u32> {
    inherited::status().map(|status| status.filters)
}

/// Returns whether a filter with which the program was started may answer a call of Plimsoll's by ending the process.
/// Takes as long as a fork.
pub fn ends_processes() -> bool {
    inherited_filters() != Some(0) && inherited::allowed() != Calls::ALL
}

/// Notices filters that the program has inherited. For the start of the program. Makes the calls that these filters may
/// answer by ending the process forbidden, unless the process has more filters than `known`: then all calls, because
/// a part of the same run has installed some. Neither allocates nor locks.
pub fn notice_inherited(known: Option<u32>) {
    let status = inherited::status();
    let allowed = match (status.map(|status| status.filters), known) {
        (Some(0), _) | (None, None) => return,
        (Some(count), Some(known)) if count > known => Calls::NONE,
        (Some(_), _) => inherited::allowed(),
        (None, Some(_)) => Calls::NONE,
    };
    if allowed != Calls::ALL {
        super::keep_process_id(status.map_or(0, |status| status.process));
        restrict_to(&allowed);
    }
}

/// Allows what was allowed before a call of [`restrict_to`], because the kernel refused the filter. No other filter
/// may have been installed since.
pub fn restore(before: &Calls) {
    for (word, allowed) in FORBIDDEN.iter().zip(before.0) {
        word.store(!allowed, Ordering::Relaxed);
    }
    IS_RESTRICTED.store(*before != Calls::ALL, Ordering::SeqCst);
}

/// A system call that a filter forbids.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Forbidden {
    /// The name of the call.
    pub call: &'static str,
}

impl fmt::Display for Forbidden {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let call = self.call;
        write!(
            f,
            "a system call filter (seccomp) of the process forbids {call}"
        )
    }
}

impl Error for Forbidden {}

impl From<Forbidden> for io::Error {
    fn from(forbidden: Forbidden) -> Self {
        Self::new(io::ErrorKind::PermissionDenied, forbidden)
    }
}

/// System calls, with their names.
pub type Named = (c_long, &'static str);

/// The calls that read a file, or a directory.
pub const FILES: [Named; 9] = [
    (libc::SYS_openat, "openat"),
    (libc::SYS_read, "read"),
    (libc::SYS_close, "close"),
    (libc::SYS_fstat, "fstat"),
    (libc::SYS_newfstatat, "newfstatat"),
    (libc::SYS_statx, "statx"),
    (libc::SYS_lseek, "lseek"),
    (libc::SYS_getdents64, "getdents64"),
    (libc::SYS_fcntl, "fcntl"),
];

/// Returns whether the process may read files, also at positions, and map memory for them.
pub fn may_read_files() -> bool {
    check(&FILES).is_ok() && allows(libc::SYS_pread64) && allows(libc::SYS_mmap)
}

/// The calls that create, write, rename and remove files, with [`FILES`].
const WRITING: [Named; 5] = [
    (libc::SYS_write, "write"),
    (libc::SYS_fsync, "fsync"),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_mkdir, "mkdir"),
    #[cfg(not(target_arch = "x86_64"))]
    (libc::SYS_mkdirat, "mkdirat"),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_rename, "rename"),
    #[cfg(not(target_arch = "x86_64"))]
    (libc::SYS_renameat, "renameat"),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_unlink, "unlink"),
    #[cfg(not(target_arch = "x86_64"))]
    (libc::SYS_unlinkat, "unlinkat"),
];

/// Checks that the process may create, write, rename and remove files and directories. For code that does so by the
/// standard library.
///
/// # Errors
/// The first call that a filter may forbid.
pub fn check_writing() -> io::Result<()> {
    check(&FILES)?;
    Ok(check(&WRITING)?)
}

/// Returns whether the process may write to a file that is open.
pub fn may_write() -> bool {
    allows(libc::SYS_write)
}

/// The calls that listen, and serve one client.
const SERVER: [Named; 12] = [
    (libc::SYS_socket, "socket"),
    (libc::SYS_setsockopt, "setsockopt"),
    (libc::SYS_bind, "bind"),
    (libc::SYS_listen, "listen"),
    (libc::SYS_getsockname, "getsockname"),
    (libc::SYS_ioctl, "ioctl"),
    (libc::SYS_fcntl, "fcntl"),
    (libc::SYS_accept4, "accept4"),
    (libc::SYS_recvfrom, "recvfrom"),
    (libc::SYS_sendto, "sendto"),
    (libc::SYS_shutdown, "shutdown"),
    (libc::SYS_close, "close"),
];

/// Checks that the process may listen and serve clients.
///
/// # Errors
/// The first call that a filter may forbid.
pub fn check_server() -> io::Result<()> {
    Ok(check(&SERVER)?)
}

/// Checks that the process may replace a Unix socket on which nothing listens.
///
/// # Errors
/// The first call that a filter may forbid.
pub fn check_unix_socket() -> io::Result<()> {
    check(&[(libc::SYS_connect, "connect"), (libc::SYS_fchmod, "fchmod")])?;
    check_writing()
}

/// Returns whether the process may close files.
pub fn may_close_files() -> bool {
    allows(libc::SYS_close)
}

/// Returns whether the process may return memory to the system, as its allocator does.
pub fn may_release_memory() -> bool {
    const CALLS: [Named; 5] = [
        (libc::SYS_brk, "brk"),
        (libc::SYS_madvise, "madvise"),
        (libc::SYS_mmap, "mmap"),
        (libc::SYS_mprotect, "mprotect"),
        (libc::SYS_munmap, "munmap"),
    ];
    check(&CALLS).is_ok()
}

/// The calls that begin a thread, end it, and let it wait meanwhile.
pub const THREADS: [Named; 14] = [
    (libc::SYS_mmap, "mmap"),
    (libc::SYS_mprotect, "mprotect"),
    (libc::SYS_munmap, "munmap"),
    (libc::SYS_madvise, "madvise"),
    (libc::SYS_clone, "clone"),
    (libc::SYS_clone3, "clone3"),
    (libc::SYS_set_robust_list, "set_robust_list"),
    (libc::SYS_rseq, "rseq"),
    (libc::SYS_rt_sigprocmask, "rt_sigprocmask"),
    (libc::SYS_futex, "futex"),
    (libc::SYS_clock_nanosleep, "clock_nanosleep"),
    (libc::SYS_sched_yield, "sched_yield"),
    (libc::SYS_prctl, "prctl"),
    (libc::SYS_exit, "exit"),
];

/// Checks that the process may make all of these calls. For code that makes them through the C library or the
/// standard library.
///
/// # Errors
/// The first call that a filter may forbid.
pub fn check(calls: &[Named]) -> Result<(), Forbidden> {
    let forbidden = calls.iter().find(|(number, _)| !allows(*number));
    match forbidden {
        Some(&(_, call)) => Err(Forbidden { call }),
        None => Ok(()),
    }
}

/// A set of system calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Calls([u64; WORDS]);

impl Calls {
    /// All calls.
    pub const ALL: Self = Self([u64::MAX; WORDS]);

    /// No call.
    pub const NONE: Self = Self([0; WORDS]);

    /// Returns whether the set has the call of that number.
    #[inline]
    pub fn contains(&self, number: c_long) -> bool {
        let at = number as usize;
        at < NUMBERS && self.0[at / 64] >> (at % 64) & 1 != 0
    }

    /// Adds a call.
    #[must_use]
    pub const fn with(mut self, number: c_long) -> Self {
        let at = number as usize;
        if at < NUMBERS {
            self.0[at / 64] |= 1 << (at % 64);
        }
        self
    }

    /// Removes a call.
    #[must_use]
    pub const fn without(mut self, number: c_long) -> Self {
        let at = number as usize;
        if at < NUMBERS {
            self.0[at / 64] &= !(1 << (at % 64));
        }
        self
    }

    /// Returns the calls that both sets have.
    #[must_use]
    pub fn and(&self, other: &Self) -> Self {
        Self(std::array::from_fn(|word| self.0[word] & other.0[word]))
    }

    /// Returns the calls that a filter allows whatever their arguments are. Returns none if the program is not
    /// valid, or while another thread evaluates one. Neither allocates nor locks.
    pub fn allowed_by(program: &[libc::sock_filter]) -> Self {
        if program.is_empty() || program.len() > MAX_LENGTH {
            return Self::NONE;
        }
        let Some(mut paths) = Paths::take() else {
            return Self::NONE;
        };
        let allowed = (0..NUMBERS as u32).filter(|&number| paths.allow(program, number));
        allowed.fold(Self::NONE, |calls, number| calls.with(number.into()))
    }
}

/// The value of the accumulator before an instruction, over all paths that lead there.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Value {
    /// No path leads there.
    Unreached,
    Known(u32),
    Unknown,
}

impl Value {
    fn map(self, change: impl FnOnce(u32) -> Option<u32>) -> Self {
        match self {
            Self::Known(value) => change(value).map_or(Self::Unknown, Self::Known),
            other => other,
        }
    }

    /// Adds a path.
    fn meet(&mut self, other: Self) {
        *self = match *self {
            Self::Unreached => other,
            value if value == other => value,
            _ => Self::Unknown,
        };
    }
}

/// Memory for the evaluation of one program, which would be too large for a stack.
struct Paths(&'static mut [Value; MAX_LENGTH]);

struct Memory(UnsafeCell<[Value; MAX_LENGTH]>);

// SAFETY: only the owner of `Paths` accesses it.
unsafe impl Sync for Memory {}

static MEMORY: Memory = Memory(UnsafeCell::new([Value::Unreached; MAX_LENGTH]));
static IS_TAKEN: AtomicBool = AtomicBool::new(false);

impl Drop for Paths {
    fn drop(&mut self) {
        IS_TAKEN.store(false, Ordering::Release);
    }
}

/// What one instruction does.
enum Step {
    /// Goes on with the next instruction and this value.
    Next(Value),
    /// Goes on after so many further instructions, at one or two places, with the same value.
    Jump(usize, Option<usize>),
    /// Ends with this result; `None` if it is unknown, or if the instruction is not valid.
    End(Option<u32>),
}

impl Paths {
    fn take() -> Option<Self> {
        let taken = IS_TAKEN.swap(true, Ordering::Acquire);
        // SAFETY: the swap gives the memory to this value until it is dropped.
        (!taken).then(|| Self(unsafe { &mut *MEMORY.0.get() }))
    }

    /// Returns whether each path of the call `number` through a program ends by allowing it. All jumps of a program
    /// lead forward, so one pass meets all paths.
    fn allow(&mut self, program: &[libc::sock_filter], number: u32) -> bool {
        let values = &mut self.0[..program.len()];
        values.fill(Value::Unreached);
        values[0] = Value::Known(0);
        for (at, instruction) in program.iter().enumerate() {
            let value = values[at];
            if value == Value::Unreached {
                continue;
            }
            let mut lead = |skipped: usize, value| match values.get_mut(at + 1 + skipped) {
                Some(next) => {
                    next.meet(value);
                    true
                }
                None => false,
            };
            let is_valid = match step(instruction, value, number) {
                Step::Next(value) => lead(0, value),
                Step::Jump(one, other) => {
                    lead(one, value) && other.is_none_or(|other| lead(other, value))
                }
                Step::End(result) => result.is_some_and(is_allowing),
            };
            if !is_valid {
                return false;
            }
        }
        true
    }
}

fn is_allowing(result: u32) -> bool {
    result & libc::SECCOMP_RET_ACTION_FULL == libc::SECCOMP_RET_ALLOW
}

/// Interprets an instruction. The index register and the scratch memory count as unknown.
fn step(instruction: &libc::sock_filter, value: Value, number: u32) -> Step {
    let code = u32::from(instruction.code);
    let k = instruction.k;
    let by_index = code & libc::BPF_X != 0;
    match code & 0x07 {
        libc::BPF_LD => Step::Next(match (code & 0xe0, k) {
            (libc::BPF_ABS, 0) => Value::Known(number),
            (libc::BPF_ABS, 4) => Value::Known(FILTER_ARCHITECTURE),
            (libc::BPF_IMM, _) => Value::Known(k),
            _ => Value::Unknown,
        }),
        libc::BPF_LDX | libc::BPF_ST | libc::BPF_STX => Step::Next(value),
        libc::BPF_ALU => Step::Next(match code & 0xf0 {
            libc::BPF_NEG => value.map(|value| Some(value.wrapping_neg())),
            _ if by_index => Value::Unknown,
            operation => value.map(|value| calculated(operation, value, k)),
        }),
        libc::BPF_JMP => {
            let [met, unmet] = [instruction.jt, instruction.jf].map(usize::from);
            match (code & 0xf0, value) {
                (libc::BPF_JA, _) => Step::Jump(k as usize, None),
                (test, Value::Known(value)) if !by_index => match is_met(test, value, k) {
                    Some(true) => Step::Jump(met, None),
                    Some(false) => Step::Jump(unmet, None),
                    None => Step::End(None),
                },
                _ => Step::Jump(met, Some(unmet)),
            }
        }
        libc::BPF_RET => Step::End(match (code & 0x18, value) {
            (libc::BPF_K, _) => Some(k),
            (libc::BPF_A, Value::Known(value)) => Some(value),
            _ => None,
        }),
        // The accumulator receives the index register, or the reverse.
        _ if code & 0xf8 == libc::BPF_TXA => Step::Next(Value::Unknown),
        _ => Step::Next(value),
    }
}

fn calculated(operation: u32, value: u32, k: u32) -> Option<u32> {
    Some(match operation {
        libc::BPF_ADD => value.wrapping_add(k),
        libc::BPF_SUB => value.wrapping_sub(k),
        libc::BPF_MUL => value.wrapping_mul(k),
        libc::BPF_DIV => value.checked_div(k)?,
        libc::BPF_AND => value & k,
        libc::BPF_OR => value | k,
        libc::BPF_XOR => value ^ k,
        libc::BPF_LSH => value.checked_shl(k)?,
        libc::BPF_RSH => value.checked_shr(k)?,
        _ => return None,
    })
}

fn is_met(test: u32, value: u32, k: u32) -> Option<bool> {
    Some(match test {
        libc::BPF_JEQ => value == k,
        libc::BPF_JGT => value > k,
        libc::BPF_JGE => value >= k,
        libc::BPF_JSET => value & k != 0,
        _ => return None,
    })
}

#[cfg(test)]
mod tests;
