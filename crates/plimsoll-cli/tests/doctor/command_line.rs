//! The command `plimsoll doctor`, as people and programs use it.

use std::ffi::{CString, OsStr};
use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::programs::{PLAIN, compile, directory, file};
use serde_json::Value;

fn doctor() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
    command.arg("doctor").env_remove("GLIBC_TUNABLES");
    command
}

/// Returns the output and exit status. After 60 seconds, kills the command and fails the test.
fn output(command: &mut Command) -> Output {
    let child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let id = child.id() as i32;
    let (done, is_done) = std::sync::mpsc::channel::<()>();
    let watch = thread::spawn(move || {
        let timed_out = is_done.recv_timeout(Duration::from_secs(60));
        if matches!(timed_out, Err(std::sync::mpsc::RecvTimeoutError::Timeout)) {
            // SAFETY: `kill` takes no pointers. The id is the child's until `wait_with_output`
            // returns.
            unsafe { libc::kill(id, libc::SIGKILL) };
        }
    });
    let output = child.wait_with_output().unwrap();
    drop(done);
    watch.join().unwrap();
    assert!(output.status.code().is_some(), "it hung: {output:?}");
    output
}

fn stdout(output: &Output) -> &str {
    std::str::from_utf8(&output.stdout).unwrap()
}

/// Returns the findings of all sections as JSON, and asserts that the exit code agrees.
fn findings(command: &mut Command) -> Vec<Value> {
    let output = output(command.arg("--json"));
    let json: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {output:?}"));
    let sections = json["sections"].as_array().unwrap();
    let findings: Vec<Value> = sections
        .iter()
        .flat_map(|section| section["findings"].as_array().unwrap().clone())
        .collect();
    let bad = findings.iter().any(|finding| finding["level"] == "bad");
    assert_eq!(json["works"], !bad);
    assert_eq!(output.status.code(), Some(bad.into()));
    findings
}

fn level<'a>(findings: &'a [Value], subject: &str) -> &'a str {
    one(findings, subject)["level"].as_str().unwrap()
}

fn says<'a>(findings: &'a [Value], subject: &str) -> &'a str {
    one(findings, subject)["says"].as_str().unwrap()
}

fn one<'a>(findings: &'a [Value], subject: &str) -> &'a Value {
    let found = findings
        .iter()
        .find(|finding| finding["subject"] == subject);
    found.unwrap_or_else(|| panic!("{subject}: {findings:#?}"))
}

/// Asserts a failure with exactly one line on standard error; returns the exit code and the line.
fn failure(subject: &OsStr) -> (Option<i32>, String) {
    let output = output(doctor().arg(subject));
    let says = String::from_utf8(output.stderr.clone()).unwrap();
    assert!(output.stdout.is_empty(), "{output:?}");
    assert!(
        says.starts_with("plimsoll: ") && says.ends_with('\n'),
        "{says}"
    );
    assert_eq!(says.lines().count(), 1, "{says}");
    assert!(!says.trim_end().contains(char::is_control), "{says:?}");
    (output.status.code(), says)
}

/// A child that is killed on drop.
struct Running(Child);

impl Running {
    fn start(command: &mut Command) -> Self {
        Self(
            command
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
                .unwrap(),
        )
    }

    /// Waits for the first byte of output: the child has started by then.
    fn wait(mut self) -> Self {
        let mut byte = [0];
        self.0
            .stdout
            .as_mut()
            .unwrap()
            .read_exact(&mut byte)
            .unwrap();
        self
    }

