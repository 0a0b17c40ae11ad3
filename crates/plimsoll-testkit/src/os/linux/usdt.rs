//! Reads probes, without a tool: from the ELF notes of a file, and live from a program that runs under
//! `ptrace` with breakpoints on the probes.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::io::{Error, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::ptr::{null_mut, without_provenance_mut};

use object::read::elf::{ElfFile64, FileHeader as _, ProgramHeader as _, SectionHeader as _};
use object::{Endianness, elf};

use super::arch::{ARGUMENTS, BREAKPOINT, NOP, stopped_at};

/// The provider of the probes that are read.
const PROVIDER: &str = "otel_memory";

/// The type of a probe's note.
const PROBE: u32 = 3;

/// A probe, as a note describes it.
#[derive(Clone, Debug)]
pub struct Probe {
    pub name: String,
    pub address: u64,
    pub semaphore: u64,
    pub arguments: String,
    /// The position of the instruction in the file.
    pub offset: u64,
    /// Whether the instruction is a `nop` in executable memory.
    pub is_executable_nop: bool,
}

/// Reads the probes of the provider `otel_memory` from a file, in the order of the notes.
pub fn probes(file: &Path) -> Vec<Probe> {
    let bytes = fs::read(file).expect("the program can be read");
    let program = ElfFile64::<Endianness>::parse(&*bytes).expect("an ELF file");
    let endian = program.endian();
    let header = program.elf_header();
    let sections = header.sections(endian, &*bytes).expect("sections");
    let mut probes = Vec::new();
    for section in sections.iter() {
        if sections.section_name(endian, section) != Ok(b".note.stapsdt") {
            continue;
        }
        let notes = section.notes(endian, &*bytes).expect("notes");
        let mut notes = notes.expect("a section of notes");
        while let Some(note) = notes.next().expect("a whole note") {
            assert_eq!((note.name(), note.n_type(endian)), (&b"stapsdt"[..], PROBE));
            let (addresses, strings) = note.desc().split_at(24);
            let word = |at: usize| {
                let word = addresses[8 * at..8 * at + 8].try_into().expect("8 bytes");
                u64::from_le_bytes(word)
            };
            let mut strings = strings.split(|&byte| byte == 0).map(|text| {
                let text = std::str::from_utf8(text).expect("a string of the note");
                text.to_owned()
            });
            let mut string = || strings.next().expect("three strings");
            if string() != PROVIDER {
                continue;
            }
            let base = sections
                .section_by_name(endian, b".stapsdt.base")
                .map(|(_, section)| section.sh_addr(endian));
            assert_eq!(Some(word(1)), base, "the base of the addresses");
            let (offset, is_executable_nop) = at_address(header, endian, &bytes, word(0));
            probes.push(Probe {
                name: string(),
                address: word(0),
                semaphore: word(2),
                arguments: string(),
                offset,
                is_executable_nop,
            });
        }
    }
    probes
}

/// Returns the position of an address in a file, and whether it is that of an executable `nop`.
fn at_address(
    header: &elf::FileHeader64<Endianness>,
    endian: Endianness,
    bytes: &[u8],
    address: u64,
) -> (u64, bool) {
    let segments = header.program_headers(endian, bytes).expect("segments");
    let segment = segments.iter().find(|segment| {
        let begin = segment.p_vaddr(endian);
        segment.p_type(endian) == elf::PT_LOAD
            && (begin..begin + segment.p_filesz(endian)).contains(&address)
    });
    let segment = segment.unwrap_or_else(|| panic!("{address:#x} is in no segment"));
    let offset = segment.p_offset(endian) + address - segment.p_vaddr(endian);
    let is_executable = segment.p_flags(endian) & elf::PF_X != 0;
    let instruction = bytes.get(offset as usize..).unwrap_or_default();
    (offset, is_executable && instruction.starts_with(NOP))
}

/// Asserts that a file has the probes `alloc` and `free`, each once, with arguments in the registers of
/// a C function, and without a semaphore.
pub fn assert_probes(file: &Path) {
    let probes = probes(file);
    let mut names: Vec<&str> = probes.iter().map(|probe| &*probe.name).collect();
    names.sort_unstable();
    assert_eq!(names, ["alloc", "free"], "{}", file.display());
    for probe in &probes {
        let arguments = match &*probe.name {
            "alloc" => ARGUMENTS.join(" "),
            _ => ARGUMENTS[0].to_owned(),
        };
        assert_eq!(probe.arguments, arguments, "{probe:?}");
        assert_eq!(probe.semaphore, 0, "{probe:?}");
        assert!(probe.is_executable_nop, "{probe:?}");
    }
}

