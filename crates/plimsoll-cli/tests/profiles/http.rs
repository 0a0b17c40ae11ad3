//! Profiles from pages of running programs.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::command::{Directory, failure_of, file_of_command, stdout_of};
use crate::proto::{Writer, gzip};
use plimsoll_command::http::{Server, get, get_with_progress, profile_url};

/// Serves one response after the other. The thread returns the requests.
fn server(answers: Vec<Vec<u8>>) -> (String, JoinHandle<Vec<String>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let thread = thread::spawn(move || {
        let mut asked = Vec::new();
        for answer in answers {
            let (mut stream, _) = listener.accept().unwrap();
            let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
            asked.push(lines.next().unwrap().unwrap());
            while !lines.next().unwrap().unwrap().is_empty() {}
            // The client may have closed its end.
            let _ = stream.write_all(&answer);
        }
        asked
    });
    (address, thread)
}

fn profile() -> Vec<u8> {
    let mut writer = Writer::new(&[("inuse_space", "bytes")]);
    writer.sample(&["leaf", "main"], &[777]);
    gzip(&writer.finish())
}

fn answer(head: &str, body: &[u8]) -> Vec<u8> {
    [format!("HTTP/1.1 {head}\r\n\r\n").as_bytes(), body].concat()
}

const TIMEOUT: Duration = Duration::from_secs(60);

#[test]
fn a_host_and_port_mean_its_memory_profile() {
    let body = profile();
    let whole = answer(&format!("200 OK\r\nContent-Length: {}", body.len()), &body);
    let (address, server) = server(vec![whole.clone(), whole.clone(), whole.clone(), whole]);
    for name in [
        address.clone(),
        format!("http://{address}"),
        format!("http://{address}/"),
        format!("http://{address}/debug/pprof/mutex?seconds=1"),
    ] {
        assert!(stdout_of(&["report", &name]).contains("777B total"));
    }
    let memory = "GET /debug/pprof/memory HTTP/1.1";
    let mutex = "GET /debug/pprof/mutex?seconds=1 HTTP/1.1";
    assert_eq!(server.join().unwrap(), [memory, memory, memory, mutex]);
}

#[test]
fn a_host_and_port_mean_its_heap_profile_where_a_report_needs_it() {
    let body = profile();
    let whole = answer(&format!("200 OK\r\nContent-Length: {}", body.len()), &body);
    let absent = answer("404 Not Found\r\nContent-Length: 0", b"");
    let (address, server) = server(vec![absent, whole.clone(), whole.clone(), whole]);
    // Another program has no memory profile.
    assert!(stdout_of(&["report", &address]).contains("777B total"));
    assert!(stdout_of(&["report", &address, "-t", "inuse_space"]).contains("777B total"));
    let files = Directory::new("http-default");
    let base = files.file("base.pb.gz", &body);
    stdout_of(&["diff", &base, &address]);
    let memory = "GET /debug/pprof/memory HTTP/1.1";
    let heap = "GET /debug/pprof/heap HTTP/1.1";
    assert_eq!(server.join().unwrap(), [memory, heap, heap, heap]);
}

#[test]
fn names_of_files_are_no_hosts() {
    for name in [
        "heap.pb.gz",
        "/tmp/heap:1234x",
        "./a:80",
        "a b:80",
        "C:\\heap",
        "x:99999",
        "-",
    ] {
        assert_eq!(profile_url(name, "heap"), None, "{name}");
    }
    let heap = |host: &str| Some(format!("http://{host}/debug/pprof/heap"));
    assert_eq!(profile_url(":6060", "heap"), heap("127.0.0.1:6060"));
    assert_eq!(profile_url("[::1]:6060", "heap"), heap("[::1]:6060"));
    assert_eq!(
        profile_url("host:80/x?y", "heap"),
        Some("http://host:80/x?y".to_owned())
    );
}

#[test]
fn answers_come_in_chunks_compressed_and_from_elsewhere() {
    let chunked = b"5\r\nhello\r\n7;x=y\r\n, world\r\n0\r\n\r\n";
    let (address, server) = server(vec![
        answer("200 OK\r\nTransfer-Encoding: chunked", chunked),
        answer("200 OK\r\nContent-Encoding: gzip", &gzip(b"hello, world")),
        answer("302 Found\r\nLocation: /there", b""),
        answer("200 OK", b"hello, world"),
    ]);
    for _ in 0..3 {
        let page = get(Server::Named, &format!("http://{address}/here"), TIMEOUT).unwrap();
        assert_eq!(String::from_utf8(page).unwrap(), "hello, world");
    }
    assert_eq!(server.join().unwrap()[3], "GET /there HTTP/1.1");
}

