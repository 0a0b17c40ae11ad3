//! Compares the predicted times at which control groups reach their limits with the times at which the kernel kills.
//!
//! `limits [PROGRAMS]`, 20 by default. Each program runs in a control group with a limit of 256 MiB, for 60 seconds if nothing
//! ends it, four at a time. It states its nearest limit each second. A prediction is right if the kernel kills the program after
//! that time, to a fifth, or in a program that lives on if the end of the run comes first. One that the program states as
//! unknown is neither right nor wrong. Predictions within the last two seconds do not count. Needs the right to create control
//! groups.

use std::fs::File;
use std::hint::black_box;
use std::io::{BufRead as _, BufReader, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::fd::{FromRawFd as _, OwnedFd};
use std::os::unix::net::UnixDatagram;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use plimsoll::stats::nearest_limit;
use plimsoll_bench::arguments::number;
use plimsoll_bench::{machine, quantiles::median, table};
use plimsoll_testkit::control_group::Group;

#[global_allocator]
static ALLOC: plimsoll::Alloc = plimsoll::Alloc::system();

const MIB: usize = 1 << 20;

/// The limit of each group, in bytes.
const LIMIT: u64 = 256 << 20;

/// The time after which a program ends.
const RUN: Duration = Duration::from_secs(60);

/// The number of programs that run at a time.
const AT_A_TIME: usize = 4;

/// The time between two steps of a program.
const STEP: Duration = Duration::from_millis(100);

/// Predictions of less than this do not count.
const SHORTEST: f64 = 2.0;

/// The greatest error of a right prediction, as a part of the time.
const RIGHT: f64 = 0.2;

/// A program: its name, and what it does at each step, of which it gets the time since its start in seconds.
type Program = (&'static str, fn() -> Box<dyn FnMut(f64)>);

/// Returns a step that keeps what `piece` makes, as often as `pieces` says for the time.
fn keep<T: 'static>(
    mut piece: impl FnMut() -> T + 'static,
    pieces: impl Fn(f64) -> f64 + 'static,
) -> Box<dyn FnMut(f64)> {
    let mut kept = Vec::new();
    Box::new(move |seconds| {
        while (kept.len() as f64) < pieces(seconds) {
            kept.push(piece());
        }
    })
}

/// Returns written blocks of a mebibyte in all.
fn blocks() -> Vec<Vec<u8>> {
    (0..64).map(|_| black_box(vec![1; MIB / 64])).collect()
}

/// Maps memory, and writes to all of it.
fn map(bytes: usize, flags: i32) -> *mut libc::c_void {
    // SAFETY: a new mapping, all of which may be written.
    unsafe {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let flags = flags | libc::MAP_ANONYMOUS;
        let start = libc::mmap(std::ptr::null_mut(), bytes, access, flags, -1, 0);
        assert_ne!(start, libc::MAP_FAILED);
        start.cast::<u8>().write_bytes(1, bytes);
        start
    }
}

/// Returns a new file without a name in a directory.
fn file(directory: &str) -> File {
    let path = format!("{directory}/plimsoll-limits-{}", std::process::id());
    let file = File::options()
        .read(true)
        .write(true)
        .create_new(true)
        .open(&path);
    let file = file.expect("the directory may be written");
    std::fs::remove_file(&path).expect("its own file");
    file
}

fn append(file: &mut File) {
    file.write_all(&black_box(vec![1; MIB]))
        .expect("there is room");
}

fn stack() {
    let touch = || {
        let mut space = std::mem::MaybeUninit::<[u8; MIB]>::uninit();
        // SAFETY: all of it may be written.
        unsafe { space.as_mut_ptr().cast::<u8>().write_bytes(1, MIB) };
        black_box(&space);
        std::thread::park();
    };
    let thread = std::thread::Builder::new().stack_size(4 * MIB);
    drop(thread.spawn(touch).expect("a thread"));
}

/// Fills the buffer of a socket with a quarter of a mebibyte, or less if its limit is lower.
fn socket() -> (UnixDatagram, UnixDatagram) {
    let pair = UnixDatagram::pair().expect("sockets");
    pair.0.set_nonblocking(true).expect("a socket");
    while pair.0.send(&[1; 4096]).is_ok() {}
    pair
}

/// Grows in another process by a mebibyte for each piece.
#[expect(clippy::zombie_processes, reason = "the kernel ends both")]
fn another_process() -> Box<dyn FnMut(f64)> {
    let mut child = Command::new("tail");
    let child = child.args(["-c", "1000000000"]).stdin(Stdio::piped());
    let mut child = child.stdout(Stdio::null()).spawn().expect("tail");
    let mut input = child.stdin.take().expect("piped");
    let mut written = 0;
    Box::new(move |seconds| {
        while (written as f64) < 8.0 * seconds {
            // The kernel may have killed the other process.
            if input.write_all(&[1; MIB]).is_err() {
                let _ = child.wait();
                std::process::abort();
            }
            written += 1;
        }
    })
}

const PROGRAMS: [Program; 20] = [
    ("blocks, 8 MiB/s", || keep(blocks, |at| 8.0 * at)),
    ("cached file, written", || {
        let mut file = file("/var/tmp");
        Box::new(move |_| append(&mut file))
    }),
    ("mappings, 8 MiB/s", || {
        keep(|| map(MIB, libc::MAP_PRIVATE), |at| 8.0 * at)
    }),
    ("shared mappings, 8 MiB/s", || {
        keep(|| map(MIB, libc::MAP_SHARED), |at| 8.0 * at)
    }),
    ("memory file, 8 MiB/s", || {
        // SAFETY: the name is a C string, and the descriptor is a new one.
        let held = unsafe { OwnedFd::from_raw_fd(libc::memfd_create(c"held".as_ptr(), 0)) };
        let mut held = File::from(held);
        keep(move || append(&mut held), |at| 8.0 * at)
    }),
    ("tmpfs, 8 MiB/s", || {
        let mut file = file("/dev/shm");
        keep(move || append(&mut file), |at| 8.0 * at)
    }),
    ("stacks, 8 MiB/s", || keep(stack, |at| 8.0 * at)),
    ("blocks, 5 MiB/s", || keep(blocks, |at| 5.0 * at)),
    ("blocks, 16 MiB/s", || keep(blocks, |at| 16.0 * at)),
    ("blocks in another process, 8 MiB/s", another_process),
    ("blocks and a cached file", || {
        let (mut file, mut grow) = (file("/var/tmp"), keep(blocks, |at| 8.0 * at));
        Box::new(move |at| {
            append(&mut file);
            grow(at);
        })
    }),
    ("cached file, read", || {
        let mut file = file("/var/tmp");
        (0..400).for_each(|_| append(&mut file));
        let mut part = vec![0; MIB];
        Box::new(move |_| {
            if file.read(&mut part).expect("the file") == 0 {
                file.seek(SeekFrom::Start(0)).expect("the file");
            }
        })
    }),
    ("blocks, 8 MiB/s from 20 s on", || {
        keep(blocks, |at| 8.0 * (at - 20.0))
    }),
    ("blocks, 8 MiB/s up to 20 s", || {
        keep(blocks, |at| 8.0 * at.min(20.0))
    }),
    ("blocks, 16 MiB each 2 s", || {
        keep(blocks, |at| 16.0 * (at / 2.0).floor())
    }),
    ("blocks, 64 MiB each 12 s", || {
        keep(blocks, |at| 64.0 * (at / 12.0).floor())
    }),
    ("blocks, twice as fast each 10 s", || {
        keep(blocks, |at| 10.0 * (at / 10.0).exp2())
    }),
    ("blocks, up to 160 MiB and freed, each 16 s", || {
        let mut kept = Vec::new();
        Box::new(move |at| {
            let wanted = (10.0 * (at % 16.0)) as usize;
            kept.truncate(wanted);
            while kept.len() < wanted {
                kept.push(blocks());
            }
        })
    }),
    ("buffers of sockets, 40 a second", || {
        keep(socket, |at| 40.0 * at)
    }),
    ("nothing", || Box::new(|_| {})),
];

/// Runs a program in its group, and states its nearest limit each second.
fn run(program: &Program) {
    let _plimsoll = plimsoll::config().heap_rate(0).start();
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: the struct is writable and has the right layout.
    unsafe {
        libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit);
        limit.rlim_cur = limit.rlim_max;
        libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit);
    }
    let mut step = program.1();
    let began = Instant::now();
    let mut stated = 0;
    while began.elapsed() < RUN {
        let seconds = began.elapsed().as_secs_f64();
        step(seconds);
        if seconds as u64 > stated {
            stated = seconds as u64;
            let nearest = nearest_limit().expect("the group has a limit");
            let left = nearest.time_left.map(|time| time.as_secs_f64());
            let group = nearest.group.as_deref().unwrap_or("-");
            let left = left.map_or_else(|| "-".to_owned(), |left| left.to_string());
            let known = nearest.bytes_per_second.is_some();
            println!("{} {known} {left} {group}", began.elapsed().as_secs_f64());
        }
        std::thread::sleep(STEP);
    }
    println!("end");
}

