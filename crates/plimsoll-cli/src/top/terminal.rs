//! The terminal: taken, and given back as it was, whatever happens.
//!
//! It is given back by [`give_back`], which does that once for each time it was taken, whoever
//! comes first: the end of the view, the hook of panics, or what answers a signal. Signals only set
//! flags. The thread that draws looks at those and gives back the terminal itself, so that nothing
//! is drawn behind that; then it dies of the signal, as it would have without a handler, so that
//! whoever waits for it sees what happened. That thread may hang: in a terminal that takes nothing,
//! or in one that was hung up, whose end of input crossterm reads again and again. So another
//! thread ends the program if that one does not; and a second signal of the same kind is not waited
//! for by anybody.

use std::fs::File;
use std::io::{self, IsTerminal, Stdout};
use std::os::fd::AsFd;
use std::panic;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Once, PoisonError};
use std::thread::{self, ThreadId};
use std::time::Duration;

use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::cursor::{Hide, Show};
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use signal_hook::consts::{SIGCONT, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP};
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;

use super::clean::clean;

/// Whether the terminal is taken.
static TAKEN: AtomicBool = AtomicBool::new(false);

/// What a thread that does not draw has said as it panicked.
static PANIC: Mutex<Option<String>> = Mutex::new(None);

/// The signals that end the program.
const ENDING: [i32; 4] = [SIGTERM, SIGINT, SIGHUP, SIGQUIT];

/// How long the thread that draws may take to end the program.
const PATIENCE: Duration = Duration::from_millis(500);

/// A terminal that is drawn on.
pub(super) struct Session {
    terminal: Terminal<CrosstermBackend<Stdout>>,
    ending: Vec<(i32, Arc<AtomicBool>)>,
    stopping: Arc<AtomicBool>,
    continued: Arc<AtomicBool>,
}

/// Why the terminal cannot be drawn on at all, if so: in a few words.
pub(super) fn unusable() -> Option<&'static str> {
    if !io::stdout().is_terminal() {
        Some("stdout is no terminal; --once prints text")
    } else if std::env::var_os("TERM").is_some_and(|terminal| terminal == "dumb") {
        Some("a terminal of type dumb cannot be drawn on; --once prints text")
    } else {
        None
    }
}

impl Session {
    /// Takes the terminal.
    pub(super) fn begin() -> io::Result<Self> {
        let mut ending = Vec::new();
        for signal in ENDING {
            let flag = Arc::new(AtomicBool::new(false));
            signal_hook::flag::register_conditional_default(signal, Arc::clone(&flag))?;
            signal_hook::flag::register(signal, Arc::clone(&flag))?;
            ending.push((signal, flag));
        }
        end_if_nobody_does()?;
        let stopping = Arc::new(AtomicBool::new(false));
        signal_hook::flag::register(SIGTSTP, Arc::clone(&stopping))?;
        let continued = Arc::new(AtomicBool::new(false));
        signal_hook::flag::register(SIGCONT, Arc::clone(&continued))?;
        take()?;
        // The terminal is taken: if this fails, it is to be given back.
        let terminal = Terminal::new(CrosstermBackend::new(io::stdout()));
        Ok(Self {
            terminal: terminal.inspect_err(|_| give_back())?,
            ending,
            stopping,
            continued,
        })
    }

    /// Draws what is to be seen.
    pub(super) fn draw(&mut self, what: impl FnOnce(&mut ratatui::Frame<'_>)) -> io::Result<()> {
        self.terminal.draw(what)?;
        Ok(())
    }

    /// Does what signals have asked for. Whether everything is to be drawn anew.
    pub(super) fn heed_signals(&mut self) -> io::Result<bool> {
        for (signal, flag) in &self.ending {
            if flag.load(Ordering::Relaxed) {
                give_back();
                emulate_default_handler(*signal)?;
            }
        }
        if self.stopping.swap(false, Ordering::Relaxed) {
            self.suspend()?;
            return Ok(true);
        }
        if self.continued.swap(false, Ordering::Relaxed) {
            // Whoever stopped it did not ask, and the shell has had the terminal since.
            give_back();
            self.take_again()?;
            return Ok(true);
        }
        Ok(false)
    }

    /// Gives the terminal to the shell until that has the program go on.
    pub(super) fn suspend(&mut self) -> io::Result<()> {
        give_back();
        emulate_default_handler(SIGTSTP)?;
        self.continued.store(false, Ordering::Relaxed);
        self.take_again()
    }

    fn take_again(&mut self) -> io::Result<()> {
        take()?;
        self.terminal.clear()
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        give_back();
    }
}

/// What a thread that does not draw has said as it panicked, in one line.
pub(super) fn panic_elsewhere() -> Option<String> {
    PANIC.lock().unwrap_or_else(PoisonError::into_inner).take()
}

fn take() -> io::Result<()> {
    enable_raw_mode()?;
    TAKEN.store(true, Ordering::SeqCst);
    execute!(io::stdout(), EnterAlternateScreen, Hide).inspect_err(|_| give_back())
}

/// As it was before it was taken. What fails here has nobody left to be told.
fn give_back() {
    if TAKEN.swap(false, Ordering::SeqCst) {
        // Not by stdout, which whoever hangs in writing has locked.
        if let Ok(terminal) = io::stdout().as_fd().try_clone_to_owned() {
            let mut terminal = File::from(terminal);
            let _ = execute!(terminal, Show, LeaveAlternateScreen);
        }
        let _ = disable_raw_mode();
    }
}

/// Ends the program by the signals that do, if the thread that draws does not.
fn end_if_nobody_does() -> io::Result<()> {
    let mut signals = Signals::new(ENDING)?;
    let run = move || {
        for signal in signals.forever() {
            thread::sleep(PATIENCE);
            give_back();
            let _ = emulate_default_handler(signal);
        }
    };
    thread::Builder::new().name("signals".into()).spawn(run)?;
    Ok(())
}

/// Has a panic of this thread, which draws, be told on the terminal as it was. Those of threads
/// that do not draw are kept, for the thread that does to end with.
pub(super) fn give_back_on_panic() {
    static HOOKED: Once = Once::new();
    let drawing: ThreadId = thread::current().id();
    HOOKED.call_once(|| {
        let told_by = panic::take_hook();
        panic::set_hook(Box::new(move |panic| {
            if thread::current().id() == drawing {
                give_back();
                told_by(panic);
            } else {
                let mut kept = PANIC.lock().unwrap_or_else(PoisonError::into_inner);
                kept.get_or_insert_with(|| clean(&panic.to_string()));
            }
        }));
    });
}