#[test]
fn an_invalid_answer_is_refused_in_one_line() {
    let long = [&b"HTTP/1.1 200 OK\r\nX: "[..], &vec![b'x'; 100_000]].concat();
    let many = format!("HTTP/1.1 200 OK\r\n{}\r\n", "A: b\r\n".repeat(1000));
    let cases = [
        (
            answer("404 Not Found", b"unknown profile\nx"),
            "the response has status 404: unknown profile",
        ),
        (answer("500 Oh", b"<html>"), "the response has status 500"),
        (
            answer("200 OK\r\nContent-Length: 100", b"short"),
            "the response is truncated",
        ),
        (
            answer("200 OK\r\nContent-Length: -1", b""),
            "content-length header not a number",
        ),
        (
            answer("200 OK\r\nContent-Length: 99999999999", b""),
            "longer than 1024 MiB",
        ),
        (
            answer("200 OK\r\nTransfer-Encoding: chunked", b"zz\r\n"),
            "chunk length cannot be read as a number",
        ),
        (
            answer("200 OK\r\nTransfer-Encoding: chunked", b"5\r\nhe"),
            "the response is truncated",
        ),
        (
            answer(
                "200 OK\r\nTransfer-Encoding: chunked",
                b"ffffffffffffffff\r\n",
            ),
            "the response is truncated",
        ),
        (
            b"SSH-2.0-OpenSSH_9\r\n".to_vec(),
            "the response is not HTTP",
        ),
        (Vec::new(), "the response is truncated"),
        (long, "the response header is too long"),
        (many.into_bytes(), "too many headers"),
        (
            answer("302 Found\r\nLocation: https://x/", b""),
            "https is not supported",
        ),
        (
            answer(
                "200 OK\r\nContent-Encoding: gzip",
                b"this is not compressed by gzip",
            ),
            "invalid gzip header",
        ),
        (answer("200 OK", b"hello"), "not a profile"),
    ];
    for (bytes, why) in cases {
        let (address, server) = server(vec![bytes]);
        let page = format!("http://{address}/debug/pprof/heap");
        let (line, code) = failure_of(&["report", &page]);
        assert!(code == 1 && line.contains(why), "{why}: {line}");
        server.join().unwrap();
    }
}

#[test]
fn a_circle_of_answers_and_silence_end() {
    let moved = answer("301 Moved\r\nLocation: /again", b"");
    let (address, server) = server(vec![moved; 6]);
    let error = get(Server::Named, &format!("http://{address}/"), TIMEOUT).unwrap_err();
    assert!(error.to_string().contains("too many redirects"), "{error}");
    server.join().unwrap();

    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let error = get(Server::Named, &url, Duration::from_millis(50)).unwrap_err();
    assert!(error.to_string().contains("no response arrived"), "{error}");
}

/// Serves a beginning, and then the same piece again and again.
fn dripping(beginning: &'static str, piece: &'static str) -> (String, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let thread = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut written = stream.write_all(beginning.as_bytes());
        while written.is_ok() {
            thread::sleep(Duration::from_millis(5));
            written = stream.write_all(piece.as_bytes());
        }
    });
    (url, thread)
}

#[test]
fn an_answer_that_drips_is_given_up_in_time() {
    for (beginning, piece) in [
        ("", "HTTP/1.1 100 Continue\r\n\r\n"),
        ("HTTP/1.1 200 OK\r\nX: ", "x"),
        ("HTTP/1.1 200 OK\r\n\r\n", "x"),
        ("HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n", "x"),
        (
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
            "1\r\nx\r\n",
        ),
    ] {
        let (url, server) = dripping(beginning, piece);
        let error = get(Server::Named, &url, Duration::from_millis(300)).unwrap_err();
        let says = error.to_string();
        let expected = match beginning.ends_with("\r\n\r\n") {
            true => "the response is incomplete after 3",
            false => "no response arrived within 3",
        };
        assert!(says.contains(expected), "{beginning:?}: {says}");
        server.join().unwrap();
    }
}

