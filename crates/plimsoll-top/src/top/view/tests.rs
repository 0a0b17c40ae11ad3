//! Tests of the contents of a screen of a given size.

use std::time::Duration;

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::buffer::Cell;
use ratatui::crossterm::event::KeyCode;
use ratatui::style::Color;

use super::*;
use crate::top::keys::pressed;
use crate::top::testing;
use plimsoll_watch::watch::model::{Trouble, Update};
use plimsoll_watch::watch::sites::{Frame, Kind, Sample, Sites};

const NOW: Duration = Duration::from_secs(3);

const FULL: Look = Look {
    colour: true,
    unicode: true,
};

const PLAIN: Look = Look {
    colour: false,
    unicode: false,
};

/// Returns the cells that `plimsoll top` draws on a terminal of the given size.
fn cells(app: &App, look: Look, width: u16, height: u16) -> Vec<Cell> {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("a terminal");
    let drawn = terminal.draw(|frame| draw(frame, app, look, NOW));
    drawn.expect("nothing can fail").buffer.content.clone()
}

fn screen(app: &App, look: Look, width: u16, height: u16) -> Vec<String> {
    let cells = cells(app, look, width, height);
    let rows = cells.chunks(width.into()).map(|row| {
        let row: String = row.iter().map(Cell::symbol).collect();
        row.trim_end().to_owned()
    });
    rows.collect()
}

fn press(app: &mut App, keys: &str) {
    for key in keys.chars() {
        let code = if key == '\n' {
            KeyCode::Enter
        } else {
            KeyCode::Char(key)
        };
        pressed(code.into(), app, NOW);
    }
}

/// Returns the screen of 80 by 24 after keys were pressed.
fn after(keys: &str) -> Vec<String> {
    let mut app = testing::app();
    press(&mut app, keys);
    screen(&app, PLAIN, 80, 24)
}

fn has(screen: &[String], text: &str) -> bool {
    screen.iter().any(|line| line.contains(text))
}

fn gone() -> Trouble {
    Trouble {
        gone: true,
        needs_token: false,
        why: "no server listens".into(),
    }
}

#[test]
fn the_overview_has_all_that_matters_on_80_by_24() {
    let screen = after("1");
    let expected = [
        "plimsoll top  search --load 2                              http://127.0.0.1:6060",
        "1 Overview  2 Sites  3 Sizes  4 Locks  5 Threads  6 GC  7 CPU  8 Growth  9 Flame",
        "heap       12.0 MiB                     peak seen  16.0 MiB",
        "trend      -                            objects    114,712",
        "allocated  2.00 MiB/s, 1000/s           freed      1.00 MiB/s, 500/s",
        "threads    4                            tasks      9",
        "lock waits 250 ms/s, 12/s               GC         7 cycles, 0.5/s",
        "Plimsoll   1.00 MiB mapped, 0.0 % CPU   lost       3 events",
        "heap                                                                          #o",
        "in use                                                                        ##",
        "alloc                                                                          #",
        "rate                                                                           #",
        "  IN USEv  OBJECTS    ALLOC/S  ALLOCATED WHERE",
        " 8.00 MiB       80 1.00 MiB/s   80.0 MiB search::index::Index::add index.rs:120",
    ];
    assert_eq!(screen[..expected.len()], expected);
}

#[test]
fn tables_show_where_and_how_they_are_sorted() {
    let screen = after("2sr");
    let head = "   IN USE OBJECTS^    ALLOC/S  ALLOCATED WHERE";
    let at = screen.iter().position(|line| line == head);
    let at = at.unwrap_or_else(|| panic!("{screen:#?}"));
    assert_eq!(
        screen[at + 1..at + 4],
        [
            " 1.00 MiB        1      0 B/s   1.00 MiB search::main main.rs:7",
            " 8.00 MiB       80 1.00 MiB/s   80.0 MiB search::index::Index::add index.rs:120",
            " 3.00 MiB      900      0 B/s   9.00 MiB search::store::Cache::get store.rs:45",
        ]
    );
    let status = " reading  1 s old, profile 1 s  every 1.00 s  ?: help  q: quit";
    assert_eq!(screen[23], status);
}

#[test]
fn every_page_and_the_help_fit_into_80_by_24() {
    for keys in ["1", "2", "3", "4", "5", "6", "7", "8", "?", "2\n"] {
        let mut app = testing::app();
        press(&mut app, keys);
        for look in [FULL, PLAIN] {
            let screen = screen(&app, look, 80, 24);
            assert!(screen[23].contains("q: quit"), "{screen:#?}");
            let is_ascii = screen.iter().all(|line| line.is_ascii());
            assert!(look.unicode || is_ascii, "{screen:#?}");
        }
    }
    assert!(has(&after("?"), "Press any key to return."));
    assert!(has(&after("3"), "> 16 B"));
    assert!(has(&after("4"), "waiter   3.00 s"));
    assert!(has(&after("5"), "waiting      search::service"));
    assert!(has(&after("6"), "young"));
}

#[test]
fn screens_of_any_size_are_drawn_on() {
    let mut app = testing::app();
    for keys in ["1", "2", "3", "4", "5", "6", "2\n", "?"] {
        press(&mut app, keys);
        for width in [1, 2, 3, 5, 13, 14, 15, 37, 80, 500] {
            for height in [1, 2, 3, 4, 5, 8, 24, 200] {
                let screen = screen(&app, FULL, width, height);
                assert_eq!(screen.len(), usize::from(height));
                let status = screen.last().expect("the line exists");
                assert!(
                    width < 13 || status.contains("reading"),
                    "{width} {height} {status}"
                );
            }
        }
    }
}

