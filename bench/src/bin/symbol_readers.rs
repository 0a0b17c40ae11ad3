//! Compares time and memory of two readers of debug information: `plimsoll-symbolize`, and
//! `addr2line` with its loader.
//!
//! `symbol_readers [PROGRAM [ADDRESSES [ROUNDS]]]`: by default this program itself, 2,000 addresses
//! and 5 rounds. The addresses are spread over the functions of the program. Each reader finds the
//! functions, files, lines and inlined calls of all addresses, in a new process for each round.
//! Memory is the growth of the peak of resident memory during the work; *anonymous* is the part
//! that no file backs, at the end of the work.

use std::io::{Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use object::{Object, ObjectSegment, ObjectSymbol, SymbolKind};
use plimsoll_bench::process_memory::{self, Status};
use plimsoll_bench::quantiles::median;
use plimsoll_bench::{clock, machine};
use plimsoll_symbolize::Detail;
use plimsoll_symbolize::offline::{self, DebugFiles, MappedCode};

/// The variable that selects the reader of a process.
const READER: &str = "PLIMSOLL_BENCH_READER";

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let here = std::env::current_exe().expect("this program has a path");
    let program = arguments.first().map_or(here.clone(), Into::into);
    if let Ok(reader) = std::env::var(READER) {
        return read(&reader, &program);
    }
    let number = |at: usize, default| {
        arguments
            .get(at)
            .map_or(default, |text| text.parse().expect("a number"))
    };
    let (count, rounds) = (number(1, 2000), number(2, 5));
    println!("{}\n", machine::describe());
    let text = addresses(&program, count);
    println!(
        "{}: {} addresses, medians of {rounds} rounds\n",
        program.display(),
        text.lines().count()
    );
    println!("| reader | ms | peak KiB | anonymous KiB | frames |\n|---|---|---|---|---|");
    for reader in ["plimsoll-symbolize", "addr2line"] {
        let rows: Vec<[f64; 4]> = (0..rounds)
            .map(|_| run(&here, &program, reader, &text))
            .collect();
        let column = |at: usize| median(&mut rows.iter().map(|row| row[at]).collect::<Vec<_>>());
        println!(
            "| {reader} | {:.1} | {:.0} | {:.0} | {:.0} |",
            column(0),
            column(1),
            column(2),
            column(3)
        );
    }
}

/// Returns addresses in the middle of functions, one per line.
fn addresses(program: &Path, count: usize) -> String {
    let bytes = std::fs::read(program).expect("the program can be read");
    let file = object::File::parse(&*bytes).expect("the program is ELF");
    let functions = file
        .symbols()
        .filter(|symbol| symbol.kind() == SymbolKind::Text && symbol.size() > 16);
    let mut middles: Vec<u64> = functions
        .map(|symbol| symbol.address() + symbol.size() / 2)
        .collect();
    middles.sort_unstable();
    middles.dedup();
    let stride = middles.len().div_ceil(count).max(1);
    middles
        .iter()
        .step_by(stride)
        .map(|at| format!("{at}\n"))
        .collect()
}

fn run(here: &Path, program: &Path, reader: &str, addresses: &str) -> [f64; 4] {
    let mut child = Command::new(here)
        .arg(program)
        .env(READER, reader)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("this program can be run");
    let mut input = child.stdin.take().expect("it is piped");
    input
        .write_all(addresses.as_bytes())
        .expect("the process reads");
    drop(input);
    let output = child.wait_with_output().expect("the process ends");
    assert!(output.status.success(), "{reader}: {}", output.status);
    let text = String::from_utf8_lossy(&output.stdout);
    let mut numbers = text
        .split_whitespace()
        .map(|number| number.parse().expect("a number"));
    std::array::from_fn(|_| numbers.next().expect("four numbers"))
}

/// Reads the addresses from standard input, and prints the time and memory of finding them.
fn read(reader: &str, program: &Path) {
    let mut text = String::new();
    std::io::stdin()
        .read_to_string(&mut text)
        .expect("addresses");
    let addresses: Vec<u64> = text
        .lines()
        .map(|line| line.parse().expect("an address"))
        .collect();
    let mapped = mapped(program);
    let status = Status::open();
    process_memory::forget_peak();
    let (peak, anonymous) = (status.kib("VmHWM"), status.kib("RssAnon"));
    let start = clock::wall();
    let (frames, after) = match reader {
        "addr2line" => by_addr2line(program, &addresses, &status),
        _ => by_plimsoll(&mapped, &addresses, &status),
    };
    let took = (clock::wall() - start) as f64 / 1e6;
    let peak = status.kib("VmHWM").saturating_sub(peak);
    println!("{took} {peak} {} {frames}", after.saturating_sub(anonymous));
}

/// Returns the program's code, at the addresses in its file.
fn mapped(program: &Path) -> Vec<MappedCode> {
    let bytes = std::fs::read(program).expect("the program can be read");
    let file = object::File::parse(&*bytes).expect("the program is ELF");
    let segments = file.segments().map(|segment| MappedCode {
        start: segment.address(),
        limit: segment.address() + segment.size(),
        offset: segment.file_range().0,
        file: program.to_string_lossy().into_owned(),
        build_id: String::new(),
    });
    segments.collect()
}

fn by_plimsoll(mapped: &[MappedCode], addresses: &[u64], status: &Status) -> (usize, u64) {
    // The reader looks up the byte before a return address.
    let addresses: Vec<u64> = addresses.iter().map(|at| at + 1).collect();
    let mut frames = 0;
    let mut files = DebugFiles::default();
    offline::symbolize(
        mapped,
        &addresses,
        Detail::Full,
        &mut files,
        |_, found, _| {
            frames += found.iter().filter(|frame| frame.line > 0).count();
        },
    );
    (frames, status.kib("RssAnon"))
}

fn by_addr2line(program: &Path, addresses: &[u64], status: &Status) -> (usize, u64) {
    let loader = addr2line::Loader::new(program).expect("the program can be read");
    let mut frames = 0;
    for &address in addresses {
        let Ok(mut found) = loader.find_frames(address) else {
            continue;
        };
        while let Ok(Some(frame)) = found.next() {
            // Demangles the name, as a profile does.
            let name = frame
                .function
                .as_ref()
                .map(|function| function.demangle().map(|name| name.len()));
            std::hint::black_box(name.and_then(Result::ok));
            let line = frame.location.and_then(|location| location.line);
            frames += usize::from(line.is_some_and(|line| line > 0));
        }
    }
    (frames, status.kib("RssAnon"))
}