#[test]
fn progress_is_reported_while_bytes_arrive() {
    let body = vec![b'x'; 3_000_000];
    let (address, server) = server(vec![answer("200 OK", &body)]);
    let mut received = Vec::new();
    let page = get_with_progress(
        Server::Named,
        &format!("http://{address}/"),
        TIMEOUT,
        |bytes| received.push(bytes),
    );
    assert_eq!(page.unwrap(), body);
    server.join().unwrap();
    assert!(received.is_sorted());
    assert_eq!(received.last(), Some(&3_000_000));
}

/// Serves a redirect to `elsewhere`, and returns the heads of all requests.
fn redirecting_server(elsewhere: String) -> (String, JoinHandle<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let thread = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let head = head_of(&stream);
        let location = format!("302 Found\r\nContent-Length: 0\r\nLocation: {elsewhere}");
        stream.write_all(&answer(&location, b"")).unwrap();
        head
    });
    (address, thread)
}

fn head_of(stream: &std::net::TcpStream) -> String {
    let lines = BufReader::new(stream).lines();
    let lines = lines.map(|line| line.unwrap());
    let lines: Vec<String> = lines.take_while(|line| !line.is_empty()).collect();
    lines.join("\n").to_lowercase()
}

#[test]
fn the_token_is_sent_to_the_given_host_only() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let other = listener.local_addr().unwrap();
    let other_head = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let head = head_of(&stream);
        let body = profile();
        let whole = answer(&format!("200 OK\r\nContent-Length: {}", body.len()), &body);
        stream.write_all(&whole).unwrap();
        head
    });
    let (address, head) = redirecting_server(format!("http://{other}/profile"));
    let output = std::process::Command::new(file_of_command())
        .args(["report", &format!("http://{address}/profile")])
        .env("PLIMSOLL_TOKEN", "s3cr3t")
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    assert!(
        head.join()
            .unwrap()
            .contains("authorization: bearer s3cr3t")
    );
    let other_head = other_head.join().unwrap();
    assert!(!other_head.contains("authorization"), "{other_head}");
}

/// Serves one answer after the other. The thread returns the heads of the requests.
fn heads_of(listener: TcpListener, answers: Vec<String>) -> JoinHandle<Vec<String>> {
    thread::spawn(move || {
        // Each connection has one answer. It stays open: the client closes it.
        let mut open = Vec::new();
        let serve = |head: String| {
            let (mut stream, _) = listener.accept().unwrap();
            let asked = head_of(&stream);
            stream.write_all(&answer(&head, b"")).unwrap();
            open.push(stream);
            asked
        };
        answers.into_iter().map(serve).collect()
    })
}

/// The other server chooses the address to which it redirects.
#[test]
fn a_token_that_left_its_server_is_not_sent_again() {
    let [first, second] = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    let [one, two] = [&first, &second].map(|listener| listener.local_addr().unwrap());
    let moved = |to: String| format!("302 Found\r\nContent-Length: 0\r\nLocation: {to}");
    let first = heads_of(
        first,
        vec![
            moved("/same".to_owned()),
            moved(format!("http://{two}/other")),
            "401 Unauthorized\r\nContent-Length: 0".to_owned(),
        ],
    );
    let second = heads_of(second, vec![moved(format!("http://{one}/back"))]);
    let output = std::process::Command::new(file_of_command())
        .args(["report", &format!("http://{one}/profile")])
        .env("PLIMSOLL_TOKEN", "s3cr3t")
        .output()
        .unwrap();
    let complained = String::from_utf8(output.stderr).unwrap();
    let says = format!("it redirects to http://{one}/back, which requires a token");
    assert!(complained.contains(&says), "{complained}");
    let has_token = |heads: Vec<String>| -> Vec<bool> {
        let has = |head: &String| head.contains("authorization: bearer s3cr3t");
        heads.iter().map(has).collect()
    };
    assert_eq!(has_token(first.join().unwrap()), [true, true, false]);
    assert_eq!(has_token(second.join().unwrap()), [false]);
}

