//! The functions as linked into the program and as the C library defines them, hooks that count,
//! and turns for the mode.

use std::cell::{Cell, RefCell};
use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::{Mutex, Once, PoisonError};

use plimsoll_interpose::pthread::{Call, Function, Hooks, Mode, set_hooks, set_mode};

type OfLock = unsafe extern "C" fn(*mut c_void) -> c_int;
type Timed = unsafe extern "C" fn(*mut c_void, *const libc::timespec) -> c_int;
type Clocked = unsafe extern "C" fn(*mut c_void, c_int, *const libc::timespec) -> c_int;
type Wait = unsafe extern "C" fn(*mut c_void, *mut c_void) -> c_int;
type TimedWait = unsafe extern "C" fn(*mut c_void, *mut c_void, *const libc::timespec) -> c_int;
type ClockWait =
    unsafe extern "C" fn(*mut c_void, *mut c_void, c_int, *const libc::timespec) -> c_int;

macro_rules! functions {
    ($($name:ident: $of:ident, $symbol:ident;)*) => {
        /// All interposed functions.
        #[derive(Clone, Copy)]
        pub struct Functions {
            $(pub $name: $of,)*
        }

        mod program {
            use super::*;
            unsafe extern "C" {
                $(functions!(@declare $of $symbol);)*
            }
        }

        impl Functions {
            /// Returns the functions as the program is linked.
            pub fn linked() -> Self {
                Self { $($name: program::$symbol,)* }
            }

            /// Returns the C library's own definitions.
            pub fn direct() -> Self {
                // SAFETY: glibc is loaded, and its functions have these types.
                unsafe {
                    let library = libc::dlopen(c"libc.so.6".as_ptr(), libc::RTLD_NOW);
                    assert!(!library.is_null());
                    let find = |name: &std::ffi::CStr| {
                        let mut found = ptr::null_mut();
                        if name.to_bytes().starts_with(b"pthread_cond") {
                            found = libc::dlvsym(library, name.as_ptr(), c"GLIBC_2.3.2".as_ptr());
                        }
                        if found.is_null() {
                            found = libc::dlsym(library, name.as_ptr());
                        }
                        assert!(!found.is_null(), "{name:?}");
                        found
                    };
                    Self {
                        $($name: std::mem::transmute::<*mut c_void, $of>(find(
                            std::ffi::CStr::from_bytes_with_nul(
                                concat!(stringify!($symbol), "\0").as_bytes()
                            ).expect("a name")
                        )),)*
                    }
                }
            }

            /// Returns the functions' names and addresses.
            pub fn addresses(&self) -> Vec<(&'static str, usize)> {
                vec![$((stringify!($symbol), self.$name as *const () as usize),)*]
            }
        }
    };
    (@declare OfLock $symbol:ident) => {
        pub fn $symbol(lock: *mut c_void) -> c_int;
    };
    (@declare Timed $symbol:ident) => {
        pub fn $symbol(lock: *mut c_void, time: *const libc::timespec) -> c_int;
    };
    (@declare Clocked $symbol:ident) => {
        pub fn $symbol(lock: *mut c_void, clock: c_int, time: *const libc::timespec) -> c_int;
    };
    (@declare Wait $symbol:ident) => {
        pub fn $symbol(condition: *mut c_void, mutex: *mut c_void) -> c_int;
    };
    (@declare TimedWait $symbol:ident) => {
        pub fn $symbol(
            condition: *mut c_void,
            mutex: *mut c_void,
            time: *const libc::timespec
        ) -> c_int;
    };
    (@declare ClockWait $symbol:ident) => {
        pub fn $symbol(
            condition: *mut c_void,
            mutex: *mut c_void,
            clock: c_int,
            time: *const libc::timespec
        ) -> c_int;
    };
}

functions! {
    lock: OfLock, pthread_mutex_lock;
    timed_lock: Timed, pthread_mutex_timedlock;
    clock_lock: Clocked, pthread_mutex_clocklock;
    unlock: OfLock, pthread_mutex_unlock;
    read: OfLock, pthread_rwlock_rdlock;
    timed_read: Timed, pthread_rwlock_timedrdlock;
    clock_read: Clocked, pthread_rwlock_clockrdlock;
    write: OfLock, pthread_rwlock_wrlock;
    timed_write: Timed, pthread_rwlock_timedwrlock;
    clock_write: Clocked, pthread_rwlock_clockwrlock;
    rw_unlock: OfLock, pthread_rwlock_unlock;
    wait: Wait, pthread_cond_wait;
    timed_wait: TimedWait, pthread_cond_timedwait;
    clock_wait: ClockWait, pthread_cond_clockwait;
    signal: OfLock, pthread_cond_signal;
    broadcast: OfLock, pthread_cond_broadcast;
}

