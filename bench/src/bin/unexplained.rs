//! Measures the memory of a program that has no known owner, under `plimsoll run`.
//!
//! `unexplained PLIMSOLL SECONDS LINE...`: the path of the command; the maximum time for which each
//! program is observed; and lines for the shell, each a program with its arguments, which is run by
//! `exec`. Reads the page `/debug/plimsoll/memory` repeatedly, and prints its content when the most
//! memory was resident: the share of each row of at least 1%, and the rest.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use plimsoll_bench::machine;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let plimsoll = arguments.next().expect("the path of plimsoll");
    let seconds = arguments.next().and_then(|word| word.parse().ok());
    let longest = Duration::from_secs(seconds.expect("a number of seconds"));
    println!("{}\n", machine::describe());
    println!("| program | resident in MiB | unexplained | rows | readings |");
    println!("|---|---|---|---|---|");
    for line in arguments {
        let (page, readings) = look(&plimsoll, &line, longest);
        let figure = |name| {
            let figure = number_behind(&page, name);
            figure.unwrap_or_else(|| panic!("`{line}`: no figure `{name}` in {readings} readings"))
        };
        let (total, rest) = (figure("kernel: resident"), figure("unexplained"));
        let share = |bytes: f64| 100.0 * bytes / total;
        let rows = page.lines().skip(1).take_while(|row| !row.is_empty());
        let rows: Vec<String> = rows
            .filter_map(|row| {
                let name = row
                    .split("  ")
                    .next()
                    .filter(|name| *name != "unexplained")?;
                let share = share(number_behind(&page, name)?);
                (share >= 1.0).then(|| format!("{name} {share:.1} %"))
            })
            .collect();
        println!(
            "| `{line}` | {:.1} | {:.2} % | {} | {readings} |",
            total / f64::from(1 << 20),
            share(rest),
            rows.join("; ")
        );
    }
}

/// Returns the page when the most memory was resident, and the number of readings.
fn look(plimsoll: &str, line: &str, longest: Duration) -> (String, usize) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
    let port = listener.local_addr().expect("it has one").port();
    drop(listener);
    let script = format!("exec '{plimsoll}' run --quiet --http {port} -- {line}");
    let mut child = Command::new("/bin/sh")
        .args(["-c", &script])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .expect("there is a shell");
    let begun = Instant::now();
    let (mut most, mut readings) = (String::new(), 0);
    while begun.elapsed() < longest && child.try_wait().is_ok_and(|ended| ended.is_none()) {
        if let Some(page) = read(port) {
            readings += 1;
            let resident = |page: &str| number_behind(page, "kernel: resident").unwrap_or(0.0);
            if resident(&page) > resident(&most) {
                most = page;
            }
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    // SAFETY: the child is not waited for yet, so the id is its own. It forwards the signal.
    unsafe { libc::kill(child.id() as i32, libc::SIGTERM) };
    let _ = child.wait();
    (most, readings)
}

fn read(port: u16) -> Option<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
    let request = "GET /debug/plimsoll/memory HTTP/1.0\r\nHost: localhost\r\n\r\n";
    stream.write_all(request.as_bytes()).ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    let (_, page) = answer.split_once("\r\n\r\n")?;
    Some(page.to_owned())
}

/// Returns the last number of bytes in the line with this beginning.
fn number_behind(page: &str, name: &str) -> Option<f64> {
    let behind = |line: &str| {
        let rest = line.strip_prefix(name)?.strip_prefix("  ")?;
        let words = rest.split_whitespace();
        let mut numbers = words.filter_map(|word| word.parse::<i64>().ok());
        numbers.next_back().map(|bytes| bytes as f64)
    };
    page.lines().find_map(behind)
}
