//! Well-known programs: their output and their status are those without Plimsoll, and what the
//! report says of their memory is true. A program that is not installed is skipped, with a message;
//! `docs/testing.md` lists the packages.

use std::fs::File;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::port::Port;
use crate::scene::{PLIMSOLL, Scene, number, run, same_with};

const MIB: u64 = 1 << 20;

/// Returns the file of a program, if it is installed. The system's is preferred: in other places,
/// programs may be scripts that start others.
fn installed(program: &str) -> Option<PathBuf> {
    let places = ["/usr/bin", "/usr/sbin", "/bin"].map(PathBuf::from);
    let found = places
        .into_iter()
        .map(|place| place.join(program))
        .find(|file| file.exists());
    if found.is_none() {
        plimsoll_testkit::skip!("{program} is not installed");
    }
    found
}

fn owner(report: &Value, name: &str) -> u64 {
    report["memory"][name].as_u64().unwrap_or(0)
}

/// Asserts what holds for each program: the owners' parts are the resident memory, hardly any of which
/// is unexplained, and no reading is above the maximum.
fn is_consistent(program: &str, report: &Value) {
    let parts = report["memory"]
        .as_object()
        .unwrap_or_else(|| panic!("{program}: {report}"));
    let resident = owner(report, "resident");
    let sum: u64 = parts
        .iter()
        .filter(|(name, _)| *name != "resident")
        .map(|(_, bytes)| bytes.as_u64().unwrap())
        .sum();
    assert_eq!(sum, resident, "{program}: {report}");
    let unexplained = owner(report, "unexplained");
    assert!(unexplained * 20 < resident, "{program}: {report}");
    // The kernel counts by processor, and adds these up from time to time.
    let peak = number(report, "resident_bytes");
    assert!(peak + MIB > resident, "{program}: {report}");
    assert!(number(report, "mallocs") >= number(report, "frees"));
    assert_eq!(number(report, "untracked"), 0, "{program}: {report}");
}

/// Runs a program alone and by `plimsoll run`, and returns the consistent report of its first process.
fn report_of(program: &str, arguments: &[&str]) -> Option<Value> {
    let file = installed(program)?;
    let reports = same_with(&[], file, arguments);
    let report = reports.into_iter().next()?;
    is_consistent(program, &report);
    Some(report)
}

/// Scripts that hold 64 MiB at their end in blocks of about 1,000 bytes, and where these lie: in the heap of the C
/// library, or in memory that the language maps.
#[test]
fn the_memory_of_languages_has_its_owner() {
    let held = 64 * MIB;
    for (program, arguments, name) in [
        (
            "python3",
            [
                "-S",
                "-c",
                "import os; x = [bytes(1000) for i in range(65536)]; print(len(x), flush=True); os._exit(0)",
            ],
            "heap",
        ),
        // Blocks up to 512 bytes come from arenas that Python maps.
        (
            "python3",
            [
                "-S",
                "-c",
                "import os; x = [bytes(200) for i in range(300000)]; print(len(x), flush=True); os._exit(0)",
            ],
            "mapped",
        ),
        (
            "perl",
            [
                "-w",
                "-e",
                "my @x = map { 'x' x 1000 . $_ } 1..64000; print scalar(@x), qq(\n)",
            ],
            "heap",
        ),
        (
            "ruby",
            [
                "--disable-gems",
                "-e",
                "x = Array.new(64000) { |i| 'x' * 1000 + i.to_s }; puts x.size",
            ],
            "heap",
        ),
        (
            "lua5.4",
            [
                "-W",
                "-e",
                "t = {} for i = 1, 64000 do t[i] = string.rep('x', 1000) .. i end print(#t)",
            ],
            "heap",
        ),
        (
            "node",
            [
                "--no-warnings",
                "-e",
                "const x = Array.from({length: 64}, () => Buffer.alloc(1 << 20, 1)); console.log(x.length); process.exit(0)",
            ],
            "heap",
        ),
    ] {
        let Some(report) = report_of(program, &arguments) else {
            continue;
        };
        let bytes = owner(&report, name);
        let most = held + held / 2;
        assert!(
            (held * 9 / 10..most).contains(&bytes),
            "{program}: {name}: {report}"
        );
        // It is the largest owner of memory beside the files.
        let others = ["heap", "mapped", "stacks", "shared", "plimsoll"];
        let largest = others.into_iter().max_by_key(|other| owner(&report, other));
        assert_eq!(largest, Some(name), "{program}: {report}");
    }
}