/// What became of a program's predictions.
#[derive(Default)]
struct Outcome {
    /// The time of the end, in seconds; whether the kernel killed it.
    seconds: f64,
    is_killed: bool,
    unknown: usize,
    /// Errors as a part of the time that was left.
    errors: Vec<f64>,
    /// Predictions of an end that did not come, or of none where it came.
    missed: usize,
    /// Predictions for another limit than the group's.
    of_other_limits: usize,
}

fn observe(index: usize) -> Result<Outcome, String> {
    let group = Group::new(LIMIT)?;
    let mut command = Command::new(std::env::current_exe().expect("a path"));
    command
        .args(["child", &index.to_string()])
        .stdout(Stdio::piped());
    group.contain(&mut command);
    let began = Instant::now();
    let mut child = command.spawn().map_err(|error| error.to_string())?;
    let output = BufReader::new(child.stdout.take().expect("piped"));
    let lines: Vec<String> = output.lines().map_while(Result::ok).collect();
    let mut outcome = Outcome {
        is_killed: lines.last().is_none_or(|line| line != "end"),
        ..Outcome::default()
    };
    let _ = child.wait();
    outcome.seconds = began.elapsed().as_secs_f64();
    for line in lines.iter().filter(|line| *line != "end") {
        let words: Vec<&str> = line.split(' ').collect();
        let [at, known, left, limited] = words[..] else {
            return Err(format!("{line:?}"));
        };
        let at: f64 = at.parse().map_err(|_| line.clone())?;
        let left: Option<f64> = left.parse().ok();
        let really = outcome.seconds - at;
        if really < SHORTEST {
            continue;
        }
        match (known == "true", left, outcome.is_killed) {
            (false, ..) => outcome.unknown += 1,
            (true, Some(left), true) => {
                outcome.errors.push((left - really).abs() / really);
                outcome.of_other_limits += usize::from(!limited.ends_with(group.name()));
            }
            (true, Some(left), false) if left < really => outcome.missed += 1,
            (true, None, true) => outcome.missed += 1,
            (true, _, false) => outcome.errors.push(0.0),
        }
    }
    Ok(outcome)
}

