//! Measures the cost of `plimsoll run` for real programs, in comparison with heaptrack.
//!
//! `programs PLIMSOLL [ROUNDS] [PER CENT] [NAME]`: the path of the command; by default 7 rounds,
//! the full size of the work, and all programs. A name selects the programs that contain it. Each
//! program runs alone, by `plimsoll run` and by heaptrack in turn, and in the opposite order in
//! every other round. A ratio is the median of the rounds' ratios, followed by the ratio of the
//! quickest runs. Ratios are of wall time, which for `plimsoll run` includes the summary, and of
//! the CPU time of the program and its runner. heaptrack takes part in three rounds.
//!
//! Alone and by `plimsoll run`, a program must write the same bytes and succeed. Its input is
//! generated first, in a separate directory; programs that are not installed are skipped.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hasher};
use std::io::BufRead;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use plimsoll_bench::machine;
use plimsoll_bench::quantiles::median;

/// A program with its work.
struct Work {
    name: &'static str,
    /// The command line, which a shell runs in the directory.
    command: String,
    /// Options of `plimsoll run`.
    options: &'static str,
    /// The file that the program writes, if any.
    makes: Option<&'static str>,
    /// For a server: the client, whose time is measured.
    client: Option<String>,
}

/// Requests to the server after the measurement; the responses are compared.
const QUESTIONS: &str = "for i in 1 2 3 4 5 6 7 8 9; do redis-cli -p 7399 rpush numbers $((i * 7919 % 101)); done; \
     redis-cli -p 7399 sort numbers; redis-cli -p 7399 eval 'return redis.sha1hex(string.rep(\"a\", 100000))' 0; \
     redis-cli -p 7399 lrange numbers 0 -1; redis-cli -p 7399 nothing; true";

/// The ways of running a program.
const WAYS: [&str; 4] = ["alone", "plimsoll run", "heaptrack", "plimsoll run --json"];

fn main() {
    let mut arguments = std::env::args().skip(1);
    if std::env::args().nth(1).as_deref() == Some("--line") {
        return line(&arguments.nth(1).expect("a line for the shell"));
    }
    let plimsoll = arguments.next().expect("the path of plimsoll");
    let plimsoll = std::fs::canonicalize(plimsoll).expect("plimsoll is there");
    let mut numbers = arguments.map(|word| word.parse().ok());
    let rounds = numbers.next().flatten().unwrap_or(7);
    let per_cent = numbers.next().flatten().unwrap_or(100);
    let name = std::env::args().nth(4).unwrap_or_default();
    println!("{}\n", machine::describe());
    let directory = std::env::temp_dir().join(format!("plimsoll-programs-{}", std::process::id()));
    std::fs::create_dir_all(&directory).expect("a directory can be made");
    println!(
        "| program | alone in s | plimsoll run | heaptrack | processor time, plimsoll run | memory added by plimsoll run |"
    );
    println!("|---|---|---|---|---|---|");
    let mut ratios: BTreeMap<usize, Vec<f64>> = BTreeMap::new();
    for work in works(&directory, per_cent, &name) {
        let mut times = [const { Vec::new() }; 3];
        let mut processor = [const { Vec::new() }; 3];
        let mut resident = [Vec::new(), Vec::new()];
        let mut wrote = None;
        for round in 0..rounds {
            let mut ways = [0, 1, 2];
            if round % 2 == 1 {
                ways.reverse();
            }
            for way in ways {
                if way == 2 && (round >= 3 || !is_there("heaptrack")) {
                    continue;
                }
                let ran = run(&work, way, &plimsoll, &directory);
                times[way].push(ran.time.as_secs_f64());
                processor[way].push(ran.processor);
                if way == 0 {
                    resident[0].extend(ran.resident);
                }
                // heaptrack also writes to standard output.
                if way < 2 {
                    let first = *wrote.get_or_insert(ran.wrote);
                    assert_eq!(ran.wrote, first, "{}: what it writes differs", work.name);
                }
            }
        }
        // `--json` reports resident memory to the byte, unlike the summary; these runs are not
        // timed.
        for _ in 0..rounds.min(3) {
            resident[1].extend(run(&work, 3, &plimsoll, &directory).resident);
        }
        let mut cells = Vec::new();
        for way in 1..times.len() {
            cells.push(ratio(
                &times[0],
                &times[way],
                ratios.entry(way).or_default(),
            ));
        }
        let of_processor = ratios.entry(PROCESSOR).or_default();
        cells.push(ratio(&processor[0], &processor[1], of_processor));
        let alone = median(&mut times[0]);
        let memory = if resident.iter().any(Vec::is_empty) {
            "-".to_owned()
        } else {
            let [before, after] = &mut resident;
            format!(
                "{:.1} MiB",
                (median(after) - median(before)) / f64::from(1 << 20)
            )
        };
        println!(
            "| {} | {alone:.2} | {} | {memory} |",
            work.name,
            cells.join(" | ")
        );
    }
    let mean = |way: usize| {
        let ratios = ratios.get(&way).filter(|ratios| !ratios.is_empty())?;
        let logarithms: f64 = ratios.iter().map(|ratio| ratio.ln()).sum();
        let worst = ratios.iter().copied().fold(0.0, f64::max);
        Some(format!(
            "{:.3}, worst {worst:.3}",
            (logarithms / ratios.len() as f64).exp()
        ))
    };
    let of = |way| mean(way).unwrap_or_else(|| "-".into());
    println!(
        "| geometric mean | | {} | {} | {} | |",
        of(1),
        of(2),
        of(PROCESSOR)
    );
    println!("| aim | | 1.03, worst 1.10 | | | 8 MiB |");
    let _ = std::fs::remove_dir_all(directory);
}

