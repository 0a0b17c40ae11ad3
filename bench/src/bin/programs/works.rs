//! The programs, their work, and its input.

use std::path::Path;
use std::process::{Command, Stdio};

/// A program with its work. The parts of its command line are for a shell in the directory.
pub struct Work {
    pub name: &'static str,
    /// What precedes the program and its runner: preparations, or another user.
    pub before: &'static str,
    /// The program with its arguments.
    pub program: String,
    /// Options of `plimsoll run`.
    pub options: &'static str,
    /// The file that the program writes, if any.
    pub makes: Option<&'static str>,
    /// For a server: its client, whose time is measured.
    pub server: Option<Server>,
}

/// What is done with a server, as lines for a shell.
pub struct Server {
    /// Succeeds when the server answers.
    pub is_ready: &'static str,
    pub client: String,
    /// Requests after the measurement, whose answers are compared.
    pub questions: &'static str,
    pub stop: &'static str,
}

/// Input that does not depend on the size of the work.
const FILES: [(&str, &str); 5] = [
    ("allocates.py", include_str!("allocates.py")),
    ("arrays.py", include_str!("arrays.py")),
    ("objects.js", include_str!("objects.js")),
    ("nginx.conf", include_str!("nginx.conf")),
    ("redis.sh", include_str!("redis.sh")),
];

/// The system's, since `python3` in `PATH` may be a script.
const PYTHON: &str = "/usr/bin/python3";

const POSTGRES: &str = "for table in pgbench_accounts pgbench_branches; do \
     psql -h $PWD -p 7398 -U postgres -At -c \"select count(*), sum(bid) from $table\" postgres; done";

/// Generates the input of the programs that are installed.
pub fn works(directory: &Path, per_cent: usize) -> Vec<Work> {
    let of = |full: usize| (full * per_cent / 100).max(1);
    let write =
        |name: &str, text: &str| std::fs::write(directory.join(name), text).expect("there is room");
    for (name, text) in FILES {
        write(name, text);
    }
    let rows = of(1_500_000).to_string();
    write(
        "insert.sql",
        &include_str!("insert.sql").replace("ROWS", &rows),
    );
    write("import", &import(of(40_000)));
    write("large.c", &large_c(of(1000)));
    write("templates.cc", &templates_cc(of(60)));
    write("lines", &lines(of(1 << 24)));
    let mut works = vec![
        work(
            "python3, objects and buffers",
            format!("{PYTHON} allocates.py {}", of(60)),
        ),
        work("python3, numpy", format!("{PYTHON} arrays.py {}", of(150))),
        work(
            "git log --stat",
            "git --no-pager -C repository log --stat main",
        ),
        Work {
            before: "rm -f db; exec",
            makes: Some("db"),
            ..work("sqlite3, bulk insert", "sqlite3 db < insert.sql")
        },
        Work {
            options: "--children",
            makes: Some("large.o"),
            ..work("gcc -O2, a large file", "gcc -O2 -c large.c -o large.o")
        },
        work(
            "node, objects and JSON",
            format!("node objects.js {}", of(100)),
        ),
        Work {
            before: "export LC_ALL=C; exec",
            makes: Some("sorted"),
            ..work("sort, 1 GB", "sort -S 60% lines -o sorted")
        },
        Work {
            server: Some(Server {
                is_ready: "redis-cli -p 7399 ping",
                client: format!(
                    "redis-benchmark -p 7399 -q -n {} -P 16 -r 100000 -t set,get,lpush,hset",
                    of(1_000_000)
                ),
                questions: ". ./redis.sh",
                stop: "redis-cli -p 7399 shutdown nosave; true",
            }),
            ..work(
                "redis-server, redis-benchmark",
                "redis-server --port 7399 --save '' --appendonly no",
            )
        },
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
    ];
    works.retain(|work| work.program.split(' ').next().is_some_and(is_there));
    if is_there("git") {
        ask(
            directory,
            "git init -q repository && cd repository && git fast-import --quiet < ../import && git gc -q",
        );
    }
    if is_there("pgbench") && is_there("pg_lsclusters") {
        ask(directory, include_str!("postgres.sh"));
        for (name, how, transactions) in [
            ("PostgreSQL, queries", "-S", of(40_000)),
            ("PostgreSQL, connections", "-S -C", of(500)),
        ] {
            works.push(Work {
                before: "exec runuser -u postgres --",
                options: "--children",
                server: Some(Server {
                    is_ready: "psql -h $PWD -p 7398 -U postgres -c 'select 1' postgres",
                    client: format!(
                        "pgbench -h $PWD -p 7398 -U postgres -n {how} -c 2 -t {transactions} postgres"
                    ),
                    questions: POSTGRES,
                    stop: "kill -INT $(head -1 data/postmaster.pid)",
                }),
                ..work(name, "pg/postgres -D data")
            });
        }
    }
    works
}

