//! Handles keys.

use std::time::Duration;

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use super::app::App;
use super::pages::Page;

/// The number of rows that the page keys move.
const A_PAGE: isize = 10;

/// The maximum length of a filter in characters.
const LONGEST_FILTER: usize = 100;

/// The action of a key outside the view's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KeyAction {
    Nothing,
    /// Ends the program.
    Quit,
    /// Suspends the program and gives the terminal to the shell.
    Suspend,
    /// Fetches the profiles at once.
    Fetch,
}

/// Handles a key. `now` is the time since watching began.
pub(super) fn pressed(key: KeyEvent, app: &mut App, now: Duration) -> KeyAction {
    if key.kind == KeyEventKind::Release {
        return KeyAction::Nothing;
    }
    if key.modifiers.contains(KeyModifiers::CONTROL) {
        return match key.code {
            KeyCode::Char('c') => KeyAction::Quit,
            KeyCode::Char('z') => KeyAction::Suspend,
            KeyCode::Char('u') if app.typing.is_some() => {
                app.filter.clear();
                KeyAction::Nothing
            }
            _ => KeyAction::Nothing,
        };
    }
    if app.typing.is_some() {
        typed(key.code, app);
        return KeyAction::Nothing;
    }
    if app.help {
        // Any key closes the help.
        app.help = false;
        return match key.code {
            KeyCode::Char('q') => KeyAction::Quit,
            _ => KeyAction::Nothing,
        };
    }
    match key.code {
        KeyCode::Char('q') => return KeyAction::Quit,
        KeyCode::Char('f') => return KeyAction::Fetch,
        KeyCode::Char('?' | 'h') => app.help = true,
        KeyCode::Char('p' | ' ') => app.pause(now),
        KeyCode::Char('+') => app.change_interval(true),
        KeyCode::Char('-') => app.change_interval(false),
        KeyCode::Char('s') => app.sort_by(1),
        KeyCode::Char('S') => app.sort_by(-1),
        KeyCode::Char('r') => app.reverse(),
        KeyCode::Char('/') => app.typing = Some(app.filter.clone()),
        KeyCode::Esc if app.more().is_some() => app.toggle_more(),
        KeyCode::Esc => app.filter.clear(),
        KeyCode::Enter => app.toggle_more(),
        KeyCode::Up | KeyCode::Char('k') => app.go(-1),
        KeyCode::Down | KeyCode::Char('j') => app.go(1),
        KeyCode::PageUp => app.go(-A_PAGE),
        KeyCode::PageDown => app.go(A_PAGE),
        KeyCode::Home => app.go(isize::MIN),
        KeyCode::End => app.go(isize::MAX),
        KeyCode::Tab | KeyCode::Right => turn(app, 1),
        KeyCode::BackTab | KeyCode::Left => turn(app, Page::ALL.len() - 1),
        KeyCode::Char(digit) => {
            let page = digit.to_digit(10).and_then(|digit| digit.checked_sub(1));
            if let Some(&page) = page.and_then(|page| Page::ALL.get(page as usize)) {
                app.page = page;
            }
        }
        _ => {}
    }
    KeyAction::Nothing
}

fn turn(app: &mut App, further: usize) {
    app.page = Page::ALL[(app.page.number() + further) % Page::ALL.len()];
}