/// The index of the ratios of CPU time, behind those of the ways.
const PROCESSOR: usize = WAYS.len();

/// Returns the median of the rounds' ratios and the ratio of the quickest runs, as text. Adds the
/// median to `ratios`.
fn ratio(alone: &[f64], other: &[f64], ratios: &mut Vec<f64>) -> String {
    if other.is_empty() {
        return "-".to_owned();
    }
    let mut of_rounds: Vec<f64> = other.iter().zip(alone).map(|(a, b)| a / b).collect();
    let ratio = median(&mut of_rounds);
    ratios.push(ratio);
    let quickest = |times: &[f64]| times.iter().copied().fold(f64::INFINITY, f64::min);
    let of_quickest = quickest(other) / quickest(&alone[..other.len()]);
    format!("{ratio:.3} ({of_quickest:.3})")
}

fn is_there(program: &str) -> bool {
    let found = Command::new("/bin/sh")
        .args(["-c", &format!("command -v {program} >/dev/null")])
        .status();
    found.is_ok_and(|status| status.success())
}

/// Programs whose input is large.
const LOG: &str = "git log --stat";
const SORT: &str = "sort, 1 GB";

/// Generates the input of the programs with `wanted` in their names.
fn works(directory: &Path, per_cent: usize, wanted: &str) -> Vec<Work> {
    let of = |full: usize| (full * per_cent / 100).max(1);
    let is_wanted = |name: &str, program: &str| name.contains(wanted) && is_there(program);
    let write = |name: &str, text: String| {
        std::fs::write(directory.join(name), text).expect("there is room")
    };
    let mut works = Vec::new();
    let mut add = |name: &'static str, program: &str, command: String, options, makes, client| {
        if is_wanted(name, program) {
            works.push(Work {
                name,
                command,
                options,
                makes,
                client,
            });
        }
    };
    write(
        "allocates.py",
        format!(
            "class Node:\n    def __init__(self, key): self.key, self.children = key, {{}}\n\
             total = 0\n\
             for i in range({}):\n\
             \x20   nodes = [Node(str(j) * 8) for j in range(20000)]\n\
             \x20   for node in nodes: node.children[node.key] = [node.key.upper(), bytearray(len(node.key) * 40)]\n\
             \x20   total += sum(len(node.children) for node in nodes)\n\
             print(total)\n",
            of(60)
        ),
    );
    add(
        "python3, objects and buffers",
        "python3",
        "python3 allocates.py".into(),
        "",
        None,
        None,
    );
    let mut import = String::new();
    for commit in 0..of(40_000) {
        import.push_str(&format!(
            "commit refs/heads/main\ncommitter a <a@b> {} +0000\ndata 6\nchange\n",
            1_600_000_000 + commit
        ));
        for file in 0..3 {
            let text: String = (0..40)
                .map(|line| {
                    format!(
                        "line {line} of {}\n",
                        (commit * 7 + file + line * line) % 997
                    )
                })
                .collect();
            let name = (commit * 31 + file * 17) % 500;
            import.push_str(&format!(
                "M 644 inline d{}/f{name}\ndata {}\n{text}\n",
                name % 20,
                text.len()
            ));
        }
    }
    write("import", import);
    if is_wanted(LOG, "git") {
        let made = Command::new("/bin/sh")
            .current_dir(directory)
            .args(["-c", "git init -q repository && cd repository && git fast-import --quiet < ../import && git gc -q"])
            .status();
        assert!(
            made.is_ok_and(|status| status.success()),
            "a repository is made"
        );
    }
    add(
        LOG,
        "git",
        "git --no-pager -C repository log --stat main".into(),
        "",
        None,
        None,
    );
    write(
        "insert.sql",
        format!(
            "PRAGMA synchronous=OFF; PRAGMA journal_mode=MEMORY; CREATE TABLE t(a INTEGER PRIMARY KEY, b TEXT, c TEXT);\n\
             CREATE INDEX i ON t(b);\n\
             INSERT INTO t SELECT value, hex(value * 7919 % 100003), 'row ' || value FROM generate_series(1, {});\n\
             SELECT count(*), max(b) FROM t;\n",
            of(1_500_000)
        ),
    );
    add(
        "sqlite3, bulk insert",
        "sqlite3",
        "rm -f db; exec sqlite3 db < insert.sql".into(),
        "",
        Some("db"),
        None,
    );
    let mut source = String::new();
    for function in 0..of(1000) {
        source.push_str(&format!(
            "int f{function}(int *a, int n) {{ int s = {function}; for (int i = 0; i < n; i++) {{ if (a[i] % {} == 0) s += a[i] * {function}; else s ^= a[i] << (i & 7); }} return s; }}\n",
            function % 13 + 2
        ));
    }
    write("large.c", source);
    add(
        "gcc -O2, a large file",
        "gcc",
        "gcc -O2 -c large.c -o large.o".into(),
        "--children",
        Some("large.o"),
        None,
    );
    let mut random = 88_172_645_463_325_252_u64;
    let count = if is_wanted(SORT, "sort") {
        of(1 << 24)
    } else {
        0
    };
    let lines: String = (0..count)
        .map(|_| {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            format!("{random:016x} some text to fill a line of sixty-four bytes......\n")
        })
        .collect();
    write("lines", lines);
    add(
        SORT,
        "sort",
        "LC_ALL=C sort -S 60% lines -o sorted".into(),
        "",
        Some("sorted"),
        None,
    );
    add(
        "redis-server, redis-benchmark",
        "redis-server",
        "exec redis-server --port 7399 --save '' --appendonly no".into(),
        "",
        None,
        Some(format!(
            "redis-benchmark -p 7399 -q -n {} -P 16 -r 100000 -t set,get,lpush,hset",
            of(1_000_000)
        )),
    );
    works
}