/// A probe that a program passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    Alloc { block: u64, size: u64, weight: u64 },
    Free { block: u64 },
}

/// Runs a command until all of its processes have ended. Returns its exit status, and the events of each
/// process that maps a file whose path `is_traced` accepts, from the moment at which the file's code is
/// mapped.
pub fn trace(
    command: &mut Command,
    is_traced: impl Fn(&Path) -> bool,
) -> (ExitStatus, BTreeMap<libc::pid_t, Vec<Event>>) {
    // SAFETY: `ptrace` is a system call, which may be made between fork and exec.
    unsafe {
        command.pre_exec(|| {
            match libc::ptrace(libc::PTRACE_TRACEME, 0, null_mut::<u8>(), null_mut::<u8>()) {
                0 => Ok(()),
                _ => Err(Error::last_os_error()),
            }
        })
    };
    // The child stops at its `exec`. It is this thread's, as are all requests.
    #[allow(
        clippy::zombie_processes,
        reason = "`Tracer::run` waits for all processes"
    )]
    let child = command.spawn().expect("the program is executed");
    let mut tracer = Tracer {
        is_traced,
        first: child.id() as libc::pid_t,
        processes: HashMap::new(),
        threads: HashMap::new(),
        events: BTreeMap::new(),
        files: HashMap::new(),
    };
    let status = tracer.run();
    (status, tracer.events)
}

struct Tracer<F> {
    is_traced: F,
    first: libc::pid_t,
    /// The probes of each process by address; empty until its file is mapped.
    processes: HashMap<libc::pid_t, HashMap<u64, String>>,
    /// The process of each thread that was seen.
    threads: HashMap<libc::pid_t, libc::pid_t>,
    events: BTreeMap<libc::pid_t, Vec<Event>>,
    /// The probes of each file.
    files: HashMap<PathBuf, Vec<Probe>>,
}

/// The signal of a stop at a system call, with `PTRACE_O_TRACESYSGOOD`.
const SYSTEM_CALL: i32 = libc::SIGTRAP | 0x80;

impl<F: Fn(&Path) -> bool> Tracer<F> {
    fn run(&mut self) -> ExitStatus {
        let mut status_of_first = None;
        loop {
            let mut status = 0;
            // SAFETY: `status` is valid for a write. Only children of this thread are waited for.
            let thread =
                unsafe { libc::waitpid(-1, &raw mut status, libc::__WALL | libc::__WNOTHREAD) };
            if thread < 0 {
                return status_of_first.expect("the program has ended");
            }
            if libc::WIFSTOPPED(status) {
                self.stopped(thread, libc::WSTOPSIG(status), status >> 16);
                continue;
            }
            let process = self.threads.remove(&thread);
            if process == Some(thread) {
                self.processes.remove(&thread);
            }
            if thread == self.first {
                status_of_first = Some(ExitStatus::from_raw(status));
            }
        }
    }

    /// Continues a thread that stopped by a signal or, if `event` is not 0, by an event of `ptrace`.
    fn stopped(&mut self, thread: libc::pid_t, signal: i32, event: i32) {
        let is_new = !self.threads.contains_key(&thread);
        if is_new {
            let options = libc::PTRACE_O_TRACECLONE
                | libc::PTRACE_O_TRACEFORK
                | libc::PTRACE_O_TRACEVFORK
                | libc::PTRACE_O_TRACEEXEC
                | libc::PTRACE_O_TRACESYSGOOD
                | libc::PTRACE_O_EXITKILL;
            request(libc::PTRACE_SETOPTIONS, thread, options as usize);
            self.threads.insert(thread, process_of(thread));
        }
        let process = self.threads[&thread];
        if event == libc::PTRACE_EVENT_EXEC {
            self.processes.remove(&process);
        }
        let mut deliver = 0;
        if signal == libc::SIGTRAP && event == 0 && !is_new {
            let (address, arguments) = stopped_at(thread);
            match self.probe_at(process, address) {
                Some(name) => self.passed(process, &name, arguments),
                None => deliver = signal,
            }
        } else if signal != SYSTEM_CALL && event == 0 && !is_new {
            deliver = signal;
        }
        let is_set = self.set_breakpoints(process);
        // Until the file is mapped, every system call may map it.
        let go_on = if is_set {
            libc::PTRACE_CONT
        } else {
            libc::PTRACE_SYSCALL
        };
        request(go_on, thread, deliver as usize);
    }