/// PHP maps its memory in parts of 2 MiB, and unmaps nearly all of it before its end.
#[test]
fn php_s_memory_is_mapped_and_unmapped() {
    let held = 64 * MIB;
    let script = "$x = []; for ($i = 0; $i < 50000; $i++) $x[] = str_repeat('x', 1250) . $i; echo count($x);";
    let Some(report) = report_of("php", &["-n", "-r", script]) else {
        return;
    };
    let mapped = number(&report, "mapped_bytes");
    assert!((held..2 * held).contains(&mapped), "{report}");
    assert!(number(&report, "unmapped_bytes") > held, "{report}");
    assert!(owner(&report, "mapped") < held / 8, "{report}");
    assert!(number(&report, "resident_bytes") > held, "{report}");
}

/// Java reserves much more than it uses: only what was touched is resident.
#[test]
fn java_s_heap_is_mapped_and_its_reservations_are_not_resident() {
    let arguments = [
        "-Xmx1g",
        "-Xms64m",
        "-XX:+AlwaysPreTouch",
        "-XX:+UseSerialGC",
        "-version",
    ];
    let Some(report) = report_of("java", &arguments) else {
        return;
    };
    let mapped = owner(&report, "mapped");
    assert!((64 * MIB..128 * MIB).contains(&mapped), "{report}");
    assert!(number(&report, "mapped_bytes") > 1 << 30, "{report}");
}

