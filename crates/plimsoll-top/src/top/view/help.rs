//! The help: a list of the keys.

use super::canvas::Canvas;
use super::look::Part;

const KEYS: &[(&str, &str)] = &[
    ("1 to 9", "the page of that number"),
    ("Tab, Right, Left", "next page, previous page"),
    ("s, S", "sort by the next, the previous column"),
    ("r", "reverse the order"),
    ("/", "type a filter; Enter keeps it, Esc clears it"),
    ("p, Space", "pause, resume"),
    ("f", "fetch figures and profiles now"),
    ("+, -", "read less often, more often"),
    ("Up, Down, k, j", "choose a row"),
    ("PgUp, PgDn, Home, End", "choose a row, in larger steps"),
    (
        "Enter, Esc",
        "show the stack of the row, return to the table",
    ),
    ("Ctrl-Z", "suspend, and return to the shell"),
    ("q, Ctrl-C", "quit"),
];

const BELOW: &[&str] = &[
    "Heap figures are exact. Sites are estimates from samples: heap_rate sets the rate.",
    "ALLOC/S and NOW count since the previous profile. Locks need rates: block_rate,",
    "mutex_fraction. A profile of threads interrupts each running one for microseconds.",
    "",
    "Press any key to return.",
];

pub(super) fn draw(canvas: &mut Canvas<'_>) {
    const WIDTH: usize = 23;
    let width = canvas.width();
    canvas.put(0, 0, "plimsoll top: keys", width, Part::Title);
    for (at, (keys, what)) in KEYS.iter().enumerate() {
        canvas.put(1, 2 + at, keys, WIDTH, Part::Value);
        canvas.put(1 + WIDTH, 2 + at, what, width, Part::Row);
    }
    for (at, line) in BELOW.iter().enumerate() {
        canvas.put(0, 3 + KEYS.len() + at, line, width, Part::Row);
    }
}
