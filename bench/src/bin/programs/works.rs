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

const REDIS: &str = "for i in 1 2 3 4 5 6 7 8 9; do redis-cli -p 7399 rpush numbers $((i * 7919 % 101)); done; \
     redis-cli -p 7399 sort numbers; redis-cli -p 7399 eval 'return redis.sha1hex(string.rep(\"a\", 100000))' 0; \
     redis-cli -p 7399 lrange numbers 0 -1; redis-cli -p 7399 nothing; true";

const POSTGRES: &str = "for table in pgbench_accounts pgbench_branches; do \
     psql -h $PWD -p 7398 -U postgres -At -c \"select count(*), sum(bid) from $table\" postgres; done";

/// Programs whose input is large, or whose preparation takes time.
const LOG: &str = "git log --stat";
const SORT: &str = "sort, 1 GB";
const POSTGRES_NAMES: [&str; 2] = ["PostgreSQL, queries", "PostgreSQL, connections"];

/// The system's, since `python3` in `PATH` may be a script.
pub const PYTHON: &str = "/usr/bin/python3 ";

/// Generates the input of the programs with `wanted` in their names.
pub fn works(directory: &Path, per_cent: usize, wanted: &str) -> Vec<Work> {
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

/// Reports whether a program is installed.
pub fn is_there(program: &str) -> bool {
    let found = Command::new("/bin/sh")
        .args(["-c", &format!("command -v {program} >/dev/null")])
        .status();
    found.is_ok_and(|status| status.success())
}