    fn probe_at(&self, process: libc::pid_t, address: u64) -> Option<String> {
        self.processes.get(&process)?.get(&address).cloned()
    }

    fn passed(&mut self, process: libc::pid_t, name: &str, [block, size, weight]: [u64; 3]) {
        let event = match name {
            "alloc" => Event::Alloc {
                block,
                size,
                weight,
            },
            "free" => Event::Free { block },
            _ => panic!("the probe {name} is unknown"),
        };
        self.events.entry(process).or_default().push(event);
    }

    /// Replaces the probes of a process by breakpoints, once their file is mapped. Returns whether that
    /// was done. The child of a fork has its parent's breakpoints, and the same file at the same place.
    fn set_breakpoints(&mut self, process: libc::pid_t) -> bool {
        if self.processes.contains_key(&process) {
            return true;
        }
        let Ok(mappings) = fs::read_to_string(format!("/proc/{process}/maps")) else {
            return false;
        };
        let mut addresses = HashMap::new();
        for line in mappings.lines() {
            let mut words = line.split_ascii_whitespace();
            let mut word = || words.next().unwrap_or_default();
            let (range, flags, offset, _, _, path) =
                (word(), word(), word(), word(), word(), word());
            let path = Path::new(path);
            if !flags.contains('x') || !(self.is_traced)(path) {
                continue;
            }
            let (begin, end) = range.split_once('-').expect("a range");
            let [begin, end, offset] = [begin, end, offset]
                .map(|digits| u64::from_str_radix(digits, 16).expect("a number"));
            let probes = self
                .files
                .entry(path.to_owned())
                .or_insert_with(|| probes(path));
            for probe in probes {
                if (offset..offset + (end - begin)).contains(&probe.offset) {
                    addresses.insert(begin + probe.offset - offset, probe.name.clone());
                }
            }
        }
        if addresses.is_empty() {
            return false;
        }
        // Writes of a tracer change code as well.
        let mut memory = fs::OpenOptions::new()
            .read(true)
            .write(true)
            .open(format!("/proc/{process}/mem"))
            .expect("the memory of a traced process");
        for &address in addresses.keys() {
            let mut instruction = [0; BREAKPOINT.len()];
            memory.seek(SeekFrom::Start(address)).expect("an address");
            memory.read_exact(&mut instruction).expect("mapped code");
            assert!([NOP, BREAKPOINT].contains(&&instruction[..]));
            memory.seek(SeekFrom::Start(address)).expect("an address");
            memory.write_all(BREAKPOINT).expect("a traced process");
        }
        self.processes.insert(process, addresses);
        true
    }
}

/// Makes a request of `ptrace` for a stopped thread. A thread that was killed meanwhile refuses.
fn request(request: RequestNumber, thread: libc::pid_t, data: usize) {
    // SAFETY: these requests access no memory of this process.
    let done = unsafe {
        libc::ptrace(
            request,
            thread,
            null_mut::<u8>(),
            without_provenance_mut::<u8>(data),
        )
    };
    let error = Error::last_os_error();
    assert!(
        done == 0 || error.raw_os_error() == Some(libc::ESRCH),
        "ptrace: {error}"
    );
}

/// The type of a request, which depends on the C library.
#[cfg(target_env = "musl")]
type RequestNumber = libc::c_int;
#[cfg(not(target_env = "musl"))]
type RequestNumber = libc::c_uint;

/// Returns the process of a thread.
fn process_of(thread: libc::pid_t) -> libc::pid_t {
    let status = fs::read_to_string(format!("/proc/{thread}/status")).unwrap_or_default();
    let process = status.lines().find_map(|line| line.strip_prefix("Tgid:"));
    process.map_or(thread, |process| process.trim().parse().expect("a number"))
}