/// A program that writes only to standard output.
fn work(name: &'static str, program: impl Into<String>) -> Work {
    Work {
        name,
        before: "exec",
        program: program.into(),
        options: "",
        makes: None,
        server: None,
    }
}

/// Commits for git, each of three files.
fn import(commits: usize) -> String {
    let mut import = String::new();
    for commit in 0..commits {
        import.push_str(&format!(
            "commit refs/heads/main\ncommitter a <a@b> {} +0000\ndata 6\nchange\n",
            1_600_000_000 + commit
        ));
        for file in 0..3 {
            let of = |line: usize| (commit * 7 + file + line * line) % 997;
            let text: String = (0..40)
                .map(|line| format!("line {line} of {}\n", of(line)))
                .collect();
            let name = (commit * 31 + file * 17) % 500;
            import.push_str(&format!(
                "M 644 inline d{}/f{name}\ndata {}\n{text}\n",
                name % 20,
                text.len()
            ));
        }
    }
    import
}

fn large_c(functions: usize) -> String {
    let function = |at: usize| {
        format!(
            "int f{at}(int *a, int n) {{ int s = {at}; for (int i = 0; i < n; i++) {{ \
             if (a[i] % {} == 0) s += a[i] * {at}; else s ^= a[i] << (i & 7); }} return s; }}\n",
            at % 13 + 2
        )
    };
    (0..functions).map(function).collect()
}

const TEMPLATE: &str = "#include <algorithm>\n#include <map>\n#include <string>\n#include <vector>\n\
     template<int N> struct S { int x[N]; bool operator<(const S &o) const { return x[0] < o.x[0]; } };\n";

/// A text that nginx compresses.
fn templates_cc(functions: usize) -> String {
    let function = |at: usize| {
        format!(
            "int f{at}(int n) {{ std::map<std::string, std::vector<S<{at}>>> m; \
             for (int i = 0; i < n; i++) m[std::to_string(i)].push_back({{{{i}}}}); \
             int s = 0; for (auto &[k, v] : m) {{ std::sort(v.begin(), v.end()); s += k.size() + v[0].x[0]; }} return s; }}\n"
        )
    };
    let functions: String = (1..=functions).map(function).collect();
    format!("{TEMPLATE}{functions}")
}

fn lines(count: usize) -> String {
    let mut random = 88_172_645_463_325_252_u64;
    let line = |_| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        format!("{random:016x} some text to fill a line of sixty-four bytes......\n")
    };
    (0..count).map(line).collect()
}

/// Runs a line in a shell.
pub fn ask(directory: &Path, line: &str) {
    let status = Command::new("/bin/sh")
        .current_dir(directory)
        .args(["-c", line])
        .stdout(Stdio::null())
        .status();
    assert!(status.is_ok_and(|status| status.success()), "{line}");
}

/// Reports whether a program is installed.
pub fn is_there(program: &str) -> bool {
    let found = Command::new("/bin/sh")
        .args(["-c", &format!("command -v {program} >/dev/null")])
        .status();
    found.is_ok_and(|status| status.success())
}