fn main() -> ExitCode {
    if std::env::args().nth(1).as_deref() == Some("child") {
        run(&PROGRAMS[number(2, 0)]);
        return ExitCode::SUCCESS;
    }
    machine::print();
    let count = number(1, PROGRAMS.len()).min(PROGRAMS.len());
    println!(
        "a limit of {} MiB; aim: each prediction right to a fifth, or stated as unknown",
        LIMIT >> 20
    );
    table::head("| program | end | predictions | right | unknown | median error | largest error |");
    let indices: Vec<usize> = (0..count).collect();
    let (mut right, mut all) = (0, 0);
    for together in indices.chunks(AT_A_TIME) {
        let outcomes = std::thread::scope(|scope| {
            let running: Vec<_> = together
                .iter()
                .map(|&index| scope.spawn(move || observe(index)))
                .collect();
            let ended = running.into_iter().map(|one| one.join().expect("no panic"));
            ended.collect::<Result<Vec<_>, String>>()
        });
        let outcomes = match outcomes {
            Ok(outcomes) => outcomes,
            Err(why) => {
                eprintln!("limits: {why}");
                return ExitCode::FAILURE;
            }
        };
        for (&index, outcome) in together.iter().zip(outcomes) {
            let end = match outcome.is_killed {
                true => format!("killed after {:.1} s", outcome.seconds),
                false => "not killed".to_owned(),
            };
            let within = outcome
                .errors
                .iter()
                .filter(|&&error| error <= RIGHT)
                .count();
            let within = within.saturating_sub(outcome.of_other_limits);
            let made = outcome.errors.len() + outcome.missed;
            (right, all) = (right + within, all + made);
            let per_cent = |error: Option<f64>| {
                error.map_or_else(|| "-".to_owned(), |error| format!("{:.0} %", 100.0 * error))
            };
            let largest = outcome.errors.iter().copied().reduce(f64::max);
            let middle = (!outcome.errors.is_empty()).then(|| median(&outcome.errors));
            println!(
                "| {} | {end} | {made} | {within} | {} | {} | {} |",
                PROGRAMS[index].0,
                outcome.unknown,
                per_cent(middle),
                per_cent(largest),
            );
        }
    }
    println!("\n{right} of {all} predictions are right");
    match all {
        0 => ExitCode::FAILURE,
        _ => ExitCode::SUCCESS,
    }
}
