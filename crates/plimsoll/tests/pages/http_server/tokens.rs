//! Pages for clients with a token, and at a path.

use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use plimsoll::http::{Clients, serve_to, serve_unix};
use plimsoll_testkit::child;
use plimsoll_testkit::client::{HANG, exchange};

fn status(answer: &str) -> u16 {
    answer
        .split(' ')
        .nth(1)
        .and_then(|status| status.parse().ok())
        .unwrap()
}

#[test]
fn without_the_token_every_page_is_refused() {
    let clients = Clients::new().token("s3cr3t").unwrap();
    let server = serve_to("127.0.0.1:0", clients).unwrap();
    let get = |path: &str, header: &str| {
        let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n{header}\r\n");
        exchange(server.address(), request.as_bytes()).unwrap()
    };
    for path in [
        "/metrics",
        "/debug/pprof/",
        "/debug/pprof/heap",
        "/nowhere",
        "/",
    ] {
        for header in [
            "",
            "Authorization: Bearer wrong\r\n",
            "Authorization: Basic OndyeA==\r\n",
        ] {
            let answer = get(path, header);
            assert_eq!(answer.status, 401, "{path} {header}");
            let challenge = answer.header("www-authenticate");
            assert_eq!(challenge, Some("Basic realm=\"plimsoll\""));
        }
    }
    for header in [
        "Authorization: Bearer s3cr3t\r\n",
        // `any:s3cr3t`
        "Authorization: Basic YW55OnMzY3IzdA==\r\n",
    ] {
        assert_eq!(get("/metrics", header).status, 200, "{header}");
    }
    // Other rules hold beside the token.
    let request =
        "GET /metrics HTTP/1.1\r\nHost: evil.example\r\nAuthorization: Bearer s3cr3t\r\n\r\n";
    assert_eq!(
        exchange(server.address(), request.as_bytes())
            .unwrap()
            .status,
        403
    );
}

fn at_path(path: &Path, request: &str) -> std::io::Result<String> {
    let mut stream = UnixStream::connect(path)?;
    stream.write_all(request.as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

fn socket(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("plimsoll-{name}-{}.sock", std::process::id()))
}

#[test]
fn a_path_is_a_socket_for_the_same_user() {
    let path = socket("path");
    let server = serve_unix(&path, Clients::new()).unwrap();
    assert_eq!(server.path(), path);
    let mode = std::fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    // The host means nothing.
    let request = "GET /metrics HTTP/1.1\r\nHost: any.example\r\n\r\n";
    assert_eq!(status(&at_path(&path, request).unwrap()), 200);
    let error = serve_unix(&path, Clients::new()).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::AddrInUse, "{error}");
    assert!(
        error.to_string().contains(path.to_str().unwrap()),
        "{error}"
    );
    drop(server);
    assert!(!path.exists());
}

#[test]
fn a_socket_of_an_ended_process_is_replaced_and_other_files_are_not() {
    let path = socket("abandoned");
    drop(UnixListener::bind(&path).unwrap());
    assert!(path.exists());
    let server = serve_unix(&path, Clients::new()).unwrap();
    let request = "GET /metrics HTTP/1.0\r\n\r\n";
    assert_eq!(status(&at_path(&path, request).unwrap()), 200);
    drop(server);

    std::fs::write(&path, "a file").unwrap();
    let error = serve_unix(&path, Clients::new()).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::AddrInUse, "{error}");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "a file");
    std::fs::remove_file(&path).unwrap();
    let long = format!("/tmp/{}", "x".repeat(200));
    let error = serve_unix(long, Clients::new()).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput, "{error}");
}

/// Another user can listen there first.
#[test]
fn a_socket_that_accepts_no_connection_does_not_delay_the_start() {
    let path = socket("full");
    let listener = UnixListener::bind(&path).unwrap();
    // SAFETY: the descriptor is an open, listening socket.
    assert_eq!(unsafe { libc::listen(listener.as_raw_fd(), 0) }, 0);
    // The queue has a place beside its length of 0.
    let waiting = UnixStream::connect(&path).unwrap();
    let (send, served) = std::sync::mpsc::channel();
    let at = path.clone();
    std::thread::spawn(move || send.send(serve_unix(at, Clients::new()).map(drop)));
    let error = served.recv_timeout(HANG).expect("it ends").unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::AddrInUse, "{error}");
    drop(waiting);
    std::fs::remove_file(&path).unwrap();
}

#[test]
fn settings_select_the_path_and_the_token() {
    let path = socket("settings");
    let settings = format!("http=unix:{},http_token=s3cr3t", path.display());
    child::run("settings_select_the_path_and_the_token", &settings, || {
        let settings = std::env::var("PLIMSOLL").unwrap();
        let path = settings.split([':', ',']).nth(1).unwrap();
        let plimsoll = plimsoll::start();
        assert!(plimsoll.http_address().is_none());
        let without = "GET /metrics HTTP/1.0\r\n\r\n";
        assert_eq!(status(&at_path(Path::new(path), without).unwrap()), 401);
        let with = "GET /metrics HTTP/1.0\r\nAuthorization: Bearer s3cr3t\r\n\r\n";
        assert_eq!(status(&at_path(Path::new(path), with).unwrap()), 200);
    });
}

#[test]
fn a_misspelt_setting_is_a_warning_and_no_page_is_served() {
    let output = child::stderr_of(
        "a_misspelt_setting_is_a_warning_and_no_page_is_served",
        "http=127.0.0.1:0,http_tokn=s3cr3t",
        || {
            let plimsoll = plimsoll::start();
            assert!(plimsoll.http_address().is_none());
        },
    );
    if let Some(warnings) = output {
        let lines: Vec<&str> = warnings.lines().collect();
        let warning = lines.iter().find(|line| line.contains("http_tokn"));
        let warning = warning.unwrap_or_else(|| panic!("{warnings}"));
        assert!(warning.contains("no pages are served"), "{warning}");
        assert!(!warnings.contains("s3cr3t"), "{warnings}");
    }
}

#[test]
fn an_unusable_token_is_a_warning_without_the_token_and_no_page_is_served() {
    let output = child::stderr_of(
        "an_unusable_token_is_a_warning_without_the_token_and_no_page_is_served",
        "http=127.0.0.1:0,http_token=not usable",
        || {
            let plimsoll = plimsoll::start();
            assert!(plimsoll.http_address().is_none());
        },
    );
    if let Some(warnings) = output {
        assert!(warnings.contains("http_token"), "{warnings}");
        assert!(!warnings.contains("not usable"), "{warnings}");
    }
}
