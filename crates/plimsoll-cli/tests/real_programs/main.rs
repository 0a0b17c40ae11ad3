//! Programs of a distribution do the same under `plimsoll run` as without it: their output and their status.
//!
//! A scenario is a script for `bash`, which begins the program with `$RUN` and prints what its users see. Each
//! runs without Plimsoll, under `plimsoll run`, and with `--children`. A scenario whose programs are not installed is
//! skipped. All take minutes together, so they are a part of the nightly run.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

/// Functions that the scenarios share.
const SHARED: &str = r#"
set -u
cd "$D"
# Waits until the port accepts connections.
listens() {
    for _ in $(seq 600); do
        (exec 3<>"/dev/tcp/127.0.0.1/$PORT") 2>/dev/null && return
        sleep 0.1
    done
    echo "nothing listens"
}
# Ends the program in the background by a signal, and prints its status.
ends_by() {
    kill "-$1" "$!"
    wait "$!"
    echo "status $?"
}
"#;

struct Scenario {
    /// The programs that must be installed.
    programs: &'static [&'static str],
    /// Whether it needs the superuser; otherwise it does not run as that user.
    is_privileged: bool,
    script: &'static str,
}

/// Runs a scenario in the three ways and compares.
fn compare(scenario: &Scenario) {
    // SAFETY: has no preconditions.
    let is_root = unsafe { libc::geteuid() } == 0;
    let missing = scenario
        .programs
        .iter()
        .find(|program| !is_installed(program));
    if let Some(missing) = missing {
        plimsoll_testkit::skip!("{missing} is not installed");
        return;
    }
    if scenario.is_privileged && !is_root {
        plimsoll_testkit::skip!("needs the superuser");
        return;
    }
    let plimsoll = env!("CARGO_BIN_EXE_plimsoll");
    let alone = output_of(scenario, is_root, "");
    assert!(!alone.is_empty());
    for options in ["", "--children"] {
        let with = output_of(scenario, is_root, &format!("{plimsoll} run {options} --"));
        assert_eq!(with, alone, "with options {options:?}");
    }
}

/// A directory that all users can write to, removed on drop.
struct Folder(PathBuf);

impl Folder {
    fn make() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("plimsoll-real-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::create_dir(&path).expect("a directory can be made");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o777)).unwrap();
        Self(path)
    }

    fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // A program may still write to it.
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn is_installed(program: &str) -> bool {
    let search = format!("command -v {program}");
    let found = Command::new("bash")
        .args(["-c", &search])
        .env("PATH", path())
        .output();
    found.is_ok_and(|found| found.status.success())
}

/// Servers lie in directories that ordinary users may not search.
fn path() -> String {
    let path = std::env::var("PATH").unwrap_or_default();
    format!("{path}:/usr/sbin:/usr/lib/postgresql/15/bin:/usr/lib/postgresql/17/bin")
}

/// Returns what the script prints. What Plimsoll and the programs print to standard error is not compared.
fn output_of(scenario: &Scenario, is_root: bool, run: &str) -> String {
    let folder = Folder::make();
    // Another program may take the port meanwhile, which the scenario shows.
    let port = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
    let script = format!("{SHARED}{}", scenario.script);
    let mut command = match is_root && !scenario.is_privileged {
        true => {
            let mut command = Command::new("setpriv");
            command.args([
                "--reuid=65534",
                "--regid=65534",
                "--clear-groups",
                "timeout",
            ]);
            command
        }
        false => Command::new("timeout"),
    };
    let output = command
        .args(["--kill-after=5", "180", "bash", "-c", &script])
        .env("RUN", run)
        .env("D", folder.path())
        .env("HOME", folder.path())
        .env("TMPDIR", folder.path())
        .env("PATH", path())
        .env("PORT", port.expect("a port is free").port().to_string())
        .output()
        .expect("bash is installed");
    let errors = String::from_utf8_lossy(&output.stderr);
    eprintln!(
        "{run:?} in {}: {}\n{errors}",
        folder.path().display(),
        output.status
    );
    show_logs(folder.path());
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Prints the files with the programs' standard error.
fn show_logs(folder: &Path) {
    if let Ok(log) = fs::read(folder.join("log")) {
        eprintln!("{}", String::from_utf8_lossy(&log));
    }
}

#[test]
#[ignore = "takes minutes"]
fn sshd_lets_users_log_in() {
    compare(&Scenario {
        programs: &["sshd", "ssh", "ssh-keygen"],
        is_privileged: true,
        script: r#"
mkdir -p /run/sshd
for key in host user; do ssh-keygen -q -t ed25519 -N '' -f $key; done
cp user.pub authorized
$RUN "$(command -v sshd)" -D -e -f /dev/null -h "$D/host" -p $PORT -o ListenAddress=127.0.0.1 -o StrictModes=no \
    -o "AuthorizedKeysFile=$D/authorized" -o PidFile=none -o UsePAM=no 2>log &
listens
for _ in $(seq 20); do
    ssh -i user -p $PORT -o BatchMode=yes -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR \
        "$(id -un)@127.0.0.1" 'echo hello' 2>>log
    echo "status $?"
done
ends_by TERM
"#,
    });
}

#[test]
#[ignore = "takes minutes"]
fn chronyd_confines_itself() {
    compare(&Scenario {
        programs: &["chronyd"],
        is_privileged: true,
        script: r#"
for level in 1 2 -1 -2; do
    $RUN chronyd -F $level -x -t 3 -Q 'server 127.0.0.1 iburst' >log 2>&1
    echo "status $?"
done
"#,
    });
}

#[test]
#[ignore = "takes minutes"]
fn bubblewrap_makes_a_sandbox() {
    compare(&Scenario {
        programs: &["bwrap"],
        is_privileged: false,
        script: r#"
$RUN bwrap --ro-bind / / --dev /dev --proc /proc --tmpfs /tmp --unshare-all --die-with-parent \
    sh -c 'echo "process $$"; ls /tmp; cat /proc/1/comm' 2>log
echo "status $?"
"#,
    });
}

#[test]
#[ignore = "takes minutes"]
fn systemd_run_restricts_system_calls() {
    compare(&Scenario {
        programs: &["systemd-run", "/run/systemd/system/."],
        is_privileged: true,
        script: r#"
systemd-run --wait --pipe --quiet -p SystemCallFilter=@system-service $RUN /bin/echo inside 2>log
echo "status $?"
"#,
    });
}

#[test]
#[ignore = "takes minutes"]
fn stressors_succeed() {
    compare(&Scenario {
        programs: &["stress-ng"],
        is_privileged: false,
        script: r#"
for stressor in seccomp vfork clone fork kill sigsegv sigfpe sigpipe sigq; do
    $RUN stress-ng --$stressor 1 --$stressor-ops 30 --timeout 20 >>log 2>&1
    echo "$stressor: status $?"
done
"#,
    });
}

#[test]
#[ignore = "takes minutes"]
fn memcached_drops_its_privileges() {
    compare(&Scenario {
        programs: &["memcached"],
        is_privileged: true,
        script: r#"
user=$(id -nu 65534)
$RUN memcached -u "$user" -l 127.0.0.1 -p $PORT 2>log &
listens
exec 3<>/dev/tcp/127.0.0.1/$PORT
printf 'set key 0 0 5\r\nvalue\r\nget key\r\nquit\r\n' >&3
cat <&3
ends_by TERM
"#,
    });
}

#[test]
#[ignore = "takes minutes"]
fn postgresql_answers() {
    compare(&Scenario {
        programs: &["initdb", "postgres", "psql"],
        is_privileged: false,
        script: r#"
initdb -D data -U user -A trust -N >log 2>&1
$RUN postgres -D data -p $PORT -k "$D" -c listen_addresses=127.0.0.1 2>>log &
listens
ask() { psql -h 127.0.0.1 -p $PORT -U user -d postgres -At -c "$1" 2>&1; }
ask 'create table t as select i, md5(i::text) m from generate_series(1, 50000) i'
ask 'select count(*), max(m) from t'
ask 'select 1/0'
for i in $(seq 20); do ask "select sum(i) from t where i % $i = 0"; done
ends_by INT
"#,
    });
}

#[test]
#[ignore = "takes minutes"]
fn nginx_serves_files() {
    compare(&Scenario {
        programs: &["nginx"],
        is_privileged: true,
        script: r#"
mkdir files; echo page >files/index.html; chmod 755 . files
cat >conf <<END
daemon off;
worker_processes 2;
pid $D/pid;
error_log $D/log;
events {}
http { access_log off; server { listen 127.0.0.1:$PORT; root $D/files; } }
END
$RUN nginx -e "$D/log" -c "$D/conf" 2>>log &
listens
for path in / /none; do
    exec 3<>/dev/tcp/127.0.0.1/$PORT
    printf 'GET %s HTTP/1.0\r\n\r\n' $path >&3
    grep -v '^Date\|^Last-Modified\|^ETag' <&3
done
ends_by QUIT
"#,
    });
}

#[test]
#[ignore = "takes minutes"]
fn chromium_renders_in_its_sandbox() {
    compare(&Scenario {
        programs: &["chromium"],
        is_privileged: false,
        script: r#"
echo '<p id=x>before</p><script>x.textContent = [3, 1, 2].sort().join("-")</script>' >page.html
$RUN chromium --headless --disable-gpu --user-data-dir="$D/profile" --dump-dom "file://$D/page.html" 2>log
echo "status $?"
"#,
    });
}

#[test]
#[ignore = "takes minutes"]
fn firefox_renders_in_its_sandbox() {
    compare(&Scenario {
        programs: &["firefox-esr"],
        is_privileged: false,
        script: r#"
echo '<p>page</p>' >page.html
mkdir profile
$RUN firefox-esr --headless --profile "$D/profile" --window-size 200,200 --screenshot "$D/page.png" "file://$D/page.html" \
    >log 2>&1
echo "status $?"
file -b page.png
"#,
    });
}
