//! Compares time and memory of two readers of debug information: `plimsoll-symbolize`, and
//! `addr2line` with its loader.
//!
//! Up to 2,000 addresses are spread over the functions of this program. Each reader finds the
//! functions, files, lines and inlined calls of all addresses, in a new process for each of 5
//! rounds. *Anonymous* is the growth of the resident memory that no file backs, at the end of the
//! work.

use std::path::Path;

use object::{Object, ObjectSegment, ObjectSymbol, SymbolKind};
use plimsoll_bench::children::{again, numbers, this};
use plimsoll_bench::process_memory::Status;
use plimsoll_bench::quantiles::median;
use plimsoll_bench::{clock, machine, table};
use plimsoll_symbolize::Detail;
use plimsoll_symbolize::offline::{self, DebugFiles, MappedCode};

const ADDRESSES: usize = 2000;
const ROUNDS: usize = 5;
const READERS: [&str; 2] = ["plimsoll-symbolize", "addr2line"];

fn main() {
    let program = this();
    let mut arguments = std::env::args().skip(1);
    if let Some(reader) = arguments.next() {
        let addresses = arguments.map(|at| at.parse().expect("an address"));
        return read(&reader, &program, &addresses.collect::<Vec<u64>>());
    }
    machine::print();
    let addresses = addresses(&program);
    println!(
        "{}: {} addresses, medians of {ROUNDS} rounds\n",
        program.display(),
        addresses.len()
    );
    table::head("| reader | ms | anonymous KiB |");
    for reader in READERS {
        let mut arguments = vec![reader];
        arguments.extend(addresses.iter().map(String::as_str));
        let rows: Vec<Vec<f64>> = (0..ROUNDS)
            .map(|_| numbers(&again("", &arguments)))
            .collect();
        let column = |at: usize| median(&rows.iter().map(|row| row[at]).collect::<Vec<_>>());
        println!("| {reader} | {:.1} | {:.0} |", column(0), column(1));
    }
}

/// Returns addresses in the middle of functions.
fn addresses(program: &Path) -> Vec<String> {
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
    let stride = middles.len().div_ceil(ADDRESSES).max(1);
    let chosen = middles.iter().step_by(stride);
    chosen.map(u64::to_string).collect()
}

/// Prints the time in ms and the memory in KiB of finding the addresses.
fn read(reader: &str, program: &Path, addresses: &[u64]) {
    let mapped = mapped(program);
    let status = Status::open();
    let before = status.kib("RssAnon");
    let start = clock::wall();
    let (frames, after) = match reader {
        "addr2line" => by_addr2line(program, addresses, &status),
        _ => by_plimsoll(&mapped, addresses, &status),
    };
    let took = (clock::wall() - start) as f64 / 1e6;
    assert!(frames > 0, "{reader} finds no line");
    println!("{took} {}", after.saturating_sub(before));
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
