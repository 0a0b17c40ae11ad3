//! Finds the interpreter's states of other threads, which are blocked and cannot help.
//!
//! The interpreter links the states of all threads in lists. Each contains the C library's identifier of
//! its thread. The kernel reports for a thread's number where the C library keeps the thread's list of
//! robust mutexes: at a fixed distance from the identifier. In another process, which may have another C library, the
//! distance is that to the nearest identifier.
//!
//! Threads change the lists meanwhile. The walk is bounded, and a state counts only if it contains the
//! identifier of the thread when the thread is read.

use plimsoll_interpreter::{Found, Functions, Names, OtherThreads};
use plimsoll_process::deep_stacks::Limit;
use plimsoll_process::robust_list;
use plimsoll_sys::hash::HashMap;
use plimsoll_sys::os::clock;

use crate::frames;
use crate::memory::{CopiedPages, Copies, Memory, OwnProcess};
use crate::runtime::{FOUND, Python};

/// The maximum number of states that are listed. A list that leads back into itself ends there.
const MAX_STATES: usize = 1 << 14;

/// No C library's structure of a thread, which begins with the identifier and contains the list, is larger.
const MAX_DISTANCE: usize = 4096;

/// The states are listed again if the time since then is this many times the CPU time that it took. So
/// listing takes at most this part of a processor.
const REST: u64 = 1000;

/// The same for another process, whose reader has no other work.
pub(crate) const REST_ELSEWHERE: u64 = 20;

/// The states of the threads at one time, and the memory that was copied for one of them.
pub(crate) struct States<C> {
    pub(crate) memory: CopiedPages<C>,
    /// By the identifier of the thread.
    states: HashMap<usize, usize>,
    rest: u64,
    /// The time from which on the states may be listed again.
    list_again_ns: u64,
    /// The distance from a thread's identifier to its list of robust mutexes, if it is known.
    distance: Option<usize>,
}

impl States<OwnProcess> {
    /// Allocates: not for hooks.
    pub(crate) fn new() -> Self {
        // SAFETY: the call has no arguments and no effects.
        let own = unsafe { libc::pthread_self() } as usize;
        Self {
            distance: robust_list::address(0).map(|list| list.wrapping_sub(own)),
            ..Self::with_copies(OwnProcess, REST)
        }
    }
}

impl<C: Copies> States<C> {
    /// `rest` is the time between two lists, divided by the CPU time of one.
    pub(crate) fn with_copies(copies: C, rest: u64) -> Self {
        Self {
            memory: CopiedPages::new(copies),
            states: HashMap::default(),
            rest,
            list_again_ns: 0,
            distance: None,
        }
    }

    /// Returns the address of the state of the thread with a number, if it has one. Lists the states at
    /// the first call, and again if the list lacks the thread. Discards all memory that was copied before.
    pub(crate) fn state(&mut self, python: &Python, thread: i32) -> Option<usize> {
        let list = robust_list::address(thread)?;
        self.memory.begin();
        if let Some(state) = self.listed(python, list) {
            return Some(state);
        }
        if clock::now() < self.list_again_ns {
            return None;
        }
        let began = clock::thread_cpu();
        self.states = all_states(python, &mut self.memory);
        let took = clock::thread_cpu().saturating_sub(began);
        self.list_again_ns = clock::now() + self.rest * took;
        self.memory.begin();
        if self.distance.is_none() {
            let distances = self
                .states
                .keys()
                .map(|&identifier| list.wrapping_sub(identifier));
            self.distance = distances.filter(|&distance| distance < MAX_DISTANCE).min();
        }
        self.listed(python, list)
    }

    /// Reads the functions of a thread, as [`OtherThreads::read`] does.
    pub(crate) fn read_functions(
        &mut self,
        python: &Python,
        thread: i32,
        names: &mut dyn Names,
        functions: &mut Functions,
        limit: Limit,
        is_unmoved: &mut dyn FnMut() -> bool,
    ) -> Option<Found> {
        let state = self.state(python, thread)?;
        let memory = &mut self.memory;
        let counts = frames::read(python, memory, names, state, functions, limit, is_unmoved);
        counts.found(python)
    }

    /// Returns the state of the thread with this list of robust mutexes, if it still has its identifier.
    fn listed(&mut self, python: &Python, list: usize) -> Option<usize> {
        let identifier = list.wrapping_sub(self.distance?);
        let state = *self.states.get(&identifier)?;
        let found = self.memory.field(state, python.layout.thread_identifier)?;
        (found == identifier).then_some(state)
    }
}

impl OtherThreads for States<OwnProcess> {
    fn read(
        &mut self,
        thread: i32,
        names: &mut dyn Names,
        functions: &mut Functions,
        limit: Limit,
        is_unmoved: &mut dyn FnMut() -> bool,
    ) -> Option<Found> {
        let python = FOUND.get()?;
        self.read_functions(python, thread, names, functions, limit, is_unmoved)
    }
}

/// Lists the states by the identifiers of their threads. Of several states with the same identifier, the
/// oldest counts: the creator of a thread makes its state, which contains the creator's identifier until
/// the thread begins. A thread that runs several interpreters has its first state in the oldest.
fn all_states(python: &Python, memory: &mut impl Memory) -> HashMap<usize, usize> {
    let mut found = HashMap::default();
    // Whatever was listed until a list could not be followed is complete.
    let _ = add_states(python, memory, &mut found);
    found
}

fn add_states(
    python: &Python,
    memory: &mut impl Memory,
    found: &mut HashMap<usize, usize>,
) -> Option<()> {
    let layout = &python.layout.states;
    let mut steps = 0..MAX_STATES;
    let mut interpreter = memory.field(python.runtime, layout.interpreter)?;
    while interpreter != 0 {
        let mut state = memory.field(interpreter, layout.thread)?;
        while state != 0 {
            steps.next()?;
            let identifier = memory.field(state, python.layout.thread_identifier)?;
            found.insert(identifier, state);
            state = memory.field(state, layout.next_thread)?;
        }
        steps.next()?;
        interpreter = memory.field(interpreter, layout.next_interpreter)?;
    }
    Some(())
}

#[cfg(test)]
mod tests;
