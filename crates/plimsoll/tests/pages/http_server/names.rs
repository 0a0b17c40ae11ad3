//! Names with characters that terminals interpret.

use std::hint::black_box;
use std::sync::mpsc::{Receiver, Sender, channel};

use crate::http_server::harness::{page, server};
use plimsoll_testkit::child;

/// Allocates, then waits for the end, under a name that reverses the rest of the line.
#[unsafe(export_name = "turned\u{202e}round\u{2066}")]
#[inline(never)]
extern "C" fn allocate_and_wait(ready: &Sender<()>, end: &Receiver<()>) {
    let kept = black_box(vec![1u8; 5000]);
    ready.send(()).unwrap();
    let _ = end.recv();
    drop(kept);
}

fn texts_have_no_active_characters() {
    let (_server, address) = server();
    let (ready, is_ready) = channel();
    let (end, is_over) = channel();
    let thread = std::thread::Builder::new()
        .name("e\u{202e}l".into())
        .spawn(move || allocate_and_wait(&ready, &is_over))
        .unwrap();
    is_ready.recv().unwrap();
    for target in ["heap?debug=1", "goroutine?debug=1", "goroutine?debug=2"] {
        let answer = page(address, target);
        let text = answer.text();
        assert!(
            text.contains(r"turned\u202eround\u2066"),
            "{target}: {text}"
        );
        let active = text.chars().find(
            |&character| matches!(character, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}'),
        );
        assert_eq!(active, None, "{target}");
    }
    drop(end);
    thread.join().unwrap();
}

/// Runs in a separate process, in which every allocation is sampled.
#[test]
fn names_in_texts_cannot_turn_a_line_round() {
    child::run(
        "names::names_in_texts_cannot_turn_a_line_round",
        "heap_rate=1",
        texts_have_no_active_characters,
    );
}
