//! A shell in a terminal of tmux: tests press keys in it and read its screen.

use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use std::{env, fs, thread};

/// The time after which a test fails as hanging.
const TOO_LONG: Duration = Duration::from_secs(60);

/// A terminal, closed on drop together with its processes.
pub struct Pane {
    directory: PathBuf,
}

impl Pane {
    /// Opens a shell in a terminal of this size. `None` without tmux: the calling test is skipped.
    pub fn open(width: u32, height: u32) -> Option<Self> {
        if Command::new("tmux").arg("-V").output().is_err() {
            plimsoll_testkit::skip!("tmux is not installed");
            return None;
        }
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("plimsoll-top-{}-{number}", std::process::id());
        let directory = env::temp_dir().join(name);
        let _ = fs::remove_dir_all(&directory);
        fs::create_dir_all(&directory).expect("the directory can be created");
        let pane = Self { directory };
        let (width, height) = (width.to_string(), height.to_string());
        // A plain shell: others set modes of the terminal themselves.
        let shell = "exec env PS1='READY> ' LC_ALL=C.UTF-8 sh";
        pane.tmux(&["new-session", "-d", "-x", &width, "-y", &height, shell]);
        pane.wait_for("READY>");
        Some(pane)
    }

    fn tmux(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new("tmux");
        command.arg("-S").arg(self.directory.join("socket"));
        // UTF-8, without a configuration, and independent of a tmux in which this test may run.
        command.args(["-u", "-f", "/dev/null"]).args(arguments);
        command
            .env_remove("TMUX")
            .env_remove("NO_COLOR")
            .stdin(Stdio::null());
        command.output().expect("tmux can be run")
    }

    /// Returns the shell command that runs `plimsoll top` and writes its process id to a file.
    pub fn top(&self, arguments: &str) -> String {
        let pid = self.file("pid");
        let program = env!("CARGO_BIN_EXE_plimsoll");
        format!("sh -c 'echo $$ > {pid}; exec {program} top {arguments}'")
    }

    /// Returns the path of a file of this pane.
    pub fn file(&self, name: &str) -> String {
        let path = self.directory.join(name);
        path.to_str()
            .expect("temporary directories have plain names")
            .into()
    }

    /// Returns the content of such a file, once it contains a line.
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

    /// Sends a signal to `plimsoll top`.
    pub fn signal(&self, name: &str) {
        let pid = self.read_file("pid");
        let sent = Command::new("kill").args(["-s", name, pid.trim()]).status();
        assert!(sent.expect("kill can be run").success(), "{name}");
    }

    /// Hangs up: the terminal goes away.
    pub fn hang_up(&self) {
        self.tmux(&["kill-server"]);
    }

    /// Types letters literally.
    pub fn type_letters(&self, letters: &str) {
        self.tmux(&["send-keys", "-l", "--", letters]);
    }

    /// Presses a key by tmux's name for it, such as `Enter`.
    pub fn press(&self, key: &str) {
        self.tmux(&["send-keys", key]);
    }

    /// Runs a command in the shell.
    pub fn command(&self, line: &str) {
        self.type_letters(line);
        self.press("Enter");
    }

    /// Returns the text on the screen, without blanks at the ends of lines.
    pub fn screen(&self) -> String {
        let output = self.tmux(&["capture-pane", "-p"]);
        String::from_utf8(output.stdout).expect("it is UTF-8")
    }

    /// The same, with escape sequences for colours and other attributes.
    pub fn coloured_screen(&self) -> String {
        let output = self.tmux(&["capture-pane", "-p", "-e"]);
        String::from_utf8(output.stdout).expect("it is UTF-8")
    }

    /// Waits until the screen is as wanted, and returns it.
    pub fn wait(&self, what: &str, wanted: impl Fn(&str) -> bool) -> String {
        let start = Instant::now();
        loop {
            let screen = self.screen();
            if wanted(&screen) {
                return screen;
            }
            assert!(
                start.elapsed() < TOO_LONG,
                "{what} does not appear:\n{screen}"
            );
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// Waits until the screen contains a text, and returns it.
    pub fn wait_for(&self, text: &str) -> String {
        self.wait(text, |screen| screen.contains(text))
    }

    /// Changes the size of the terminal.
    pub fn resize(&self, width: u32, height: u32) {
        let (width, height) = (width.to_string(), height.to_string());
        self.tmux(&["resize-window", "-x", &width, "-y", &height]);
    }

    /// Returns a property of the terminal, from tmux.
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
