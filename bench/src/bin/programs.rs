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

/// A program with its work. The parts of its command line are for a shell in the directory.
struct Work {
    name: &'static str,
    /// What precedes the program and its runner: preparations, or another user.
    before: &'static str,
    /// The program with its arguments.
    program: String,
    /// Options of `plimsoll run`.
    options: &'static str,
    /// The file that the program writes, if any.
    makes: Option<&'static str>,
    /// For a server: its client, whose time is measured.
    server: Option<Server>,
}

/// What is done with a server, as lines for a shell.
struct Server {
    /// Succeeds when the server answers.
    is_ready: &'static str,
    client: String,
    /// Requests after the measurement, whose answers are compared.
    questions: &'static str,
    stop: &'static str,
}

const REDIS: &str = "for i in 1 2 3 4 5 6 7 8 9; do redis-cli -p 7399 rpush numbers $((i * 7919 % 101)); done; \
     redis-cli -p 7399 sort numbers; redis-cli -p 7399 eval 'return redis.sha1hex(string.rep(\"a\", 100000))' 0; \
     redis-cli -p 7399 lrange numbers 0 -1; redis-cli -p 7399 nothing; true";

const POSTGRES: &str = "for table in pgbench_accounts pgbench_branches; do \
     psql -h $PWD -p 7398 -U postgres -At -c \"select count(*), sum(bid) from $table\" postgres; done";

/// The ways of running a program; 0 is alone.
const RUN: usize = 1;
const HEAPTRACK: usize = 2;
const MEMRAY: usize = 3;
const JSON: usize = 4;

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
        "| program | alone in s | plimsoll run | heaptrack | memray --native | CPU time, plimsoll run | memory added by plimsoll run |"
    );
    println!("|---|---|---|---|---|---|---|");
    let mut ratios: BTreeMap<usize, Vec<f64>> = BTreeMap::new();
    for work in works(&directory, per_cent, &name) {
        let mut times = [const { Vec::new() }; JSON];
        let mut processor = [const { Vec::new() }; JSON];
        let mut resident = [Vec::new(), Vec::new()];
        let mut wrote = None;
        for round in 0..rounds {
            let mut ways = [0, RUN, HEAPTRACK, MEMRAY];
            if round % 2 == 1 {
                ways.reverse();
            }
            for way in ways {
                let is_measured = match way {
                    HEAPTRACK => round < 3 && is_there("heaptrack"),
                    // For programs in Python.
                    MEMRAY => round < 3 && work.program.starts_with(PYTHON) && is_there("memray"),
                    _ => true,
                };
                if !is_measured {
                    continue;
                }
                let ran = run(&work, way, &plimsoll, &directory);
                times[way].push(ran.time.as_secs_f64());
                processor[way].push(ran.processor);
                if way == 0 {
                    resident[0].extend(ran.resident);
                }
                // The others also write to standard output.
                if way <= RUN {
                    let first = *wrote.get_or_insert(ran.wrote);
                    assert_eq!(ran.wrote, first, "{}: what it writes differs", work.name);
                }
            }
        }
        // `--json` reports resident memory to the byte, unlike the summary; these runs are not
        // timed.
        for _ in 0..rounds.min(3) {
            resident[1].extend(run(&work, JSON, &plimsoll, &directory).resident);
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
        cells.push(ratio(&processor[0], &processor[RUN], of_processor));
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
        "| geometric mean | | {} | {} | {} | {} | |",
        of(RUN),
        of(HEAPTRACK),
        of(MEMRAY),
        of(PROCESSOR)
    );
    println!("| aim | | 1.03, worst 1.10 | | | 1.05, worst 1.15 | 8 MiB |");
    let _ = std::fs::remove_dir_all(directory);
}

/// The index of the ratios of CPU time, behind those of the ways.
const PROCESSOR: usize = JSON + 1;

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

/// Programs whose input is large, or whose preparation takes time.
const LOG: &str = "git log --stat";
const SORT: &str = "sort, 1 GB";
const POSTGRES_NAMES: [&str; 2] = ["PostgreSQL, queries", "PostgreSQL, connections"];

/// The system's, since `python3` in `PATH` may be a script.
const PYTHON: &str = "/usr/bin/python3 ";