#[test]
fn tools_write_what_they_write_alone() {
    let scene = Scene::new("tools");
    let directory = scene.directory.to_str().unwrap();
    let file = |name: &str, contents: &str| {
        let path = scene.path(name);
        std::fs::write(&path, contents).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let lines: String = (0..20_000)
        .map(|line| format!("line {}\n", line * 7919 % 20_011))
        .collect();
    let text = file("text", &lines);
    let source = file("source.c", "int main(void) { return 0; }\n");
    let program = scene.c("program", "int main(void) { return 0; }\n");
    let program = program.to_str().unwrap();
    for (tool, arguments) in [
        ("sort", vec!["-r", &text]),
        (
            "tar",
            vec![
                "-C",
                directory,
                "--mtime=@0",
                "-cf",
                "-",
                "text",
                "source.c",
            ],
        ),
        ("git", vec!["diff", "--no-index", "--stat", &source, &text]),
        ("rg", vec!["--no-config", "-c", "line 1[0-9]*$", &text]),
        (
            "gdb",
            vec![
                "-nx",
                "-batch",
                "-ex",
                "print sizeof(int)",
                "-ex",
                "info functions main",
                program,
            ],
        ),
        (
            "vim.tiny",
            vec![
                "-u",
                "NONE",
                "-es",
                "-c",
                "%s/line/row/",
                "-c",
                "%p",
                "-c",
                "q!",
                &text,
            ],
        ),
        ("clang", vec!["-O2", "-S", "-o", "-", &source]),
        (
            "ffmpeg",
            vec![
                "-nostdin",
                "-v",
                "error",
                "-f",
                "lavfi",
                "-i",
                "testsrc=duration=1:size=320x240:rate=10",
                "-flags",
                "bitexact",
                "-fflags",
                "bitexact",
                "-f",
                "avi",
                "-c:v",
                "mpeg4",
                "-",
            ],
        ),
        ("perl", vec!["-ne", "$n += length; END { print $n }", &text]),
    ] {
        let _ = report_of(tool, &arguments);
    }
}

/// Blocks, requested bytes and the peak of a program as valgrind counts them.
fn by_valgrind(valgrind: &Path, program: &Path, arguments: &[&str]) -> [u64; 3] {
    let mut command = Command::new(valgrind);
    command.args(["--tool=dhat", "--dhat-out-file=/dev/null"]);
    let output = command.arg(program).args(arguments).output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    // Total:     4,475,881 bytes in 269 blocks
    let numbers = |head: &str| {
        let line = text.lines().find(|line| line.contains(head));
        let line = line.unwrap_or_else(|| panic!("{head}: {text}"));
        let words = line.split_whitespace().map(|word| word.replace(',', ""));
        words
            .filter_map(|word| word.parse().ok())
            .collect::<Vec<u64>>()
    };
    let (total, most) = (numbers("Total:"), numbers("At t-gmax:"));
    [total[1], total[0], most[0]]
}

/// Totals differ by less than 1 %: the programs have other environments. The peak is read at samples,
/// so it may be too small by about a MiB or 1/64; it counts the blocks as the allocator rounds them. It is
/// 12 MiB too small less than once in 10^7 runs: of the 24 samples expected in these, two make a reading.
#[test]
fn totals_are_those_of_valgrind() {
    let Some(valgrind) = installed("valgrind") else {
        return;
    };
    let scene = Scene::new("valgrind");
    let lines: String = (0..20_000).map(|line| format!("{line}\n")).collect();
    let (text, other) = (scene.path("text"), scene.path("other"));
    std::fs::write(&text, lines).unwrap();
    std::fs::write(&other, "another\n").unwrap();
    let (text, other) = (text.to_str().unwrap(), other.to_str().unwrap());
    for (program, arguments) in [
        (
            "perl",
            vec![
                "-e",
                "my @x = map { 'x' x 1000 . $_ } 1..20000; print scalar(@x)",
            ],
        ),
        ("git", vec!["diff", "--no-index", "--stat", text, other]),
        (
            "lua5.4",
            vec![
                "-e",
                "t = {} for i = 1, 20000 do t[i] = string.rep('x', 1000) .. i end",
            ],
        ),
        (
            "python3",
            vec!["-S", "-c", "x = [bytes(1000) for i in range(20000)]"],
        ),
    ] {
        let Some(report) = report_of(program, &arguments) else {
            continue;
        };
        let [blocks, bytes, most] =
            by_valgrind(&valgrind, &installed(program).unwrap(), &arguments);
        for (name, expected) in [("mallocs", blocks), ("asked_bytes", bytes)] {
            let counted = number(&report, name);
            let difference = counted.abs_diff(expected);
            assert!(
                difference * 100 <= expected,
                "{program}: {name} {counted}, {expected}"
            );
        }
        let peak = number(&report, "peak_bytes");
        assert!(
            peak + 12 * MIB > most && peak < most + most / 4,
            "{program}: {peak}, {most}"
        );
    }
}

/// A server, which is ended with the test.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Returns the body of the answer to a request; `None` without one.
fn get(port: u16) -> Option<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
    stream.write_all(b"GET / HTTP/1.0\r\n\r\n").ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    Some(answer.split_once("\r\n\r\n")?.1.to_owned())
}

