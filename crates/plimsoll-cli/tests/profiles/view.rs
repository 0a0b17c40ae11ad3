//! `plimsoll view` serves files to the browsers of one user on this machine.

use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, ChildStdout, Command, Stdio};

use crate::command::{Directory, failure_of, file_of_command};
use crate::proto::Writer;
use plimsoll_testkit::client::{Answer, connect, get, wait_for};
use plimsoll_testkit::hostile;

/// A running server, which ends with the test.
struct Server {
    child: Child,
    /// Kept open: the command may write to it.
    _out: BufReader<ChildStdout>,
    /// Host and port.
    address: SocketAddr,
    /// The path of the page, with the token.
    root: String,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Server {
    fn new(files: &[&str]) -> Self {
        let mut command = Command::new(file_of_command());
        Self::start(command.args(["view", "--no-open"]).args(files))
    }

    fn start(command: &mut Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        out.read_line(&mut line).unwrap();
        let url = line.split_whitespace().next().unwrap();
        let rest = url.strip_prefix("http://").unwrap();
        let (address, path) = rest.split_once('/').unwrap();
        Self {
            child,
            _out: out,
            address: address.parse().unwrap(),
            root: format!("/{path}"),
        }
    }

    /// Requests a page below the token.
    fn get(&self, path: &str) -> Answer {
        get(self.address, &format!("{}{path}", self.root))
    }

    fn status(&self, path: &str) -> u16 {
        self.get(path).status
    }
}

fn profile(name: &str) -> Vec<u8> {
    let mut writer = Writer::new(&[("inuse_space", "bytes")]);
    writer.sample(&[name, "main"], &[600]);
    writer.finish()
}

#[test]
fn the_page_lists_the_files_in_their_order() {
    let directory = Directory::new("view-list");
    let single = directory.file("one.pb", &profile("one"));
    let inner = directory.path("profiles");
    std::fs::create_dir(&inner).unwrap();
    for name in ["b.pb.gz", "a.heap.pb", "notes.txt"] {
        std::fs::write(format!("{inner}/{name}"), profile(name)).unwrap();
    }
    let server = Server::new(&[&single, &inner]);
    let answer = server.get("");
    assert_eq!(answer.status, 200);
    let policy = answer.header("content-security-policy").unwrap();
    assert!(policy.starts_with("default-src 'none'"), "{policy}");
    assert_eq!(answer.header("referrer-policy"), Some("no-referrer"));
    assert_eq!(answer.header("cache-control"), Some("no-store"));
    let page = answer.text();
    let places: Vec<usize> = ["one.pb\"", "profiles/a.heap.pb\"", "profiles/b.pb.gz\""]
        .iter()
        .map(|title| page.find(title).unwrap())
        .collect();
    assert!(places.is_sorted(), "{page}");
    assert!(!page.contains("notes.txt"));
    for path in ["page.js", "page.css", "profiles/0", "profiles/2"] {
        assert_eq!(server.status(path), 200, "{path}");
    }
}

/// The files may be readable by one user only, and all users can connect to the port.
#[test]
fn without_the_token_no_page_is_shown() {
    let directory = Directory::new("view-token");
    let file = directory.file("one.pb", &profile("secret_function"));
    let server = Server::new(&[&file]);
    let token = server.root.trim_matches('/');
    assert!(token.len() >= 32 && token.bytes().all(|byte| byte.is_ascii_hexdigit()));
    let others = Server::new(&[&file]);
    assert_ne!(others.root, server.root);
    for path in [
        "/",
        "//",
        "/page.js",
        "/profiles/0",
        "/index.html",
        &others.root,
        &format!("/{}/", &token[..token.len() - 1]),
        &format!("/{token}x/"),
        &format!("/{}/", token.to_uppercase()),
        &format!("//{token}/"),
        &format!("/x/../{token}/"),
        &format!("/?token={token}"),
    ] {
        let answer = get(server.address, path);
        assert_eq!(answer.status, 403, "{path}");
        let text = answer.text();
        assert!(text.starts_with("Forbidden: open the address that plimsoll view printed"));
        assert!(!text.contains(token) && !text.contains("secret"), "{text}");
    }
    let answer = get(server.address, server.root.trim_end_matches('/'));
    assert_eq!(
        (answer.status, answer.header("location")),
        (302, Some(&*server.root))
    );
}

/// Requests a page as another user, if this process may do that.
fn get_as_another_user(address: SocketAddr, path: &str) -> Option<Answer> {
    const OTHER: libc::c_long = 65_534;
    std::thread::scope(|scope| {
        let request = scope.spawn(|| {
            // SAFETY: the call takes numbers, and changes the user of this thread only.
            let status = unsafe { libc::syscall(libc::SYS_setresuid, OTHER, OTHER, OTHER) };
            (status == 0).then(|| get(address, path))
        });
        request.join().unwrap()
    })
}

/// Other users see the arguments of the browser.
#[test]
fn the_address_in_the_browsers_arguments_works_for_this_user_only() {
    let directory = Directory::new("view-browser");
    let file = directory.file("one.pb", &profile("one"));
    let tools = directory.path("tools");
    std::fs::create_dir(&tools).unwrap();
    let opened = directory.path("opened");
    let script =
        format!("#!/bin/sh\nprintf %s \"$1\" > {opened}.part && mv {opened}.part {opened}\n");
    let browser = format!("{tools}/xdg-open");
    std::fs::write(&browser, script).unwrap();
    std::fs::set_permissions(&browser, std::fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("{tools}:{}", std::env::var("PATH").unwrap());
    let server = Server::start(
        Command::new(file_of_command())
            .args(["view", &file])
            .env("PATH", path)
            .env("DISPLAY", ":0"),
    );
    wait_for("the browser", || std::fs::exists(&opened).unwrap());
    let url = std::fs::read_to_string(&opened).unwrap();
    let prefix = format!("http://{}", server.address);
    let path = url.strip_prefix(&prefix).expect("the server");
    assert!(!path.contains(server.root.trim_matches('/')), "{path}");
    if let Some(answer) = get_as_another_user(server.address, path) {
        assert_eq!((answer.status, answer.header("location")), (403, None));
    } else {
        plimsoll_testkit::skip!("another user needs root");
    }
    for _ in 0..2 {
        let answer = get(server.address, path);
        let found = (answer.status, answer.header("location"));
        assert_eq!(found, (302, Some(&*server.root)));
    }
    // The path below it is not a page.
    let below = get(server.address, &format!("{path}profiles/0"));
    assert_eq!(below.status, 302);
}

#[test]
fn pages_that_do_not_exist_and_parameters_without_a_meaning_are_refused() {
    let directory = Directory::new("view-refused");
    let file = directory.file("one.pb", &profile("one"));
    let server = Server::new(&[&file]);
    for path in [
        "profiles/1",
        "profiles/-1",
        "profiles/+0",
        "profiles/0/",
        "profiles/0x0",
        "profiles/",
        "profiles/99999999999999999999999",
        "history/0",
        "growth/0",
        "/",
        "../etc/passwd",
        "profiles/..%2f..%2fetc%2fpasswd",
        "profiles/%2e%2e/",
    ] {
        assert_eq!(server.status(path), 404, "{path}");
    }
    for (query, why) in [
        ("at=yesterday", "at=yesterday is not a number"),
        ("at=NaN", "at=NaN is not a number"),
        ("at=-1", "at=-1 is not a number"),
        ("at=inf", "at=inf is not a number"),
        ("from=1", "from and to belong together"),
        ("at=1&from=1&to=2", "at excludes from and to"),
        ("at=1&at=2", "parameter \"at\": it is there twice"),
        (
            "atx=1",
            "parameter \"atx\": this page has no such parameter",
        ),
        ("at=%", "invalid escape"),
    ] {
        let answer = server.get(&format!("profiles/0?{query}"));
        assert_eq!(answer.status, 400, "{query}");
        assert!(answer.text().contains(why), "{query}: {}", answer.text());
    }
    assert_eq!(server.status("growth/0?at=1"), 400);
    assert_eq!(server.status("?at=1"), 400);
    let answer = server.get("profiles/0?at=1");
    assert_eq!(answer.status, 404);
    let why = "only a post-mortem file has a history";
    assert!(answer.text().contains(why), "{}", answer.text());
}

#[test]
fn hostile_clients_read_nothing_and_keep_out_no_other() {
    let directory = Directory::new("view-hostile");
    let file = directory.file("one.pb", &profile("one"));
    let server = Server::new(&[&file]);
    hostile::attack(server.address, &server.root, 200);
}

#[test]
fn more_silent_clients_than_the_server_holds_keep_out_no_other() {
    let directory = Directory::new("view-silent");
    let file = directory.file("one.pb", &profile("one"));
    let server = Server::new(&[&file]);
    let silent: Vec<TcpStream> = (0..300).map(|_| connect(server.address)).collect();
    assert_eq!(server.status(""), 200);
    drop(silent);
}

#[test]
fn a_bad_file_is_named() {
    let directory = Directory::new("view-bad");
    let bad = directory.file("bad.pb", b"nonsense");
    let empty = directory.path("empty");
    std::fs::create_dir(&empty).unwrap();
    for (file, cause) in [
        (bad.as_str(), ""),
        (&empty, "no post-mortem file"),
        ("/nonexistent", "no such file"),
    ] {
        let (line, code) = failure_of(&["view", "--no-open", file]);
        assert!(line.contains(file) && line.contains(cause), "{line}");
        assert_eq!(code, 1);
    }
    let good = directory.file("good.pb", &profile("good"));
    let server = Server::new(&[&good]);
    let port = server.address.port().to_string();
    let (line, code) = failure_of(&["view", "--no-open", "--port", &port, &good]);
    assert!(
        line.contains(&server.address.to_string()) && line.contains("in use"),
        "{line}"
    );
    assert_eq!(code, 1);
}
