//! The C library of these tests, built from `locks.c`.

use std::ffi::{c_int, c_long, c_void};
use std::sync::OnceLock;

use crate::pthread::library::{Library, functions, of_locks};

fn library() -> &'static Library {
    static LIBRARY: OnceLock<Library> = OnceLock::new();
    LIBRARY.get_or_init(|| Library::load("cc", &[], "locks.c"))
}

of_locks! { libc::pthread_mutex_t:
    c_locks c_tries c_unlocks c_unlocks_inner c_unlocks_wrongly c_unlocks_in_vain
    c_unlocks_recursive c_unlocks_checking c_unlocks_adaptive c_unlocks_inheriting
    c_unlocks_robust c_unlocks_timed c_unlocks_clocked c_unlocks_plainly
    c_waits c_waits_recursive c_waits_checking c_waits_adaptive c_waits_inheriting
    c_waits_robust c_waits_timed c_waits_clocked c_waits_for_the_dead c_waits_plainly c_forks
}

of_locks! { libc::pthread_rwlock_t:
    c_reads c_writes c_stops_writing c_stops_writing_for_writers c_stops_reading
    c_stops_writing_timed c_stops_reading_timed c_stops_writing_clocked c_stops_reading_clocked
    c_waits_to_read c_waits_to_write_after c_waits_to_write c_waits_to_read_timed
    c_waits_to_write_timed c_waits_to_read_clocked c_waits_to_write_clocked
}

of_locks! { News:
    c_init_news c_waits_for_news c_waits_for_news_timed c_waits_for_news_clocked
    c_waits_to_be_signalled c_brings_news c_signals_each c_gives_up_by_waiting
}

functions! {
    fn c_init(lock: *mut libc::pthread_mutex_t, kind: c_int) -> c_int;
    fn c_waits_in_vain(lock: *mut libc::pthread_mutex_t, milliseconds: c_long) -> c_int;
    fn c_cancels(until_asleep: extern "C" fn(c_int), asynchronously: c_int) -> c_int;
    fn c_child_holds(
        shared: *mut libc::pthread_mutex_t,
        ready: *mut c_int,
        resumes: *mut c_int
    ) -> libc::pid_t;
    fn c_contends(lock: *mut libc::pthread_mutex_t, stop: *const c_int);
    fn c_makes_shared() -> *mut c_void;
    fn c_leaves_shared(shared: *mut c_void, waits: c_int);
    fn c_makes_locks() -> *mut c_void;
    fn c_works_at_random(locks: *mut c_void, seed: u64, turns: c_int) -> c_int;
}

/// `struct news` of `locks.c`.
#[repr(C)]
pub struct News {
    pub mutex: libc::pthread_mutex_t,
    condition: libc::pthread_cond_t,
    is_there: c_int,
}

/// An object that threads share. It is never freed, so it outlives them all.
pub struct Shared<T>(*mut T);

// SAFETY: the objects behind the pointer are made for concurrent use.
unsafe impl<T> Sync for Shared<T> {}
// SAFETY: the objects behind the pointer are made for concurrent use, and are never freed.
unsafe impl<T> Send for Shared<T> {}

impl<T> Shared<T> {
    /// All bytes are zero, as with C's initializers of locks.
    pub fn zeroed() -> Self {
        // SAFETY: the C types used here are valid with all bytes zero.
        Self(Box::into_raw(Box::new(unsafe { std::mem::zeroed() })))
    }

    pub fn at(address: *mut T) -> Self {
        Self(address)
    }

    pub fn get(&self) -> *mut T {
        self.0
    }
}

pub type Mutex = Shared<libc::pthread_mutex_t>;
pub type RwLock = Shared<libc::pthread_rwlock_t>;

/// Kinds of mutexes, for [`c_init`].
pub mod kind {
    pub const RECURSIVE: i32 = 1;
    pub const ERRORCHECK: i32 = 2;
    pub const ADAPTIVE: i32 = 3;
    pub const ROBUST: i32 = 16;
    pub const INHERIT: i32 = 32;
    pub const SHARED: i32 = 128;
}

impl Mutex {
    pub fn of_kind(kind: i32) -> Self {
        let mutex = Self::zeroed();
        assert_eq!(c_init(mutex.get(), kind), 0);
        mutex
    }
}

impl Shared<News> {
    pub fn news() -> Self {
        let news = Self::zeroed();
        assert_eq!(c_init_news(news.get()), 0);
        news
    }
}