fn until<T>(what: &str, mut found: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        if let Some(found) = found() {
            return found;
        }
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn signal(process: &str, signal: i32) {
    let process: i32 = process.trim().parse().unwrap();
    // SAFETY: the process is a server of this test.
    assert_eq!(unsafe { libc::kill(process, signal) }, 0);
}

/// Returns the reports in a file, beside the program's own messages.
fn processes(file: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(file).unwrap();
    let reports = text.lines().filter(|line| line.starts_with('{'));
    let reports = reports.map(serde_json::from_str);
    reports.collect::<Result<_, _>>().unwrap()
}

/// Whether the last arguments of a process, which many programs replace by a title, contain `title`.
fn has_title(process: &Value, title: &str) -> bool {
    let arguments = process["arguments"].as_array().unwrap().iter();
    arguments
        .filter_map(Value::as_str)
        .any(|word| word.contains(title))
}

/// nginx with a configuration in its directory: answers are the process ids of its workers.
struct Nginx {
    scene: Scene,
    reserved: Port,
}

impl Nginx {
    fn new(name: &str) -> Self {
        let (scene, reserved) = (Scene::new(name), Port::new());
        let directory = scene.directory.display();
        let places = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"];
        let places = places.map(|place| format!("{place}_temp_path {directory}/{place};"));
        let configuration = format!(
            "worker_processes 1; pid {directory}/pid; error_log {directory}/log;\n\
             events {{ worker_connections 16; }}\n\
             http {{ access_log off; {}\n\
             server {{ listen 127.0.0.1:{}; location / {{ return 200 $pid; }} }} }}\n",
            places.concat(),
            reserved.number,
        );
        std::fs::write(scene.path("nginx.conf"), configuration).unwrap();
        Self { scene, reserved }
    }

    /// Returns `plimsoll run` with nginx.
    fn run(&self, options: &[&str], more: &[&str]) -> Option<Command> {
        let directory = self.scene.directory.to_str().unwrap();
        let file = self.scene.path("nginx.conf");
        let mut arguments = vec!["-p", directory, "-c", file.to_str().unwrap()];
        arguments.extend(more);
        Some(run(options, installed("nginx")?, &arguments))
    }

    fn worker(&self) -> Option<String> {
        get(self.reserved.number)
    }

    fn master(&self) -> Option<String> {
        let id = std::fs::read_to_string(self.scene.path("pid")).ok();
        id.filter(|id| !id.trim().is_empty())
    }
}

#[test]
fn nginx_reloads_and_its_workers_report() {
    let nginx = Nginx::new("nginx");
    let out = nginx.scene.path("reports");
    let options = ["--children", "--json"];
    let Some(mut command) = nginx.run(&options, &["-g", "daemon off;"]) else {
        return;
    };
    command.stderr(File::create(&out).unwrap());
    let mut server = Server(command.spawn().unwrap());
    let first = until("it answers", || nginx.worker());
    let master = nginx.master().unwrap();
    signal(&master, libc::SIGHUP);
    let second = until("a new worker answers", || {
        nginx.worker().filter(|worker| *worker != first)
    });
    signal(&master, libc::SIGQUIT);
    let status = server.0.wait().unwrap();
    assert!(status.success(), "{status}");
    let processes = processes(&out);
    let of = |id: &str| {
        let id: u64 = id.trim().parse().unwrap();
        let mut all = processes.iter();
        let found = all.find(|process| process["process"] == id);
        found.unwrap_or_else(|| panic!("{id}: {processes:?}"))
    };
    for worker in [of(&first), of(&second)] {
        assert!(has_title(worker, "nginx: worker process"), "{worker}");
        assert_eq!(worker["ending"], "exit", "{worker}");
    }
    is_consistent("nginx", of(&master));
}

/// The run ends with the first process, and the daemon is still served by the library: it executes
/// another program, which takes over its sockets.
#[test]
fn nginx_as_a_daemon_goes_on_and_is_upgraded() {
    let nginx = Nginx::new("nginx-daemon");
    let Some(mut command) = nginx.run(&["--children"], &[]) else {
        return;
    };
    // The daemon inherits standard error.
    let out = nginx.scene.path("reports");
    command.stderr(File::create(&out).unwrap());
    let status = command.status().unwrap();
    assert!(status.success(), "{status}");
    let text = std::fs::read_to_string(out).unwrap();
    let first = until("it answers", || nginx.worker());
    let old = until("it has started", || nginx.master());
    if parent(&old) == "1" {
        let line = format!("nginx ({})", old.trim());
        assert!(
            text.contains("without a report") && text.contains(&line),
            "{text}"
        );
    }
    signal(&old, libc::SIGUSR2);
    let new = until("there is a new master", || {
        nginx.master().filter(|new| *new != old)
    });
    signal(&old, libc::SIGQUIT);
    until("the old one ends", || {
        let status = std::fs::read_to_string(format!("/proc/{}/status", old.trim()));
        status.is_err().then_some(())
    });
    let second = until("the new program answers", || nginx.worker());
    assert_ne!(second, first);
    signal(&new, libc::SIGQUIT);
    until("it ends", || nginx.worker().is_none().then_some(()));
}

/// Returns the parent of a process.
fn parent(process: &str) -> String {
    let status = std::fs::read_to_string(format!("/proc/{}/status", process.trim())).unwrap();
    let mut lines = status.lines();
    let parent = lines.find_map(|line| line.strip_prefix("PPid:"));
    parent.unwrap().trim().to_owned()
}

/// PostgreSQL's buffers are shared memory, and its processes have titles.
#[test]
fn postgres_has_shared_buffers_and_processes_with_titles() {
    let Some(postgres) = std::fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten()
        .filter_map(|version| Some(version.ok()?.path().join("bin")))
        .find(|programs| programs.join("postgres").exists())
    else {
        plimsoll_testkit::skip!("PostgreSQL is not installed");
        return;
    };
    // It refuses to be run by root.
    // SAFETY: the call has no arguments.
    let is_root = unsafe { libc::geteuid() } == 0;
    let Some(user) = user("postgres").filter(|_| is_root) else {
        plimsoll_testkit::skip!("this is not root, or the user postgres does not exist");
        return;
    };
    let scene = Scene::new("postgres");
    let as_user = |command: &mut Command| {
        command.uid(user).current_dir(&scene.directory);
        command.env("HOME", &scene.directory).stdin(Stdio::null());
    };
    let mut plimsoll = Command::new(PLIMSOLL);
    if plimsoll.uid(user).arg("--version").output().is_err() {
        plimsoll_testkit::skip!("the user postgres may not execute {PLIMSOLL}");
        return;
    }
    std::os::unix::fs::chown(&scene.directory, Some(user), None).unwrap();
    let mut initdb = Command::new(postgres.join("initdb"));
    initdb.args(["-D", "data", "-A", "trust", "--no-sync"]);
    as_user(&mut initdb);
    let made = initdb.output().unwrap();
    assert!(made.status.success(), "{made:?}");
    let sockets = format!("unix_socket_directories={}", scene.directory.display());
    let arguments = [
        "-D",
        "data",
        "-c",
        &sockets,
        "-c",
        "listen_addresses=",
        "-c",
        "fsync=off",
        "-c",
        "shared_buffers=64MB",
    ];
    let ask = |statement: &str| {
        let mut psql = Command::new(postgres.join("psql"));
        psql.args(["-At", "-h"])
            .arg(&scene.directory)
            .args(["-c", statement, "postgres"]);
        as_user(&mut psql);
        let output = psql.output().unwrap();
        let answer = String::from_utf8(output.stdout).unwrap();
        output.status.success().then_some(answer)
    };
    let out = scene.path("reports");
    let mut answers = Vec::new();
    for by_plimsoll in [false, true] {
        let program = postgres.join("postgres");
        let mut command = match by_plimsoll {
            false => Command::new(program),
            true => run(&["--children", "--json"], program, &[]),
        };
        command.args(arguments);
        as_user(&mut command);
        command.stderr(File::create(&out).unwrap());
        let mut server = Server(command.spawn().unwrap());
        until("it answers", || ask("select 1"));
        let statements = [
            "create table rows as select i, repeat('x', i % 100) as text from generate_series(1, 200000) i",
            "select count(*), sum(length(text)) from rows",
            "select text, count(*) from rows group by text order by 2 desc, 1 limit 5",
            "drop table rows",
        ];
        answers.push(statements.map(ask));
        let id = std::fs::read_to_string(scene.path("data/postmaster.pid")).unwrap();
        signal(id.lines().next().unwrap(), libc::SIGINT);
        let status = server.0.wait().unwrap();
        assert!(status.success(), "{status}");
    }
    assert_eq!(answers[0], answers[1]);
    assert!(answers[0].iter().all(Option::is_some), "{answers:?}");
    let processes = processes(&out);
    for title in ["checkpointer", "walwriter", "autovacuum launcher"] {
        let process = processes.iter().find(|process| has_title(process, title));
        assert!(process.is_some(), "{title}: {processes:?}");
    }
    let parents = processes
        .iter()
        .filter(|process| process["inherited"].is_null());
    let parents: Vec<&Value> = parents.collect();
    assert_eq!(parents.len(), 1, "{processes:?}");
    is_consistent("postgres", parents[0]);
}

/// Returns the id of a user.
fn user(name: &str) -> Option<u32> {
    let users = std::fs::read_to_string("/etc/passwd").ok()?;
    let mut lines = users.lines().map(|line| line.split(':'));
    lines.find_map(|mut line| (line.next()? == name).then(|| line.nth(1)?.parse().ok())?)
}