/// A call of a hook.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    Asked(usize),
    Began(Function, [usize; 4]),
    Ended(Function, c_int),
    Abandoned(Function),
}

thread_local! {
    static IS_WAITED_FOR: Cell<bool> = const { Cell::new(false) };
    static SEEN: RefCell<Vec<Seen>> = const { RefCell::new(Vec::new()) };
    static INSPECT: Cell<Option<fn(&Call)>> = const { Cell::new(None) };
}

fn note(seen: Seen) {
    // A cancelled thread may have destroyed its thread-local variables.
    let _ = SEEN.try_with(|all| all.borrow_mut().push(seen));
}

const MARK: u64 = 0x1234_5678_9abc_def0;

extern "C" fn is_waited_for(address: usize) -> bool {
    note(Seen::Asked(address));
    IS_WAITED_FOR.get()
}

unsafe extern "C" fn begin(call: &mut Call) {
    // SAFETY: this crate initializes the first word before `begin`.
    assert_eq!(unsafe { call.room[0].assume_init() }, 0);
    call.room.fill(MaybeUninit::new(MARK));
    note(Seen::Began(call.function, call.arguments));
    if let Some(inspect) = INSPECT.take() {
        inspect(call);
    }
}

unsafe extern "C" fn end(call: &mut Call) {
    check_room(call);
    note(Seen::Ended(call.function, call.result));
}

unsafe extern "C" fn abandoned(call: &mut Call) {
    check_room(call);
    note(Seen::Abandoned(call.function));
}

/// Asserts that the words which `begin` wrote are unchanged.
fn check_room(call: &Call) {
    for word in call.room {
        // SAFETY: `begin` wrote all words.
        assert_eq!(unsafe { word.assume_init() }, MARK);
    }
}

/// Makes the hook call `inspect` at the next reported call of this thread.
pub fn inspect_next(inspect: fn(&Call)) {
    INSPECT.set(Some(inspect));
}

/// Returns the result of `work`, and the hook calls of this thread meanwhile.
pub fn seen<R>(work: impl FnOnce() -> R) -> (R, Vec<Seen>) {
    SEEN.take();
    let result = work();
    (result, SEEN.take())
}

/// Runs `work` in this mode, and no other test meanwhile. `waited_for` is the hooks' result for
/// each object of this thread's calls.
pub fn in_mode<R>(mode: Mode, waited_for: bool, work: impl FnOnce() -> R) -> R {
    struct Off;
    impl Drop for Off {
        fn drop(&mut self) {
            set_mode(Mode::Off);
            IS_WAITED_FOR.set(false);
        }
    }

    static TURN: Mutex<()> = Mutex::new(());
    static ONCE: Once = Once::new();
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    ONCE.call_once(|| {
        set_hooks(Hooks {
            is_waited_for,
            begin,
            end,
            abandoned,
        });
    });
    set_mode(mode);
    IS_WAITED_FOR.set(waited_for);
    let _off = Off;
    work()
}

pub const MODES: [(Mode, bool); 4] = [
    (Mode::Off, false),
    (Mode::LockWaits, true),
    (Mode::All, false),
    (Mode::All, true),
];

/// Memory for any object of the C library. All zeros equal each static initializer.
#[repr(C, align(16))]
pub struct Object([u8; 64]);

impl Object {
    pub fn new() -> Box<Self> {
        Box::new(Self([0; 64]))
    }

    pub fn at(&self) -> *mut c_void {
        ptr::from_ref(self).cast_mut().cast()
    }

    /// Returns a mutex of this type, protocol and robustness.
    pub fn mutex(kind: c_int, protocol: c_int, robust: bool) -> Box<Self> {
        let mutex = Self::new();
        // SAFETY: the attributes are initialized first, and the object is large enough.
        unsafe {
            let mut attributes = MaybeUninit::<libc::pthread_mutexattr_t>::uninit();
            let attributes = attributes.as_mut_ptr();
            assert_eq!(libc::pthread_mutexattr_init(attributes), 0);
            assert_eq!(libc::pthread_mutexattr_settype(attributes, kind), 0);
            assert_eq!(libc::pthread_mutexattr_setprotocol(attributes, protocol), 0);
            if robust {
                let robust = libc::PTHREAD_MUTEX_ROBUST;
                assert_eq!(libc::pthread_mutexattr_setrobust(attributes, robust), 0);
            }
            assert_eq!(libc::pthread_mutex_init(mutex.at().cast(), attributes), 0);
        }
        mutex
    }
}
