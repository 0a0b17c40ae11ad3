//! A shell in a terminal of tmux: keys are pressed in it, and what is on its screen is read.

use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use std::{env, fs, thread};

/// The time after which something hangs.
const TOO_LONG: Duration = Duration::from_secs(60);

/// The terminal; gone, with what runs in it, when it is dropped.
pub struct Pane {
    directory: PathBuf,
}

impl Pane {
    /// A shell on a terminal of that size. `None`, which is said, without tmux.
    pub fn open(width: u32, height: u32) -> Option<Self> {
        if Command::new("tmux").arg("-V").output().is_err() {
            eprintln!("tmux was not found: the view on a terminal is not tried");
            return None;
        }
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("plimsoll-top-{}-{number}", std::process::id());
        let directory = env::temp_dir().join(name);
        let _ = fs::remove_dir_all(&directory);
        fs::create_dir_all(&directory).expect("there is room");
        let pane = Self { directory };
        let (width, height) = (width.to_string(), height.to_string());
        // The shell is a plain one: others set modes of the terminal themselves.
        let shell = "exec env PS1='READY> ' LC_ALL=C.UTF-8 sh";
        pane.tmux(&["new-session", "-d", "-x", &width, "-y", &height, shell]);
        pane.wait_for("READY>");
        Some(pane)
    }

    fn tmux(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new("tmux");
        command.arg("-S").arg(self.directory.join("socket"));
        // In UTF-8, without a configuration; and of nothing that this test may run in.
        command.args(["-u", "-f", "/dev/null"]).args(arguments);
        command
            .env_remove("TMUX")
            .env_remove("NO_COLOR")
            .stdin(Stdio::null());
        command.output().expect("tmux can be run")
    }

    /// The program with its arguments, as a shell takes it. Its process id is in a file then.
    pub fn top(&self, arguments: &str) -> String {
        let pid = self.file("pid");
        let program = env!("CARGO_BIN_EXE_plimsoll");
        format!("sh -c 'echo $$ > {pid}; exec {program} top {arguments}'")
    }

    /// A file of this pane's own.
    pub fn file(&self, name: &str) -> String {
        let path = self.directory.join(name);
        path.to_str()
            .expect("temporary directories have plain names")
            .into()
    }

    /// What is in such a file, once there is a line.
    pub fn read_file(&self, name: &str) -> String {
        let start = Instant::now();
        loop {
            match fs::read_to_string(self.file(name)) {
                Ok(text) if text.ends_with('\n') => return text,
                _ => assert!(start.elapsed() < TOO_LONG, "{name} is not written"),
            }
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// Sends a signal to the program.
    pub fn signal(&self, name: &str) {
        let pid = self.read_file("pid");
        let sent = Command::new("kill").args(["-s", name, pid.trim()]).status();
        assert!(sent.expect("kill can be run").success(), "{name}");
    }

    /// Hangs up: the terminal is there no more.
    pub fn hang_up(&self) {
        self.tmux(&["kill-server"]);
    }

    /// Types letters as they are.
    pub fn type_letters(&self, letters: &str) {
        self.tmux(&["send-keys", "-l", "--", letters]);
    }

    /// Presses a key by tmux's name for it, such as `Enter`.
    pub fn press(&self, key: &str) {
        self.tmux(&["send-keys", key]);
    }

    /// A command for the shell.
    pub fn command(&self, line: &str) {
        self.type_letters(line);
        self.press("Enter");
    }

    /// What is on the screen, without blanks at the ends of lines.
    pub fn screen(&self) -> String {
        let output = self.tmux(&["capture-pane", "-p"]);
        String::from_utf8(output.stdout).expect("it is UTF-8")
    }

    /// The same with escape sequences for what colours and so on it has.
    pub fn coloured_screen(&self) -> String {
        let output = self.tmux(&["capture-pane", "-p", "-e"]);
        String::from_utf8(output.stdout).expect("it is UTF-8")
    }

    /// The screen, once it is as wanted.
    pub fn wait(&self, what: &str, wanted: impl Fn(&str) -> bool) -> String {
        let start = Instant::now();
        loop {
            let screen = self.screen();
            if wanted(&screen) {
                return screen;
            }
            assert!(
                start.elapsed() < TOO_LONG,
                "{what} does not come:\n{screen}"
            );
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// The screen, once it has a text.
    pub fn wait_for(&self, text: &str) -> String {
        self.wait(text, |screen| screen.contains(text))
    }

    /// Changes the size of the terminal.
    pub fn resize(&self, width: u32, height: u32) {
        let (width, height) = (width.to_string(), height.to_string());
        self.tmux(&["resize-window", "-x", &width, "-y", &height]);
    }

    /// What tmux knows of the terminal.
    pub fn property(&self, name: &str) -> String {
        let output = self.tmux(&["display-message", "-p", &format!("#{{{name}}}")]);
        String::from_utf8(output.stdout)
            .expect("it is UTF-8")
            .trim_end()
            .into()
    }
}

impl Drop for Pane {
    fn drop(&mut self) {
        self.tmux(&["kill-server"]);
        let _ = fs::remove_dir_all(&self.directory);
    }
}