/// Handles a key while the user types a filter. The filter takes effect at once.
fn typed(key: KeyCode, app: &mut App) {
    match key {
        KeyCode::Enter => app.typing = None,
        KeyCode::Esc => {
            app.typing = None;
            app.filter.clear();
        }
        KeyCode::Backspace => {
            app.filter.pop();
        }
        KeyCode::Char(character)
            if !character.is_control() && app.filter.chars().count() < LONGEST_FILTER =>
        {
            app.filter.push(character);
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::top::testing;

    const NOW: Duration = Duration::from_secs(2);

    fn app() -> App {
        testing::app()
    }

    fn press(app: &mut App, keys: &str) {
        for key in keys.chars() {
            let code = match key {
                '\n' => KeyCode::Enter,
                '\u{1b}' => KeyCode::Esc,
                '\t' => KeyCode::Tab,
                '\u{8}' => KeyCode::Backspace,
                '^' => KeyCode::Up,
                'v' => KeyCode::Down,
                other => KeyCode::Char(other),
            };
            assert_eq!(
                pressed(code.into(), app, NOW),
                KeyAction::Nothing,
                "{key:?}"
            );
        }
    }

    fn rows(app: &App) -> Vec<String> {
        let rows = app.table().rows.into_iter();
        rows.map(|row| row.cells.last().expect("cells").text.clone())
            .collect()
    }

    fn control(letter: char) -> KeyEvent {
        KeyEvent::new(KeyCode::Char(letter), KeyModifiers::CONTROL)
    }

    #[test]
    fn pages_are_chosen_by_number_and_in_turn() {
        let mut app = app();
        for (keys, page) in [
            ("2", Page::Sites),
            ("6", Page::Gc),
            ("7", Page::Cpu),
            ("8", Page::Growth),
            ("9", Page::Flame),
            ("\t", Page::Overview),
            ("\t\t", Page::Sizes),
            ("00", Page::Sizes),
        ] {
            press(&mut app, keys);
            assert_eq!(app.page, page, "{keys:?}");
        }
        pressed(KeyCode::BackTab.into(), &mut app, NOW);
        assert_eq!(app.page, Page::Sites);
    }

    #[test]
    fn each_page_has_an_order_of_its_own() {
        let mut app = app();
        press(&mut app, "2");
        let by_size = rows(&app);
        assert!(by_size[0].starts_with("search::index::Index::add"));
        press(&mut app, "s");
        assert!(
            rows(&app)[0].starts_with("search::store::Cache::get"),
            "by objects"
        );
        press(&mut app, "r");
        assert!(rows(&app)[0].starts_with("search::main"));
        press(&mut app, "3");
        assert_eq!(app.order(), Page::Sizes.order());
        press(&mut app, "2S");
        assert_eq!(rows(&app), by_size);
        press(&mut app, "S");
        assert_eq!(app.order().column, 4, "the last one is before the first");
        press(&mut app, "s");
        assert_eq!(app.order().column, 0);
    }

    #[test]
    fn filters_work_while_they_are_typed() {
        let mut app = app();
        press(&mut app, "2/cache");
        assert_eq!(rows(&app).len(), 1);
        press(&mut app, "q?\n");
        assert_eq!((&*app.filter, app.typing.is_none()), ("cacheq?", true));
        assert_eq!(rows(&app).len(), 0);
        press(&mut app, "/\u{8}\u{8}\n");
        assert_eq!(app.filter, "cache");
        press(&mut app, "\u{1b}");
        assert_eq!((&*app.filter, rows(&app).len()), ("", 3));
        press(&mut app, "/x\u{1b}");
        assert_eq!((&*app.filter, app.typing.is_none()), ("", true));
        press(&mut app, "/x");
        pressed(control('u'), &mut app, NOW);
        assert_eq!((&*app.filter, app.typing.is_none()), ("", false));
        press(&mut app, &"y".repeat(1000));
        assert_eq!(app.filter.len(), LONGEST_FILTER);
    }

    #[test]
    fn a_paused_view_does_not_change() {
        let mut app = app();
        press(&mut app, "p");
        assert_eq!(app.paused(), Some(NOW));
        assert_eq!(app.wanted(), [], "and no profile is fetched for it");
        let at = app.model().readings.at();
        let later = Duration::from_secs(3);
        app.learn(plimsoll_watch::watch::model::Update::Figures(
            later,
            Ok(testing::figures(3)),
        ));
        assert_eq!(app.model().readings.at(), at);
        press(&mut app, " ");
        assert_eq!(app.model().readings.at(), Some(later));
        assert_eq!(app.wanted(), app.page.profiles());
    }

    #[test]
    fn the_chosen_row_stays_chosen_where_it_goes() {
        let mut app = app();
        press(&mut app, "2v");
        let chosen = |app: &App| {
            let table = app.table();
            table.rows[app.chosen(&table)].cells[4].text.clone()
        };
        assert_eq!(chosen(&app), "search::store::Cache::get store.rs:45");
        press(&mut app, "sr");
        assert_eq!(chosen(&app), "search::store::Cache::get store.rs:45");
        press(&mut app, "vvvvv^");
        assert_eq!(chosen(&app), "search::index::Index::add index.rs:120");
        pressed(KeyCode::End.into(), &mut app, NOW);
        press(&mut app, "/main\n");
        assert_eq!(chosen(&app), "search::main main.rs:7");
        press(&mut app, "/nowhere\n\n^v");
        assert_eq!(app.more(), None, "there is no row to look into");
    }

    #[test]
    fn rows_are_opened_and_closed() {
        let mut app = app();
        press(&mut app, "2\n");
        assert_eq!(app.more(), Some(0));
        press(&mut app, "vvvv");
        assert_eq!(app.more(), Some(1), "it has two lines");
        press(&mut app, "^^^");
        assert_eq!(app.more(), Some(0));
        press(&mut app, "\u{1b}");
        assert_eq!(app.more(), None);
        press(&mut app, "\n\n");
        assert_eq!(app.more(), None);
    }

    #[test]
    fn intervals_stay_within_bounds() {
        let mut app = app();
        press(&mut app, "+");
        assert_eq!(app.interval, Duration::from_secs(2));
        press(&mut app, &"+".repeat(40));
        assert_eq!(app.interval, Duration::from_secs(3600));
        press(&mut app, &"-".repeat(40));
        assert_eq!(app.interval, Duration::from_millis(100));
    }

    #[test]
    fn some_keys_are_for_others() {
        let mut app = app();
        for (key, wish) in [
            (KeyCode::Char('q').into(), KeyAction::Quit),
            (KeyCode::Char('f').into(), KeyAction::Fetch),
            (control('c'), KeyAction::Quit),
            (control('z'), KeyAction::Suspend),
            (control('q'), KeyAction::Nothing),
        ] {
            assert_eq!(pressed(key, &mut app, NOW), wish, "{key:?}");
        }
        press(&mut app, "?");
        assert!(app.help);
        press(&mut app, "x");
        assert!(!app.help);
        press(&mut app, "?");
        assert_eq!(
            pressed(KeyCode::Char('q').into(), &mut app, NOW),
            KeyAction::Quit
        );
        // While a filter is typed, Ctrl-C still ends.
        press(&mut app, "/");
        assert_eq!(pressed(control('c'), &mut app, NOW), KeyAction::Quit);
    }
}
