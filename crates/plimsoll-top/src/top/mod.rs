//! `plimsoll top`: watches a running program.
//!
//! ```text
//! source (two threads) --updates--> model <--keys-- app --> view --> terminal
//!                                  pages: the text about it, for view and once
//! ```
//!
//! Except for the terminal, the keyboard and the fetching threads, all parts are plain values. The
//! screen depends only on [`App`], [`Look`] and the time.

mod app;
mod keys;
mod once;
mod pages;
mod table;
mod terminal;
#[cfg(test)]
mod testing;
mod units;
mod view;

use std::fmt;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use ratatui::crossterm::event::{self, Event};

use self::app::App;
use self::keys::KeyAction;
use self::terminal::Session;
use self::view::Look;
use plimsoll_args::args::TopArguments;
use plimsoll_command::failure::Failure;
use plimsoll_watch::watch::find::Target;
use plimsoll_watch::watch::model::Update;
use plimsoll_watch::watch::source::Source;
use plimsoll_watch::watch::{self, clean, source};

/// The maximum delay of a key, a signal or an update.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// The maximum age of the screen, which shows ages in seconds.
const DRAW_AGAIN: Duration = Duration::from_millis(500);

/// Watches a program until the user quits.
///
/// # Errors
/// The program cannot be found or read at the beginning, or the terminal cannot be drawn on.
pub fn watch(arguments: &TopArguments) -> Result<ExitCode, Failure> {
    let unusable = if arguments.once {
        None
    } else {
        terminal::unusable()
    };
    if let Some(why) = unusable {
        return Err(Failure::new("top", why).with_code(2));
    }
    let target = Target::find(&arguments.program)?;
    if arguments.once {
        return once::print(arguments, &target);
    }
    terminal::give_back_on_panic();
    let began = Instant::now();
    let first = source::figures_now(&target.pages).map_err(|trouble| target.failure(&trouble))?;
    let mut app = App::new(
        target.name.clone(),
        arguments.interval,
        clean::clean(&arguments.filter),
    );
    app.learn(Update::Figures(Duration::ZERO, Ok(first)));
    let source = Source::begin(
        &target.pages,
        began,
        arguments.interval,
        arguments.profile_interval,
    )
    .map_err(|error| Failure::new("top", error))?;
    let look = Look::of_environment();
    let mut session = Session::begin().map_err(of_terminal)?;
    let ended = run(&mut session, &mut app, &source, look, began);
    drop(session);
    ended
}

fn of_terminal(error: impl fmt::Display) -> Failure {
    Failure::new("the terminal", error)
}

fn run(
    session: &mut Session,
    app: &mut App,
    source: &Source,
    look: Look,
    began: Instant,
) -> Result<ExitCode, Failure> {
    let mut drawn: Option<Instant> = None;
    let mut wanted = None;
    let mut changed = true;
    loop {
        changed |= session.heed_signals().map_err(of_terminal)?;
        loop {
            match source.updates() {
                Ok(Some(update)) => app.learn(update),
                Ok(None) => break,
                Err(_) => return Err(a_fetching_thread_has_died()),
            }
            changed = true;
        }
        if let Some(panic) = terminal::panic_elsewhere() {
            return Err(Failure::new("top", panic));
        }
        if wanted != Some(app.wanted()) {
            wanted = Some(app.wanted());
            source.set_wanted(app.wanted());
        }
        if changed || drawn.is_none_or(|drawn| drawn.elapsed() >= DRAW_AGAIN) {
            watch::panic_on_request("view");
            let now = began.elapsed();
            session
                .draw(|frame| view::draw(frame, app, look, now))
                .map_err(of_terminal)?;
            drawn = Some(Instant::now());
            changed = false;
        }
        if !event::poll(LOOK_AGAIN).map_err(of_terminal)? {
            continue;
        }
        // Any event may change the screen.
        changed = true;
        let Event::Key(key) = event::read().map_err(of_terminal)? else {
            continue;
        };
        let interval = app.interval;
        match keys::pressed(key, app, began.elapsed()) {
            KeyAction::Nothing => {}
            KeyAction::Quit => return Ok(ExitCode::SUCCESS),
            KeyAction::Suspend => session.suspend().map_err(of_terminal)?,
            KeyAction::Fetch => source.fetch(),
        }
        if app.interval != interval {
            source.set_interval(app.interval);
        }
    }
}

fn a_fetching_thread_has_died() -> Failure {
    let why = terminal::panic_elsewhere();
    Failure::new(
        "top",
        why.unwrap_or_else(|| "the fetch threads have ended".into()),
    )
}