#[test]
fn the_token_can_be_in_a_file_and_an_unusable_one_is_not_sent() {
    let files = Directory::new("http-token");
    let file = files.file("token", b"s3cr3t\n");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let url = format!("http://{address}/profile");
    let report = |token: &str| {
        let mut command = std::process::Command::new(file_of_command());
        command.args(["report", &url]).env("PLIMSOLL_TOKEN", token);
        String::from_utf8(command.output().unwrap().stderr).unwrap()
    };
    for (token, why) in [
        ("two words", "PLIMSOLL_TOKEN: a token has one or more"),
        ("file:/nowhere", "PLIMSOLL_TOKEN: the file /nowhere: "),
        (&file, "PLIMSOLL_TOKEN: a token that looks like a path"),
    ] {
        let complained = report(token);
        assert!(complained.contains(why), "{complained}");
        assert_eq!(complained.lines().count(), 1, "{complained}");
    }
    // No request has arrived so far.
    let head = heads_of(
        listener,
        vec!["404 Not Found\r\nContent-Length: 0".to_owned()],
    );
    report(&format!("file:{file}"));
    let head = head.join().unwrap();
    assert!(head[0].contains("authorization: bearer s3cr3t"), "{head:?}");
}

const GROWTH: &str = r#"{"version":1,"readings":128,"readings_needed":64,"observed":1280.5,"bytes_per_second":5000.0,
"seconds_to_limit":7300.0,"total":2,"sites":[
{"verdict":"leaking","bytes":4000000,"bytes_per_second":5000.0,"error":12.5,"chance":3.2e-9,"window":320.0,"mallocs":5000,"frees":0,
"lifetime":null,"course":[[1.0,2]],"stack":[{"function":"alloc::vec::Vec<T,A>::push","file":"","line":0},
{"function":"app::session::remember","file":"src/session.rs","line":42},{"function":"app::main","file":"","line":0}]},
{"verdict":"unsteady","bytes":1024,"bytes_per_second":-1.0,"error":0.5,"chance":1e-5,"window":320.0,"mallocs":1,"frees":1,
"lifetime":0.25,"course":[],"stack":[{"function":"app::\u001b[31mred","file":"","line":0}]}]}"#;

fn growth(body: &str) -> Vec<u8> {
    let head = format!("200 OK\r\nContent-Length: {}", body.len());
    answer(&head, body.as_bytes())
}

#[test]
fn the_growth_of_a_program_lists_its_leaks() {
    let (address, server) = server(vec![growth(GROWTH), growth(GROWTH)]);
    let text = stdout_of(&["report", &address, "--growth"]);
    assert_eq!(
        text,
        "1 of 2 sites leak: +292.97kB a minute; the memory limit is reached in 2h (128 readings in 21min)
    a minute        error     in use  lifetime  observed  verdict         site
   +292.97kB         750B     3.81MB  no frees      5min  leaking         app::session::remember < app::main
        -60B          30B        1kB     250ms      5min  unsteady        app::\\u{1b}[31mred
"
    );
    let json = stdout_of(&["report", &address, "--growth", "--json"]);
    assert_eq!(json, GROWTH);
    let page = "GET /debug/plimsoll/growth HTTP/1.1";
    assert_eq!(server.join().unwrap(), [page, page]);
}

#[test]
fn growth_without_verdicts_or_without_a_program_is_said() {
    let early = GROWTH.replace("\"readings\":128", "\"readings\":12");
    let later = GROWTH.replace("\"version\":1", "\"version\":2");
    let off = answer("404 Not Found\r\nContent-Length: 4", b"off\n");
    let (address, server) = server(vec![growth(&early), growth(&later), growth("{}"), off]);
    let report = ["report", &address, "--growth"];
    let text = stdout_of(&report);
    assert_eq!(
        text,
        "12 readings in 21min; verdicts need 64, in about 101min\n"
    );
    assert!(
        failure_of(&report)
            .0
            .contains("version 2 of the page is unknown")
    );
    assert!(
        failure_of(&report)
            .0
            .contains("not a page of growth: missing field")
    );
    assert!(failure_of(&report).0.contains("404"));
    assert_eq!(server.join().unwrap().len(), 4);
    let (failure, status) = failure_of(&["report", "heap.pb.gz", "--growth"]);
    assert_eq!(status, 2);
    assert!(
        failure.contains("heap.pb.gz is neither a running program"),
        "{failure}"
    );
}