#[test]
fn large_screens_have_more_columns_and_higher_graphs() {
    let app = testing::app();
    let large = screen(&app, FULL, 200, 60);
    assert!(
        large[2].contains("heap") && large[2].contains("trend"),
        "{}",
        large[2]
    );
    let bars = large.iter().filter(|line| line.ends_with('█'));
    assert!(bars.count() > 4, "{large:#?}");
}

#[test]
fn no_cell_has_a_colour_without_colour() {
    let mut app = testing::app();
    app.learn(Update::Figures(NOW, Err(gone())));
    for keys in ["1", "2", "3", "4", "5", "6", "2\n", "?"] {
        press(&mut app, keys);
        let colours = |look: Look| {
            let plain = (Color::Reset, Color::Reset);
            let cells = cells(&app, look, 80, 24).into_iter();
            cells.filter(|cell| (cell.fg, cell.bg) != plain).count()
        };
        assert_eq!(colours(PLAIN), 0, "{keys}");
        assert!(colours(FULL) > 0, "{keys}");
    }
}

#[test]
fn the_status_line_shows_the_state_of_the_view() {
    let mut app = testing::app();
    let status = |app: &App| screen(app, PLAIN, 80, 24).pop().expect("the line exists");
    press(&mut app, "/cac");
    assert!(
        status(&app).starts_with(" filter: cac_"),
        "{}",
        status(&app)
    );
    press(&mut app, "\n+p");
    let paused = " PAUSED 0 s  reading  filter: cac  1 s old, profile 1 s  every 2.00 s";
    assert!(status(&app).starts_with(paused), "{}", status(&app));
    press(&mut app, "p");
    assert!(
        status(&app).starts_with(" reading  filter: cac"),
        "{}",
        status(&app)
    );
    app.learn(Update::Figures(Duration::from_secs(1), Err(gone())));
    let words = " GONE 2 s, retrying: no server listens";
    assert!(status(&app).starts_with(words), "{}", status(&app));
    app.learn(Update::Figures(
        NOW,
        Err(Trouble::with_answer("status 500")),
    ));
    let words = " NO FIGURES 2 s, retrying: status 500";
    assert!(status(&app).starts_with(words), "{}", status(&app));
    app.learn(Update::Figures(NOW, Ok(testing::figures(1))));
    let words = " reading  filter: cac  restarted 1x  0 s old";
    assert!(status(&app).starts_with(words), "{}", status(&app));
}

#[test]
fn the_chosen_row_is_on_the_screen_and_can_be_looked_into() {
    let mut app = testing::app();
    press(&mut app, "2");
    pressed(KeyCode::End.into(), &mut app, NOW);
    let small = screen(&app, PLAIN, 80, 7);
    assert!(has(&small, "search::main main.rs:7"), "{small:#?}");
    assert!(!has(&small, "Index::add"), "{small:#?}");
    pressed(KeyCode::Home.into(), &mut app, NOW);
    press(&mut app, "\n");
    let open = screen(&app, PLAIN, 80, 24);
    assert!(
        has(&open, "  search::index::Index::add  /x/index.rs:120"),
        "{open:#?}"
    );
    assert!(has(&open, "  search::main  /x/main.rs:7"), "{open:#?}");
    assert!(!has(&open, "Cache::get"), "{open:#?}");
}

#[test]
fn missing_parts_are_explained() {
    let mut app = App::new(String::new(), Duration::from_secs(1), String::new());
    press(&mut app, "2");
    assert!(has(
        &screen(&app, PLAIN, 80, 24),
        "Waiting for the profile."
    ));
    app.learn(Update::Profile(
        Kind::Heap,
        Err(Trouble::with_answer("status 500")),
    ));
    let refused = "The profile is not available: status 500.";
    assert!(has(&screen(&app, PLAIN, 80, 24), refused));
    press(&mut app, "4");
    for kind in [Kind::Mutex, Kind::Block] {
        app.learn(Update::Profile(kind, Ok(Sites::default())));
    }
    assert!(has(&screen(&app, PLAIN, 80, 24), "mutex_fraction=100"));
    press(&mut app, "6");
    assert!(has(&screen(&app, PLAIN, 80, 24), "plimsoll::gc::Collector"));
}

/// Names of a hostile program must not control the terminal: no cell may contain control characters
/// or characters that change the direction of text.
#[test]
fn hostile_names_are_drawn_as_letters() {
    let hostile =
        "\u{1b}[2J\u{1b}]0;x\u{7}\r\n\u{9b}5m\u{202e}\u{200d}検索👩\u{200d}👧\u{301}\u{301}";
    let mut app = testing::app();
    let frame = Frame {
        function: hostile,
        file: hostile,
        line: 3,
    };
    for kind in [Kind::Heap, Kind::Mutex, Kind::Block, Kind::Goroutine] {
        let sample = Sample {
            stack: vec![frame.clone(); 3],
            labels: vec![("state", hostile)],
            values: vec![i64::MAX; 4],
        };
        app.learn(Update::Profile(
            kind,
            Ok(Sites::new(kind, [sample].into_iter())),
        ));
    }
    app.learn(Update::CommandLine(hostile.into()));
    app.learn(Update::Figures(NOW, Err(Trouble::with_answer(hostile))));
    let steers = |character: char| {
        let turns = matches!(character, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}');
        character.is_control() || turns
    };
    for keys in ["1", "2", "3", "4", "5", "6", "2\n"] {
        press(&mut app, keys);
        for look in [FULL, PLAIN] {
            for width in [20, 80, 300] {
                for cell in cells(&app, look, width, 24) {
                    let symbol = cell.symbol();
                    assert!(!symbol.contains(steers), "{symbol:?}");
                    assert!(look.unicode || symbol.is_ascii(), "{symbol:?}");
                }
            }
        }
    }
}
