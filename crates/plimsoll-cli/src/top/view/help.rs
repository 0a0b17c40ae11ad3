//! What the keys do.

use super::canvas::Canvas;
use super::look::Part;

const KEYS: &[(&str, &str)] = &[
    (
        "1 to 6",
        "overview, sites, sizes, locks, threads and tasks, GC",
    ),
    ("Tab, Right, Left", "the next page, the one before"),
    ("s, S", "sort by the next column, by the one before"),
    ("r", "turn the order around"),
    ("/", "type a filter; Enter keeps it, Esc clears it"),
    ("p, Space", "stand still, go on"),
    ("f", "fetch figures and profiles at once"),
    ("+, -", "more time between readings, less"),
    ("Up, Down, k, j", "choose a row"),
    ("PgUp, PgDn, Home, End", "the same in larger steps"),
    ("Enter, Esc", "the stack behind the row, back to the table"),
    ("Ctrl-Z", "give the terminal back to the shell for a while"),
    ("q, Ctrl-C", "quit"),
];

const BELOW: &[&str] = &[
    "Heap figures are exact. Sites are estimates from samples: heap_rate says how fine.",
    "ALLOC/S and NOW are since the profile before. Locks need rates: block_rate,",
    "mutex_fraction. A profile of threads interrupts each running one for microseconds.",
    "",
    "Any key goes back.",
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