/// Generates the input of the programs with `wanted` in their names.
fn works(directory: &Path, per_cent: usize, wanted: &str) -> Vec<Work> {
    let of = |full: usize| (full * per_cent / 100).max(1);
    let is_wanted = |name: &str, program: &str| name.contains(wanted) && is_there(program);
    let write = |name: &str, text: String| {
        std::fs::write(directory.join(name), text).expect("there is room")
    };
    let prepare = |line: &str| {
        let made = Command::new("/bin/sh")
            .current_dir(directory)
            .args(["-c", line])
            .stdout(Stdio::null())
            .status();
        assert!(made.is_ok_and(|status| status.success()), "{line}");
    };
    let mut works = Vec::new();
    let mut add = |needs: &str, work: Work| {
        if is_wanted(work.name, needs) {
            works.push(work);
        }
    };
    let work = |name, program: &str| Work {
        name,
        before: "",
        program: program.to_owned(),
        options: "",
        makes: None,
        server: None,
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
        PYTHON.trim(),
        work(
            "python3, objects and buffers",
            &format!("{PYTHON}allocates.py"),
        ),
    );
    write(
        "arrays.py",
        format!(
            "import numpy as np\ntotal = 0.0\n\
             for i in range({}):\n\
             \x20   rows = [np.ones(1000 + j) * j for j in range(2000)]\n\
             \x20   total += sum(float(row.sum()) for row in rows)\n\
             \x20   square = np.outer(rows[0][:400], rows[1][:400])\n\
             \x20   total += float((square @ square).trace()) + float(np.sort(rows[-1])[0])\n\
             print(total)\n",
            of(150)
        ),
    );
    add(
        PYTHON.trim(),
        work("python3, numpy", &format!("{PYTHON}arrays.py")),
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
        prepare(
            "git init -q repository && cd repository && git fast-import --quiet < ../import && git gc -q",
        );
    }
    add(
        "git",
        work(LOG, "git --no-pager -C repository log --stat main"),
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
        "sqlite3",
        Work {
            before: "rm -f db; exec",
            makes: Some("db"),
            ..work("sqlite3, bulk insert", "sqlite3 db < insert.sql")
        },
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
        "gcc",
        Work {
            options: "--children",
            makes: Some("large.o"),
            ..work("gcc -O2, a large file", "gcc -O2 -c large.c -o large.o")
        },
    );
    let mut source = "#include <algorithm>\n#include <map>\n#include <string>\n#include <vector>\n\
         template<int N> struct S { int x[N]; bool operator<(const S &o) const { return x[0] < o.x[0]; } };\n"
        .to_owned();
    for number in 1..=of(60) {
        source.push_str(&format!(
            "int f{number}(int n) {{ std::map<std::string, std::vector<S<{number}>>> m; \
             for (int i = 0; i < n; i++) m[std::to_string(i)].push_back({{{{i}}}}); \
             int s = 0; for (auto &[k, v] : m) {{ std::sort(v.begin(), v.end()); s += k.size() + v[0].x[0]; }} return s; }}\n"
        ));
    }
    write("templates.cc", source);
    add(
        "clang++",
        Work {
            options: "--children",
            makes: Some("templates.o"),
            ..work(
                "clang++ -O2, templates",
                "clang++ -O2 -std=c++17 -c templates.cc -o templates.o",
            )
        },
    );
    write(
        "objects.js",
        format!(
            "let total = 0;\n\
             for (let i = 0; i < {}; i++) {{\n\
             \x20 const rows = Array.from({{length: 20000}}, (_, j) => ({{id: j, name: 'row ' + j * i, tags: [j % 7, j % 11]}}));\n\
             \x20 const text = JSON.stringify(rows);\n\
             \x20 total += JSON.parse(text).filter(row => row.tags[0] === 3).length;\n\
             \x20 total += Buffer.from(text).subarray(100, 200).toString('base64').length;\n\
             }}\n\
             console.log(total);\n",
            of(100)
        ),
    );
    add("node", work("node, objects and JSON", "node objects.js"));
    add(
        "ffmpeg",
        Work {
            makes: Some("film.avi"),
            ..work(
                "ffmpeg, MPEG-4",
                &format!(
                    "ffmpeg -nostdin -v error -f lavfi -i testsrc=duration={}:size=1280x720:rate=25 \
                     -c:v mpeg4 -flags bitexact -fflags bitexact -y film.avi",
                    of(16)
                ),
            )
        },
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
        "sort",
        Work {
            before: "export LC_ALL=C; exec",
            makes: Some("sorted"),
            ..work(SORT, "sort -S 60% lines -o sorted")
        },
    );
    add(
        "redis-server",
        Work {
            server: Some(Server {
                is_ready: "redis-cli -p 7399 ping",
                client: format!(
                    "redis-benchmark -p 7399 -q -n {} -P 16 -r 100000 -t set,get,lpush,hset",
                    of(1_000_000)
                ),
                questions: REDIS,
                stop: "redis-cli -p 7399 shutdown nosave; true",
            }),
            ..work(
                "redis-server, redis-benchmark",
                "redis-server --port 7399 --save '' --appendonly no",
            )
        },
    );
    write(
        "nginx.conf",
        "user root; worker_processes 1; pid nginx.pid; error_log errors.log;\n\
         events { worker_connections 64; }\n\
         http { access_log off; gzip on; gzip_min_length 0; gzip_types text/plain;\n\
         server { listen 127.0.0.1:7397; root .; default_type text/plain; } }\n"
            .to_owned(),
    );
    add(
        "nginx",
        Work {
            options: "--children",
            server: Some(Server {
                is_ready: "ab -q -n 1 http://127.0.0.1:7397/nginx.conf",
                client: format!(
                    "ab -q -n {} -c 8 -H 'Accept-Encoding: gzip' http://127.0.0.1:7397/templates.cc",
                    of(30_000)
                ),
                questions: "/usr/bin/python3 -c \"import urllib.request as u; \
                     print(u.urlopen('http://127.0.0.1:7397/objects.js').read())\"",
                stop: "kill -QUIT $(cat nginx.pid)",
            }),
            ..work(
                "nginx, compressed answers",
                "nginx -p . -c nginx.conf -e errors.log -g 'daemon off;'",
            )
        },
    );
    let has_postgres = POSTGRES_NAMES.iter().any(|name| is_wanted(name, "pgbench"));
    if has_postgres && is_there("pg_lsclusters") {
        // Debian has the server's programs in a directory of the version.
        prepare(
            "chmod 777 .; ln -sf $(ls -d /usr/lib/postgresql/*/bin | tail -1) pg; \
             runuser -u postgres -- pg/initdb -D data >/dev/null && \
             echo \"unix_socket_directories = '$PWD'\nport = 7398\nlisten_addresses = ''\nfsync = off\" >> data/postgresql.conf && \
             runuser -u postgres -- pg/pg_ctl -s -w -D data -l log start && \
             pgbench -h $PWD -p 7398 -U postgres -q -i -s 5 postgres 2>/dev/null && \
             runuser -u postgres -- pg/pg_ctl -s -w -D data stop",
        );
        for (name, client) in POSTGRES_NAMES.into_iter().zip([
            format!(
                "pgbench -h $PWD -p 7398 -U postgres -n -S -c 2 -t {} postgres",
                of(40_000)
            ),
            format!(
                "pgbench -h $PWD -p 7398 -U postgres -n -S -C -c 2 -t {} postgres",
                of(500)
            ),
        ]) {
            add(
                "pgbench",
                Work {
                    before: "exec runuser -u postgres --",
                    options: "--children",
                    server: Some(Server {
                        is_ready: "psql -h $PWD -p 7398 -U postgres -c 'select 1' postgres",
                        client,
                        questions: POSTGRES,
                        stop: "kill -INT $(head -1 data/postmaster.pid)",
                    }),
                    ..work(name, "pg/postgres -D data")
                },
            );
        }
    }
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
    let plimsoll = plimsoll.display();
    let runner = match way {
        0 => String::new(),
        RUN => format!("{plimsoll} run {} --", work.options),
        HEAPTRACK => "heaptrack -o heaptrack.out".to_owned(),
        MEMRAY => "memray run --native -q -f -o memray.out".to_owned(),
        _ => format!("{plimsoll} run --json {} --", work.options),
    };
    let program = match way {
        // It is a module of Python itself.
        MEMRAY => work.program.strip_prefix(PYTHON).unwrap_or(&work.program),
        _ => &work.program,
    };
    let before = if work.before.is_empty() {
        "exec"
    } else {
        work.before
    };
    // Another user may have written the earlier results.
    let line = format!("rm -f heaptrack.out* memray.out; {before} {runner} {program}");
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
    let time = match &work.server {
        None => {
            wait(&mut child, &line);
            started.elapsed()
        }
        Some(server) => {
            let is_ready = server.is_ready;
            ask(
                directory,
                &format!(
                    "for i in $(seq 300); do {is_ready} >/dev/null 2>&1 && exit 0; sleep 0.1; done; exit 1"
                ),
            );
            let started = Instant::now();
            ask(directory, &server.client);
            let time = started.elapsed();
            ask(directory, &format!("({}) > answers", server.questions));
            ask(directory, server.stop);
            wait(&mut child, &line);
            time
        }
    };
    let written = match (&work.server, work.makes) {
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
fn ask(directory: &Path, line: &str) {
    let mut shell = Command::new("/bin/sh");
    shell.current_dir(directory).args(["-c", line]);
    let status = shell.stdout(Stdio::null()).status();
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
    match way {
        0 => said(directory, "resident: "),
        JSON => std::fs::read_to_string(directory.join("errors"))
            .ok()?
            .lines()
            .filter_map(|line| {
                let after = line.split("\"resident_bytes\":").nth(1)?;
                let end = after.find(|digit: char| !digit.is_ascii_digit())?;
                after[..end].parse().ok()
            })
            // The largest of all processes, as the system reports it.
            .reduce(f64::max),
        _ => None,
    }
}

/// Returns a figure that [`line()`] printed, by its name.
fn said(directory: &Path, name: &str) -> Option<f64> {
    let text = std::fs::read_to_string(directory.join("errors")).ok()?;
    let mut lines = text.lines().rev();
    lines.find_map(|line| line.strip_prefix(name)?.parse().ok())
}