    fn findings(&self) -> Vec<Value> {
        findings(doctor().arg(self.0.id().to_string()))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn text_and_json_agree() {
    let findings = findings(&mut doctor());
    let output = output(&mut doctor());
    let text = stdout(&output);
    assert!(text.starts_with("this machine\n"));
    let lines: Vec<&str> = text.lines().filter(|line| line.starts_with("  ")).collect();
    assert_eq!(lines.len(), findings.len());
    for (line, finding) in lines.iter().zip(&findings) {
        let words: Vec<&str> = line.split_whitespace().collect();
        assert_eq!(finding["level"], words[0]);
        assert!(["ok", "note", "bad"].contains(&words[0]));
        assert!(line.contains(finding["subject"].as_str().unwrap()));
        assert!(line.contains(finding["says"].as_str().unwrap()));
        let what_to_do = finding["what_to_do"].as_str().unwrap();
        let (_, shown) = line.split_once(" -> ").unwrap_or_default();
        assert_eq!(shown, what_to_do);
    }
    let bad = findings.iter().any(|finding| finding["level"] == "bad");
    let last = text.lines().last().unwrap();
    assert_eq!(
        last.starts_with("all required checks passed"),
        !bad,
        "{last}"
    );
    assert!(!text.contains('\x1b'), "the output is not a terminal");
}

#[test]
fn sequences_that_are_switched_off_are_noticed() {
    let before = findings(&mut doctor());
    if level(&before, "rseq") != "ok" {
        plimsoll_testkit::skip!("not available on this machine");
        return;
    }
    let after = findings(doctor().env("GLIBC_TUNABLES", "glibc.pthread.rseq=0"));
    assert_eq!(level(&after, "rseq"), "note");
}

#[test]
fn limits_are_noticed() {
    let mut command = doctor();
    let limit = libc::rlimit {
        rlim_cur: 3 << 30,
        rlim_max: 3 << 30,
    };
    // SAFETY: the closure makes one system call, with a struct that it owns.
    unsafe {
        command.pre_exec(
            move || match libc::setrlimit(libc::RLIMIT_AS, &raw const limit) {
                0 => Ok(()),
                _ => Err(std::io::Error::last_os_error()),
            },
        );
    }
    let findings = findings(&mut command);
    assert_eq!(level(&findings, "address space"), "note");
    assert!(says(&findings, "address space").contains("limited to 3 GiB"));
}

/// Makes these system calls fail with ENOSYS in this process, as a container's filter does.
fn forbid(calls: &[i64]) -> std::io::Result<()> {
    const LOAD_NUMBER: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
    const EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
    const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;
    let step = |code, jt, k| libc::sock_filter { code, jt, jf: 0, k };
    let mut filter = [step(RETURN, 0, libc::SECCOMP_RET_ALLOW); 16];
    filter[0] = step(LOAD_NUMBER, 0, 0);
    let count = calls.len();
    for (at, &call) in calls.iter().enumerate() {
        // Jumps to the last step, which follows the one that allows.
        filter[1 + at] = step(EQUAL, (count - at) as u8, call as u32);
    }
    filter[2 + count] = step(RETURN, 0, libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32);
    let program = libc::sock_fprog {
        len: (3 + count) as u16,
        filter: filter.as_mut_ptr(),
    };
    // SAFETY: the filter outlives the call that copies it, and `len` is its length.
    let done = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
            && libc::prctl(
                libc::PR_SET_SECCOMP,
                libc::SECCOMP_MODE_FILTER,
                &raw const program,
            ) == 0
    };
    match done {
        true => Ok(()),
        false => Err(std::io::Error::last_os_error()),
    }
}

#[test]
fn filters_of_system_calls_are_noticed() {
    let mut command = doctor();
    // SAFETY: the closure only makes system calls and does not allocate.
    unsafe {
        command.pre_exec(|| forbid(&[libc::SYS_membarrier, libc::SYS_process_vm_readv]));
    }
    let found = findings(&mut command);
    assert_eq!(level(&found, "membarrier"), "bad");
    assert!(says(&found, "membarrier").starts_with("refused"));
    assert!(
        says(&found, "own memory").contains("/proc/self/mem"),
        "{found:#?}"
    );
    assert!(says(&found, "seccomp").contains("filtered;"));

    let mut command = doctor();
    // SAFETY: the closure only makes system calls and does not allocate.
    unsafe { command.pre_exec(|| forbid(&[libc::SYS_rseq])) };
    let found = findings(&mut command);
    assert_ne!(level(&found, "rseq"), "ok");
}

#[test]
fn programs_are_examined() {
    let place = directory("doctor-programs");
    let plain = compile(&place, "plain", PLAIN, &["-g"]).unwrap();
    let found = findings(doctor().arg(&plain));
    assert_eq!(level(&found, "plimsoll run"), "ok");
    assert_eq!(says(&found, "lines"), "full debug information");
    assert_eq!(
        level(&found, "membarrier"),
        level(&findings(&mut doctor()), "membarrier")
    );
    if let Some(program) = compile(&place, "static", PLAIN, &["-static"]) {
        let found = findings(doctor().arg(program));
        assert_eq!(level(&found, "plimsoll run"), "bad");
        assert!(says(&found, "plimsoll run").contains("statically linked"));
    }
    // The program is found by name in PATH.
    let found = findings(doctor().arg("plain").env("PATH", &place));
    assert_eq!(says(&found, "file"), plain.to_str().unwrap());
}

#[test]
fn a_wrapper_script_is_examined_for_the_program_that_it_executes() {
    let place = directory("doctor-wrapper");
    let Some(static_program) = compile(&place, "static", PLAIN, &["-static"]) else {
        return;
    };
    let script = |name: &str, text: String| file(&place, name, text.as_bytes(), 0o755);
    let target = static_program.display();
    let wrapper = script(
        "wrapper",
        format!("#!/bin/sh\nexec 3>&1\nA=1 exec=2\nexec {target} \"$@\"\n"),
    );
    let found = findings(doctor().arg(&wrapper));
    assert!(says(&found, "file").starts_with(static_program.to_str().unwrap()));
    assert!(says(&found, "file").contains(&format!("which {} executes", wrapper.display())));
    assert!(says(&found, "plimsoll run").contains("statically linked"));
    // If the executed program is unknown, a finding says so.
    for text in [
        "exec \"$0.real\"\n",
        "/bin/true\n",
        "exec /no/such/program\n",
    ] {
        let unclear = script("unclear", format!("#!/bin/sh\n{text}"));
        let found = findings(doctor().arg(&unclear));
        assert_eq!(level(&found, "script"), "note", "{text}");
        assert!(says(&found, "script").contains("about the shell"), "{text}");
    }
}

#[test]
fn an_absent_program_is_reported_in_one_line_with_the_shells_status() {
    let place = directory("doctor-failures");
    let text = file(&place, "text", b"#!/bin/sh\n", 0o644);
    let pipe = place.join("pipe");
    let name = CString::new(pipe.as_os_str().as_bytes()).unwrap();
    // SAFETY: the path ends with NUL.
    let made = unsafe { libc::mkfifo(name.as_ptr(), 0o777) };
    assert_eq!(made, 0);
    for (subject, code) in [
        (OsStr::new("no-such-program"), 127),
        (OsStr::new("/no/such/program"), 127),
        (OsStr::new(""), 127),
        (OsStr::new("/tmp"), 126),
        (text.as_os_str(), 126),
        (pipe.as_os_str(), 126),
        (OsStr::from_bytes(b"/\xff\x1b[31m\n/x"), 127),
        (OsStr::new("999999999"), 1),
        (OsStr::new("https://127.0.0.1/"), 1),
        (OsStr::new("http://127.0.0.1:1/"), 1),
        (OsStr::new("http://\x1b[31m/"), 1),
    ] {
        let (status, says) = failure(subject);
        assert_eq!(status, Some(code), "{says}");
    }
    let mistaken = output(doctor().arg("--no-such-option"));
    assert_eq!(mistaken.status.code(), Some(2));
}

#[test]
fn names_are_shown_without_control_characters() {
    let place = directory("doctor-names");
    let plain = compile(&place, "plain", PLAIN, &[]).unwrap();
    let odd = place.join(OsStr::from_bytes(b"a\x1b[31mb\nc\xff"));
    fs::copy(&plain, &odd).unwrap();
    let shown = output(doctor().arg(&odd));
    let text = stdout(&shown);
    assert!(text.contains("a\\u{1b}[31mb\\u{a}c"), "{text}");
    assert!(!text.contains('\x1b'));
    let found = findings(doctor().arg(&odd));
    assert!(
        says(&found, "file").contains("a\x1b[31mb\nc"),
        "JSON uses its own escapes"
    );
}

#[test]
fn a_reader_may_close_early() {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let output = doctor()
        .stdout(writer)
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let output = output.wait_with_output().unwrap();
    assert!(output.status.code().is_some(), "{output:?}");
    assert!(
        output.stderr.is_empty(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

#[test]
fn processes_are_examined() {
    let place = directory("doctor-processes");
    let source = r#"
        #include <signal.h>
        #include <unistd.h>
        static void handler(int signal) {}
        int main(void) {
            signal(SIGRTMAX, handler); signal(SIGRTMAX - 1, handler); signal(SIGRTMIN, SIG_IGN);
            write(1, "x", 1);
            for (;;) pause();
        }
    "#;
    let program = compile(&place, "program", source, &[]).unwrap();
    let library = compile(&place, "libtcmalloc.so.4", "int x;", &["-shared", "-fPIC"]).unwrap();
    let running = Running::start(
        Command::new(&program)
            .env("PLIMSOLL", "heap_rate=1,heaprate=2")
            .env("LD_PRELOAD", &library),
    )
    .wait();
    let found = running.findings();
    assert_eq!(level(&found, "plimsoll"), "bad");
    assert_eq!(says(&found, "LD_PRELOAD"), library.to_str().unwrap());
    assert_eq!(level(&found, "PLIMSOLL"), "note");
    assert!(says(&found, "PLIMSOLL").contains("`heaprate`"));
    let signals = says(&found, "signal");
    let last = libc::SIGRTMAX();
    assert!(
        signals.contains(&format!("handlers: {}, {last};", last - 1)),
        "{signals}"
    );
    assert!(signals.ends_with(&format!("is {}", last - 2)), "{signals}");
    let mut allocators = found
        .iter()
        .filter(|finding| finding["subject"] == "allocator");
    let is_library = |finding: &Value| {
        finding["says"]
            .as_str()
            .unwrap()
            .starts_with("tcmalloc, of /")
    };
    assert!(allocators.any(is_library), "{found:#?}");
    assert_eq!(says(&found, "file"), program.to_str().unwrap());

    // The file of the running program is deleted.
    fs::remove_file(&program).unwrap();
    let found = running.findings();
    assert_eq!(level(&found, "file"), "note");
    assert_eq!(
        level(&found, "unwind tables"),
        "ok",
        "the process can still be examined"
    );
}

#[test]
fn a_library_of_plimsoll_is_seen_in_a_process() {
    let place = directory("doctor-preloaded");
    let source = "#include <unistd.h>\nint main(void) { write(1, \"x\", 1); for (;;) pause(); }";
    let program = compile(&place, "program", source, &[]).unwrap();
    let library = compile(
        &place,
        "libplimsoll_preload.so",
        "int x;",
        &["-shared", "-fPIC"],
    );
    let mut command = Command::new(&program);
    command.env("LD_PRELOAD", library.unwrap());
    // No server listens on this port.
    command.env("PLIMSOLL", "http=1");
    let found = Running::start(&mut command).wait().findings();
    assert_eq!(level(&found, "plimsoll"), "ok");
    assert_eq!(level(&found, "pages"), "bad");
}

#[test]
fn an_ended_process_is_reported_as_ended() {
    let mut running = Running::start(&mut Command::new("/bin/true"));
    let status = format!("/proc/{}/status", running.0.id());
    let started = Instant::now();
    while !fs::read_to_string(&status).unwrap().contains("State:\tZ") {
        assert!(started.elapsed() < Duration::from_secs(60));
        thread::yield_now();
    }
    let found = running.findings();
    assert_eq!(level(&found, "state"), "bad");
    running.0.wait().unwrap();
}

/// Starts a server that passes each request to `answer`, which may use the connection freely.
fn serve(answer: impl Fn(&str, &mut TcpStream) + Send + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { continue };
            let mut request = Vec::new();
            let mut byte = [0];
            while !request.ends_with(b"\r\n\r\n") && stream.read(&mut byte).is_ok_and(|n| n == 1) {
                request.push(byte[0]);
            }
            let request = String::from_utf8_lossy(&request).into_owned();
            answer(request.split(' ').nth(1).unwrap_or(""), &mut stream);
        }
    });
    address
}

fn answer(stream: &mut TcpStream, status: &str, body: &str) {
    let length = body.len();
    let _ = write!(
        stream,
        "HTTP/1.1 {status}\r\nContent-Length: {length}\r\n\r\n{body}"
    );
}

const INDEX: &str = "<tr><td>15</td><td><a href='heap?debug=1'>heap</a></td></tr>";

#[test]
fn pages_are_examined() {
    let metrics = "# HELP x\nplimsoll_gc_heap_allocs_objects_total 12\n\
        plimsoll_heap_sample_rate_bytes 0\nplimsoll_sync_waits_total 0\n\
        plimsoll_threads 3\nplimsoll_tasks 1\n\
        plimsoll_lost_table_full_events_total 7\nplimsoll_self_cpu_seconds_total 0.25\n";
    let address = serve(move |path, stream| match path {
        "/debug/pprof/" => answer(stream, "200 OK", INDEX),
        "/metrics" => answer(stream, "200 OK", metrics),
        _ => answer(stream, "404 Not Found", ""),
    });
    for subject in [
        address.to_string(),
        format!("http://{address}"),
        format!("http://{address}/debug/pprof/heap?debug=1"),
        format!("{address}/metrics"),
    ] {
        let found = findings(doctor().arg(&subject));
        assert_eq!(says(&found, "profiles"), "heap (15)");
        assert_eq!(says(&found, "heap"), "12 allocations were counted");
        assert_eq!(level(&found, "heap profile"), "note");
        assert_eq!(level(&found, "block, mutex"), "note");
        assert_eq!(
            says(&found, "threads"),
            "3 of the program, and 1 tracked tasks"
        );
        assert!(says(&found, "lost").starts_with("7 events have no stack"));
        assert!(says(&found, "plimsoll").contains("0.250 s"));
    }
}

#[test]
fn pages_of_other_servers_are_recognised() {
    let address = serve(|path, stream| match path {
        "/debug/pprof/" => answer(stream, "200 OK", INDEX),
        _ => answer(stream, "404 Not Found", "404 page not found\n"),
    });
    let found = findings(doctor().arg(address.to_string()));
    assert_eq!(level(&found, "profiles"), "ok");
    assert_eq!(
        says(&found, "metrics"),
        "/metrics returns status 404: the enabled profiles are unknown"
    );
    let address = serve(|_, stream| answer(stream, "200 OK", "go_goroutines 7\n"));
    let found = findings(doctor().arg(address.to_string()));
    assert_eq!(
        (level(&found, "profiles"), level(&found, "metrics")),
        ("bad", "bad")
    );
}

#[test]
fn servers_that_misbehave_are_given_up() {
    let says_nothing = serve(|_, stream| {
        // Waits until the client gives up.
        let _ = stream.read(&mut [0]);
    });
    let hangs_up = serve(|_, _| {});
    let speaks_otherwise = serve(|_, stream| {
        let _ = stream.write_all(b"SSH-2.0-x\r\n\r\n");
    });
    let never_ends = serve(|_, stream| {
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n");
        while stream.write_all(&[b'x'; 1 << 16]).is_ok() {}
    });
    // At the same time, since the command waits for the first until its timeout.
    thread::scope(|scope| {
        for address in [says_nothing, hangs_up, speaks_otherwise] {
            scope.spawn(move || {
                let (status, says) = failure(OsStr::new(&address.to_string()));
                assert_eq!(status, Some(1), "{says}");
            });
        }
        // The client reads only a limited part, which is not a page.
        let output = output(doctor().arg(never_ends.to_string()));
        assert_eq!(output.status.code(), Some(1));
    });
}