/// A run of a program.
struct Ran {
    time: Duration,
    /// CPU time in seconds; for a server, from its start to its end.
    processor: f64,
    /// The peak of resident memory in bytes, if it is known.
    resident: Option<f64>,
    /// A hash of standard output and of the program's file.
    wrote: u64,
}

fn run(work: &Work, way: usize, plimsoll: &Path, directory: &Path) -> Ran {
    let script = &work.command;
    let plimsoll = plimsoll.display();
    // The runner must run the program itself, not the shell.
    let (before, program) = match script.rsplit_once("; ") {
        Some((before, program)) => (format!("{before}; "), program),
        None => (String::new(), script.as_str()),
    };
    let program = program.strip_prefix("exec ").unwrap_or(program);
    let (assignment, program) = match program.strip_prefix("LC_ALL=C ") {
        Some(program) => ("LC_ALL=C ", program),
        None => ("", program),
    };
    let line = match WAYS[way] {
        "alone" => format!("{before}{assignment}exec {program}"),
        "plimsoll run" => format!(
            "{before}{assignment}exec {plimsoll} run {} -- {program}",
            work.options
        ),
        "plimsoll run --json" => format!(
            "{before}{assignment}exec {plimsoll} run --json {} -- {program}",
            work.options
        ),
        _ => format!("{before}{assignment}exec heaptrack -o heaptrack.out {program}"),
    };
    let started = Instant::now();
    // Runs through a process with little memory, because a child inherits its parent's peak at the
    // fork.
    let mut child = Command::new(std::env::current_exe().expect("this program has a path"))
        .current_dir(directory)
        .args(["--line", &line])
        .stdin(Stdio::null())
        .stdout(std::fs::File::create(directory.join("output")).expect("there is room"))
        .stderr(std::fs::File::create(directory.join("errors")).expect("there is room"))
        .spawn()
        .expect("there is a shell");
    let time = match &work.client {
        None => {
            wait(&mut child, &line);
            started.elapsed()
        }
        Some(client) => {
            ask(
                "for i in $(seq 100); do redis-cli -p 7399 ping >/dev/null 2>&1 && exit 0; sleep 0.1; done; exit 1",
            );
            let started = Instant::now();
            ask(client);
            let time = started.elapsed();
            ask(&format!("({QUESTIONS}) > {}/answers", directory.display()));
            ask("redis-cli -p 7399 shutdown nosave; true");
            wait(&mut child, &line);
            time
        }
    };
    let written = match (&work.client, work.makes) {
        (Some(_), _) => vec!["answers"],
        (None, Some(made)) => vec!["output", made],
        (None, None) => vec!["output"],
    };
    let mut hasher = DefaultHasher::new();
    for name in written {
        let file = std::fs::File::open(directory.join(name)).expect("it is there");
        let mut file = std::io::BufReader::with_capacity(1 << 20, file);
        loop {
            let part = file.fill_buf().expect("it can be read");
            let length = part.len();
            hasher.write(part);
            file.consume(length);
            if length == 0 {
                break;
            }
        }
    }
    Ran {
        time,
        processor: said(directory, "processor: ").expect("it is said"),
        resident: resident(directory, way),
        wrote: hasher.finish(),
    }
}

