//! The lists of an interpreter, made up of words, with the identifiers of real threads.

use std::sync::mpsc;

use plimsoll_sys::os::thread_id;

use super::*;
use crate::layout::{self, Layout};

/// Words of one interpreter, and of states that lie behind one another.
struct Lists {
    words: Vec<usize>,
    layout: Layout,
}

const INTERPRETER: usize = 0x100;
const STATES: usize = 0x200;
const STATE: usize = 0x100;

impl Lists {
    /// Links states with these identifiers, newest first.
    fn new(minor: u32, identifiers: &[usize]) -> Self {
        let layout = layout::listed(minor).unwrap();
        let words = vec![0; (STATES + STATE * (identifiers.len() + 1)) / 8];
        let mut this = Self { words, layout };
        let states = layout.states;
        this.set(states.interpreter, this.address(INTERPRETER));
        this.set(INTERPRETER + states.thread, this.address(STATES));
        for (at, &identifier) in identifiers.iter().enumerate() {
            let state = STATES + STATE * at;
            this.set(state + layout.thread_identifier, identifier);
            let next = match at + 1 == identifiers.len() {
                true => 0,
                false => this.address(state + STATE),
            };
            this.set(state + states.next_thread, next);
        }
        this
    }

    fn address(&self, offset: usize) -> usize {
        self.words.as_ptr() as usize + offset
    }

    fn set(&mut self, offset: usize, word: usize) {
        self.words[offset / 8] = word;
    }

    fn python(&self) -> Python {
        Python {
            layout: self.layout,
            runtime: self.address(0),
            code_type: 0,
            loop_code: None,
            own_code: 0..0,
        }
    }
}

fn own_identifier() -> usize {
    // SAFETY: the call has no arguments and no effects.
    unsafe { libc::pthread_self() as usize }
}

#[test]
fn the_state_of_another_thread_is_found_by_the_systems_number() {
    let (sender, numbers) = mpsc::channel();
    let (end, ended) = mpsc::channel::<()>();
    let thread = std::thread::spawn(move || {
        sender.send((thread_id(), own_identifier())).unwrap();
        let _ = ended.recv();
    });
    let (other, identifier) = numbers.recv().unwrap();
    for minor in 9..13 {
        // The newest state is of a thread that has not begun, and has its creator's identifier.
        let identifiers = [identifier, own_identifier(), identifier];
        let mut lists = Lists::new(minor, &identifiers);
        let mut threads = States::new();
        let at = |state: usize| Some(lists.address(STATES + STATE * state));
        let python = lists.python();
        assert_eq!(threads.state(&python, other), at(2), "3.{minor}");
        assert_eq!(threads.state(&python, thread_id()), at(1), "3.{minor}");
        assert_eq!(threads.state(&python, 1 << 30), None, "no such thread");
        let field = lists.layout.thread_identifier;
        lists.set(STATES + 2 * STATE + field, identifier + 64);
        lists.set(STATES + field, identifier + 64);
        threads.list_again_ns = u64::MAX;
        assert_eq!(threads.state(&python, other), None, "its state is freed");
        lists.set(STATES + field, identifier);
        assert_eq!(threads.state(&python, other), None, "not listed yet");
        threads.list_again_ns = 0;
        let at = |state: usize| Some(lists.address(STATES + STATE * state));
        assert_eq!(threads.state(&python, other), at(0), "listed again");
    }
    drop(end);
    thread.join().unwrap();
}

#[test]
fn lists_that_do_not_end_are_cut() {
    let own = own_identifier();
    let mut lists = Lists::new(12, &[own, own + 64]);
    let next = STATES + STATE + lists.layout.states.next_thread;
    for garbage in [lists.address(STATES), 8, usize::MAX, usize::MAX - 7] {
        lists.set(next, garbage);
        let found = States::new().state(&lists.python(), thread_id());
        assert_eq!(found, Some(lists.address(STATES)), "{garbage:#x}");
    }
    let interpreter = INTERPRETER + lists.layout.states.next_interpreter;
    lists.set(next, 0);
    lists.set(interpreter, lists.address(INTERPRETER));
    let found = States::new().state(&lists.python(), thread_id());
    assert_eq!(found, Some(lists.address(STATES)));
}
