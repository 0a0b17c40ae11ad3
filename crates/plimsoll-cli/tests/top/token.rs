//! The token of `plimsoll top` and the servers that get it.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::process::Command;
use std::thread;

/// Runs `plimsoll top --once` with a token in its environment. Returns its exit code and its complaint.
pub fn top_with_token(program: &str) -> (Option<i32>, String) {
    let given = std::env::var_os("PLIMSOLL_TEST_COMMAND");
    let file = given.unwrap_or_else(|| env!("CARGO_BIN_EXE_plimsoll").into());
    let mut command = Command::new(file);
    command.args(["top", program, "--once", "--interval", "0.1"]);
    let output = command.env("PLIMSOLL_TOKEN", "s3cr3t").output();
    let output = output.expect("it can be run");
    let complained = String::from_utf8(output.stderr).expect("text");
    (output.status.code(), complained)
}

/// Any process may be the one behind a port: for example, one that another user started.
#[test]
fn the_token_is_sent_to_a_named_address_and_not_to_a_port_that_was_found() {
    const REFUSAL: &str =
        "Unauthorized: send the token of the setting http_token, as bearer token or password\n";
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("bound");
    let (send, heads) = std::sync::mpsc::channel();
    let serving = thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.expect("a client");
            let lines = BufReader::new(&stream).lines().map_while(Result::ok);
            let head: Vec<String> = lines.take_while(|line| !line.is_empty()).collect();
            let answer = format!(
                "HTTP/1.1 401 Unauthorized\r\nContent-Length: {}\r\n\r\n{REFUSAL}",
                REFUSAL.len()
            );
            let _ = stream.write_all(answer.as_bytes());
            if send.send(head.join("\n").to_lowercase()).is_err() {
                return;
            }
        }
    });
    let (code, complained) = top_with_token(&std::process::id().to_string());
    assert_eq!(code, Some(1), "{complained}");
    let says = format!(
        "its pages at {address} require a token, which is sent only to an address that you name: \
         PLIMSOLL_TOKEN=TOKEN plimsoll top {address}\n"
    );
    assert!(complained.ends_with(&says), "{complained}");
    let found: Vec<String> = heads.try_iter().collect();
    assert!(!found.is_empty());
    assert!(
        found.iter().all(|head| !head.contains("s3cr3t")),
        "{found:?}"
    );
    let (code, complained) = top_with_token(&address.to_string());
    assert_eq!(code, Some(1), "{complained}");
    assert!(complained.contains("status 401"), "{complained}");
    let named: Vec<String> = heads.try_iter().collect();
    assert!(
        named[0].contains("authorization: bearer s3cr3t"),
        "{named:?}"
    );
    drop(heads);
    drop(std::net::TcpStream::connect(address));
    serving.join().expect("it ends");
}