/// Runs a line in a shell meanwhile.
fn ask(line: &str) {
    let mut shell = Command::new("/bin/sh");
    let status = shell.args(["-c", line]).stdout(Stdio::null()).status();
    assert!(status.is_ok_and(|status| status.success()), "{line}");
}

fn wait(child: &mut Child, line: &str) {
    let status = child.wait().expect("it is a child");
    assert!(status.success(), "{line}: {status}");
}

/// Runs a line in a shell. Prints the peak of resident memory in bytes, and the CPU time in
/// seconds.
fn line(line: &str) {
    let status = Command::new("/bin/sh")
        .args(["-c", line])
        .status()
        .expect("there is a shell");
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the struct is valid for writes, and all zeros are a valid `rusage`.
    let usage = unsafe {
        libc::getrusage(libc::RUSAGE_CHILDREN, usage.as_mut_ptr());
        usage.assume_init()
    };
    assert!(status.success(), "{line}: {status}");
    eprintln!("resident: {}", usage.ru_maxrss * 1024);
    let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
    let processor = seconds(usage.ru_utime) + seconds(usage.ru_stime);
    eprintln!("processor: {processor}");
}

/// Returns the peak of resident memory in bytes: of the program alone as the system reports it, of
/// `plimsoll run --json` as that reports it.
fn resident(directory: &Path, way: usize) -> Option<f64> {
    match WAYS[way] {
        "alone" => said(directory, "resident: "),
        "plimsoll run --json" => std::fs::read_to_string(directory.join("errors"))
            .ok()?
            .lines()
            .rev()
            .find_map(|line| {
                let after = line.split("\"resident_bytes\":").nth(1)?;
                let end = after.find(|digit: char| !digit.is_ascii_digit())?;
                after[..end].parse().ok()
            }),
        _ => None,
    }
}

/// Returns a figure that [`line()`] printed, by its name.
fn said(directory: &Path, name: &str) -> Option<f64> {
    let text = std::fs::read_to_string(directory.join("errors")).ok()?;
    let mut lines = text.lines().rev();
    lines.find_map(|line| line.strip_prefix(name)?.parse().ok())
}
