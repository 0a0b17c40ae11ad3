//! Takes the terminal, and restores its state in every case.
//!
//! [`give_back`] restores the terminal once each time it was taken. The end of the view, the panic
//! hook and the signal thread call it; the first call counts.
//!
//! Signal handlers only set flags. The drawing thread reads them and restores the terminal itself,
//! so that nothing is drawn afterwards. Then it dies of the signal, as it would have without a
//! handler, so that the parent sees the cause.
//!
//! The drawing thread may hang: if the terminal takes no output, or if it was hung up and crossterm
//! reads its end of file again and again. So another thread ends the program if the drawing thread
//! does not. A second signal of the same kind ends it at once.

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

use plimsoll_watch::watch::clean::clean;

/// Whether the terminal is taken.
static TAKEN: AtomicBool = AtomicBool::new(false);

/// The message of a panic in a thread that does not draw.
static PANIC: Mutex<Option<String>> = Mutex::new(None);

/// The signals that end the program.
const ENDING: [i32; 4] = [SIGTERM, SIGINT, SIGHUP, SIGQUIT];

/// The time that the drawing thread has to end the program.
const PATIENCE: Duration = Duration::from_millis(500);

/// A terminal in use.
pub(super) struct Session {
    terminal: Terminal<CrosstermBackend<Stdout>>,
    ending: Vec<(i32, Arc<AtomicBool>)>,
    stopping: Arc<AtomicBool>,
    continued: Arc<AtomicBool>,
}

/// Returns in a few words why the terminal cannot be drawn on; `None` if it can.
pub(super) fn unusable() -> Option<&'static str> {
    if !io::stdout().is_terminal() {
        Some("stdout is not a terminal; --once prints text")
    } else if std::env::var_os("TERM").is_some_and(|terminal| terminal == "dumb") {
        Some("the terminal type dumb is not supported; --once prints text")
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
        end_if_nothing_else_does()?;
        let stopping = Arc::new(AtomicBool::new(false));
        signal_hook::flag::register(SIGTSTP, Arc::clone(&stopping))?;
        let continued = Arc::new(AtomicBool::new(false));
        signal_hook::flag::register(SIGCONT, Arc::clone(&continued))?;
        take()?;
        // The terminal is taken, so a failure must restore it.
        let terminal = Terminal::new(CrosstermBackend::new(io::stdout()));
        Ok(Self {
            terminal: terminal.inspect_err(|_| give_back())?,
            ending,
            stopping,
            continued,
        })
    }

    /// Draws a frame.
    pub(super) fn draw(&mut self, what: impl FnOnce(&mut ratatui::Frame<'_>)) -> io::Result<()> {
        self.terminal.draw(what)?;
        Ok(())
    }

    /// Handles the signals that have arrived. Returns whether everything must be drawn anew.
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
            // The process was stopped by SIGSTOP, and the shell has used the terminal since.
            give_back();
            self.take_again()?;
            return Ok(true);
        }
        Ok(false)
    }

    /// Gives the terminal to the shell until the shell continues the program.
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

/// Takes the message of a panic in a thread that does not draw, on one line.
pub(super) fn panic_elsewhere() -> Option<String> {
    PANIC.lock().unwrap_or_else(PoisonError::into_inner).take()
}

fn take() -> io::Result<()> {
    enable_raw_mode()?;
    TAKEN.store(true, Ordering::SeqCst);
    execute!(io::stdout(), EnterAlternateScreen, Hide).inspect_err(|_| give_back())
}

/// Restores the terminal's state. Errors cannot be reported and are ignored.
fn give_back() {
    if TAKEN.swap(false, Ordering::SeqCst) {
        // This avoids `stdout`, because a writer that hangs holds its lock.
        if let Ok(terminal) = io::stdout().as_fd().try_clone_to_owned() {
            let mut terminal = File::from(terminal);
            let _ = execute!(terminal, Show, LeaveAlternateScreen);
        }
        let _ = disable_raw_mode();
    }
}

/// Ends the program by the signal that arrived, if the drawing thread does not.
fn end_if_nothing_else_does() -> io::Result<()> {
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

/// Installs a panic hook. A panic of the calling thread, which draws, is printed on the restored
/// terminal. The message of a panic in another thread is kept, and ends the drawing thread.
pub(super) fn give_back_on_panic() {
    static HOOKED: Once = Once::new();
    let drawing: ThreadId = thread::current().id();
    HOOKED.call_once(|| {
        let previous = panic::take_hook();
        panic::set_hook(Box::new(move |panic| {
            if thread::current().id() == drawing {
                give_back();
                previous(panic);
            } else {
                let mut kept = PANIC.lock().unwrap_or_else(PoisonError::into_inner);
                kept.get_or_insert_with(|| clean(&panic.to_string()));
            }
        }));
    });
}
