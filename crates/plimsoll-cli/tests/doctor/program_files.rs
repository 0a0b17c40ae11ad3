//! The findings of `doctor` on program files: small programs of all kinds, built by the C compiler,
//! and damaged files.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::programs::{Numbers, PLAIN, compile, directory, file, is_root};
use plimsoll_command::program::allocator::Own;
use plimsoll_command::program::{
    CLibrary, Compression, Contents, DebugInformation, Details, Evidence, Executable, Language,
    Linking, Program, Verdict, preload_verdict,
};

fn look(path: &Path) -> Executable {
    match Program::of_file(path).contents {
        Contents::Executable(executable) => *executable,
        other => panic!("{}: {other:?}", path.display()),
    }
}

fn details(path: &Path) -> Details {
    Details::of_file(path).expect("a program")
}

fn verdict(path: &Path) -> Verdict {
    preload_verdict(&Program::of_file(path))
}

fn refusal(path: &Path) -> String {
    match verdict(path) {
        Verdict::Refused { reason, .. } => reason,
        other => panic!("{}: {other:?}", path.display()),
    }
}

/// Returns whether the dynamic linker loads a preloaded library into the program, by running it.
/// The library ends the program with exit code 77.
fn is_preloaded(directory: &Path, program: &Path) -> bool {
    is_preloaded_by(directory, &mut Command::new(program))
}

fn is_preloaded_by(directory: &Path, command: &mut Command) -> bool {
    let library = directory.join("preloaded.so");
    if !library.exists() {
        let source = "#include <unistd.h>\n\
            __attribute__((constructor)) static void here(void) { _exit(77); }";
        compile(directory, "preloaded.so", source, &["-shared", "-fPIC"]).unwrap();
    }
    let status = command
        .env("LD_PRELOAD", library)
        .stderr(std::process::Stdio::null())
        .status()
        .unwrap();
    status.code() == Some(77)
}

fn run(program: &str, arguments: &[&str]) -> bool {
    let output = Command::new(program).args(arguments).output();
    match output {
        Ok(output) if output.status.success() => true,
        Ok(output) => {
            let says = String::from_utf8_lossy(&output.stderr);
            plimsoll_testkit::skip!("{program} {arguments:?}: {says}");
            false
        }
        Err(error) => {
            plimsoll_testkit::skip!("{program}: {error}");
            false
        }
    }
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn an_ordinary_program_is_covered() {
    let place = directory("ordinary");
    let program = compile(&place, "program", PLAIN, &["-O1"]).unwrap();
    let executable = look(&program);
    let Linking::Dynamic { loader, c_library } = &executable.linking else {
        panic!("{executable:?}");
    };
    assert!(loader.exists());
    assert_eq!(*c_library, CLibrary::Glibc);
    assert_eq!(executable.needed, ["libc.so.6"]);
    assert_eq!(executable.language, Language::Other);
    let details = details(&program);
    assert!(details.unwind_tables.work());
    assert!(details.symbols.has_table);
    assert_eq!(details.symbols.debug, DebugInformation::None);
    assert_eq!(verdict(&program), Verdict::Covered);
    assert!(is_preloaded(&place, &program), "and really is");
}

#[test]
fn static_programs_are_refused_and_really_are_not_preloaded() {
    let place = directory("static");
    for (name, flags, is_pie) in [
        ("static", &["-static"][..], false),
        ("static-pie", &["-static-pie", "-fPIE"][..], true),
    ] {
        let Some(program) = compile(&place, name, PLAIN, flags) else {
            continue;
        };
        assert_eq!(look(&program).linking, Linking::Static { is_pie });
        assert!(refusal(&program).contains("statically linked"));
        assert!(!is_preloaded(&place, &program));
    }
}

#[test]
fn frame_pointers_are_detected_by_unwind_tables_or_by_code() {
    let place = directory("frame-pointers");
    let own = [
        // Excludes the start-up code, which has few functions and keeps no frame pointers.
        "-nostartfiles",
        "-Wl,-e,main",
    ];
    let tables = ["-fasynchronous-unwind-tables"];
    let none = [
        "-fno-asynchronous-unwind-tables",
        "-fno-unwind-tables",
        // Suppresses the tables that the linker generates for its own stubs.
        "-Wl,--no-ld-generated-unwind-info",
    ];
    let mut source = PLAIN.to_owned();
    // Enough functions that the linker's own do not matter.
    for number in 0..40 {
        source += &format!(
            "__attribute__((noinline, used)) int number{number}(int n) {{ \
                return first(\"{number}\", n) + second(n + {number}); }}\n"
        );
    }
    for (unwinding, evidence) in [
        (&tables[..], Evidence::UnwindTables),
        (&none, Evidence::Prologues),
    ] {
        for (flag, are_kept) in [
            ("-fno-omit-frame-pointer", true),
            ("-fomit-frame-pointer", false),
        ] {
            let name = format!("{evidence:?}{flag}");
            let flags = [&["-O2", flag][..], unwinding, &own].concat();
            let program = compile(&place, &name, &source, &flags).unwrap();
            let found = details(&program).frame_pointers;
            assert_eq!(
                (found.evidence, found.are_used()),
                (evidence, are_kept),
                "{found:?}"
            );
            assert!(found.with + found.without >= 43, "{found:?}");
            assert_eq!(found.per_cent() >= Some(92), are_kept, "{found:?}");
            assert_eq!(found.per_cent() <= Some(8), !are_kept, "{found:?}");
            // Without symbols, the unwind tables are the only evidence.
            if !run("strip", &[text(&program)]) {
                continue;
            }
            let stripped = details(&program).frame_pointers;
            match evidence {
                Evidence::UnwindTables => assert_eq!(stripped, found),
                _ => assert_eq!(stripped.evidence, Evidence::Nothing),
            }
        }
    }
}

#[test]
fn symbols_and_debug_information_are_recognised() {
    let place = directory("symbols");
    let build = |name: &str, flags: &[&str]| compile(&place, name, PLAIN, flags);
    let full = build("full", &["-g"]).unwrap();
    assert_eq!(details(&full).symbols.debug, DebugInformation::Full);
    let lines = build("lines", &["-g1"]).unwrap();
    assert_eq!(details(&lines).symbols.debug, DebugInformation::Lines);
    if let Some(zlib) = build("zlib", &["-g", "-gz=zlib"]) {
        let symbols = details(&zlib).symbols;
        assert_eq!(symbols.debug, DebugInformation::Full);
        assert_eq!(symbols.compression, Compression::Zlib);
    }
    if let Some(zstd) = build("zstd", &["-g", "-gz=zstd"]) {
        let symbols = details(&zstd).symbols;
        assert_eq!(symbols.debug, DebugInformation::Unknown);
        assert_eq!(symbols.compression, Compression::Zstd);
    }
    if let Some(split) = build("split", &["-g", "-gsplit-dwarf"]) {
        assert!(details(&split).symbols.is_split);
    }
    assert!(!details(&full).symbols.is_split);

    let id = build("id", &["-g", "-Wl,--build-id=0xabcdef0123456789"]).unwrap();
    assert_eq!(
        details(&id).symbols.build_id.as_deref(),
        Some("abcdef0123456789")
    );
    let without = build("without", &["-g", "-Wl,--build-id=none"]).unwrap();
    assert_eq!(details(&without).symbols.build_id, None);

    // A separate debug file beside the program is used only if it belongs to the program.
    for program in [id, without] {
        let debug = format!("{}.debug", text(&program));
        if !run("objcopy", &["--only-keep-debug", text(&program), &debug])
            || !run("strip", &[text(&program)])
            || !run("objcopy", &["--add-gnu-debuglink", &debug, text(&program)])
        {
            continue;
        }
        let symbols = details(&program).symbols;
        assert!(!symbols.has_table);
        assert_eq!(symbols.debug, DebugInformation::None);
        assert_eq!(
            symbols.link.as_deref(),
            Path::new(&debug).file_name().unwrap().to_str()
        );
        assert_eq!(symbols.split_off, Some(PathBuf::from(&debug)));
        assert!(symbols.has_names());
        fs::copy(&full, &debug).unwrap();
        let symbols = details(&program).symbols;
        assert_eq!(symbols.split_off, None, "that is another program's");
        assert!(!symbols.has_names());
    }
}

/// A small allocator and a program that uses it.
const OWN_MALLOC: &str = r#"
#include <stddef.h>
#include <stdio.h>
static char room[1 << 20]; static size_t used;
void *ALLOCATE(size_t size) { void *p = room + used; used += (size + 15) & ~(size_t)15; return p; }
void RELEASE(void *p) { (void)p; }
int main(void) { char *p = ALLOCATE(10); sprintf(p, "%d", 1); RELEASE(p); return p[0] != '1'; }
"#;

#[test]
fn a_malloc_of_its_own_hides_the_heap() {
    let place = directory("allocators");
    let build = |name: &str, allocate: &str, release: &str, flags: &[&str]| {
        let names = [
            &*format!("-DALLOCATE={allocate}"),
            &*format!("-DRELEASE={release}"),
        ];
        let flags = [&names, flags].concat();
        let program = compile(&place, name, OWN_MALLOC, &flags).unwrap();
        let verdict = verdict(&program);
        let (Verdict::HeapNotSeen { allocator, .. } | Verdict::HeapRedirected { allocator, .. }) =
            verdict
        else {
            panic!("{name}: {verdict:?}");
        };
        (look(&program).allocator, allocator)
    };
    // The linker exports the function without an option, because the C library defines it too.
    let (found, says) = build("exported", "malloc", "free", &["-fno-builtin"]);
    assert_eq!((found.own, found.linked), (Own::Exported, None));
    assert_eq!(says, "its own malloc (exported)");
    let hidden = "-fvisibility=hidden";
    let (found, _) = build("hidden", "malloc", "free", &["-fno-builtin", hidden]);
    assert_eq!(found.own, Own::Linked);
    let (found, says) = build("mimalloc", "mi_malloc", "mi_free", &[]);
    assert_eq!((found.own, found.linked), (Own::Linked, Some("mimalloc")));
    assert_eq!(says, "mimalloc (linked in)");
    let (found, _) = build("jemalloc", "_rjem_malloc", "_rjem_free", &[]);
    assert_eq!((found.own, found.linked), (Own::Linked, Some("jemalloc")));
}

#[test]
fn a_stripped_allocator_is_recognised_by_its_texts() {
    let place = directory("allocators-stripped");
    let source = PLAIN.replace("%s %d", &["<jemal", "loc>: %s %d"].concat());
    let program = compile(&place, "program", &source, &["-s"]).unwrap();
    let found = look(&program).allocator;
    assert_eq!((found.own, found.linked), (Own::Texts, Some("jemalloc")));
    // If the program has symbols, they decide.
    let program = compile(&place, "with-symbols", &source, &[]).unwrap();
    assert_eq!(look(&program).allocator.own, Own::No);
}

#[test]
fn an_allocator_in_a_library_is_recognised_and_no_obstacle() {
    let place = directory("allocators-library");
    let source = "void *malloc(unsigned long n) { return 0; } void free(void *p) {}";
    let library = "libjemalloc.so.2";
    let flags = [
        "-shared",
        "-fPIC",
        "-fno-builtin",
        "-Wl,-soname,libjemalloc.so.2",
    ];
    let library = compile(&place, library, source, &flags).unwrap();
    let flags = ["-Wl,--no-as-needed", text(&library)];
    let program = compile(&place, "program", PLAIN, &flags).unwrap();
    let executable = look(&program);
    assert_eq!(
        executable.allocator.library.as_deref(),
        Some("libjemalloc.so.2")
    );
    assert_eq!(executable.allocator.own, Own::No);
    assert_eq!(verdict(&program), Verdict::Covered);
}

#[test]
fn sanitizers_are_recognised() {
    let place = directory("sanitizers");
    for (flags, name) in [
        (&["-fsanitize=address"][..], "AddressSanitizer"),
        (
            &["-fsanitize=address", "-static-libasan"],
            "AddressSanitizer",
        ),
        (&["-fsanitize=thread"], "ThreadSanitizer"),
    ] {
        let file = flags.join("").replace('=', "-");
        if let Some(program) = compile(&place, &file[1..], PLAIN, flags) {
            assert_eq!(look(&program).sanitizer, Some(name));
            assert!(refusal(&program).contains(name));
        }
    }
}

#[test]
fn the_compiler_of_a_rust_program_is_reported() {
    let program = Program::of_file(Path::new(env!("CARGO_BIN_EXE_plimsoll")));
    let executable = program.executable().unwrap();
    let Language::Rust {
        version: Some(version),
    } = &executable.language
    else {
        panic!("{:?}", executable.language);
    };
    let output = Command::new(std::env::var_os("RUSTC").unwrap_or("rustc".into()))
        .arg("--version")
        .output()
        .unwrap();
    let says = String::from_utf8_lossy(&output.stdout);
    assert!(
        says.starts_with(&format!("rustc {version} ")),
        "{says} {version}"
    );
    assert!(
        !executable.has_plimsoll,
        "the command does not contain the runtime"
    );

    // In a stripped program, text constants identify the language.
    let place = directory("rust");
    let stripped = place.join("stripped");
    fs::copy(&program.file, &stripped).unwrap();
    if run("strip", &["-R", ".comment", text(&stripped)]) {
        let executable = look(&stripped);
        let language = details(&stripped).language;
        assert_eq!(language, Language::Rust { version: None });
        assert_eq!(executable.allocator.own, Own::No);
        // Remapped paths of the standard library change nothing.
        let mut bytes = fs::read(&stripped).unwrap();
        let place = b"/rustc/";
        let ends: Vec<usize> = (bytes.windows(place.len()).enumerate())
            .filter(|(_, window)| window == place)
            .map(|(at, _)| at)
            .collect();
        assert!(!ends.is_empty());
        for at in ends {
            bytes[at..at + place.len()].copy_from_slice(b"/xxxxx/");
        }
        let remapped = file(&place_of(&stripped), "remapped", &bytes, 0o755);
        let language = details(&remapped).language;
        assert_eq!(language, Language::Rust { version: None });
    }
}

fn place_of(file: &Path) -> PathBuf {
    file.parent().unwrap().to_owned()
}

#[test]
fn a_program_that_gives_rights_is_refused_if_it_gives_any() {
    let place = directory("setuid");
    let program = compile(&place, "program", PLAIN, &[]).unwrap();
    let mode = |bits| fs::set_permissions(&program, fs::Permissions::from_mode(bits)).unwrap();
    // Set-id bits for the current user grant no privileges.
    mode(0o6755);
    assert_eq!(Program::of_file(&program).gains, None);
    assert!(is_preloaded(&place, &program));
    if !is_root() {
        plimsoll_testkit::skip!("only root can change the owner of a file");
        return;
    }
    for (owner, bits, word) in [
        ((Some(65534), None), 0o4755, "setuid"),
        ((None, Some(65534)), 0o2755, "setgid"),
    ] {
        std::os::unix::fs::chown(&program, owner.0.or(Some(0)), owner.1.or(Some(0))).unwrap();
        mode(0o755);
        assert_eq!(verdict(&program), Verdict::Covered);
        mode(bits);
        // The file system may ignore set-id bits; then the program gains no privileges.
        let gains = Program::of_file(&program).gains;
        let ignored = !is_preloaded(&place, &program);
        assert_eq!(gains.is_some(), ignored, "{gains:?}");
        if ignored {
            assert!(refusal(&program).contains(word), "{}", refusal(&program));
        }
    }
}

/// A Rust program whose allocator either uses a static block or calls the C library.
const RUST: &str = r#"
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};
struct Bump;
static mut ROOM: [u8; 1 << 20] = [0; 1 << 20];
static USED: AtomicUsize = AtomicUsize::new(0);
unsafe impl GlobalAlloc for Bump {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let at = USED.fetch_add(layout.size() + layout.align(), Ordering::Relaxed);
        unsafe {
            let start = (&raw mut ROOM).cast::<u8>().add(at);
            start.add(start.align_offset(layout.align()))
        }
    }
    unsafe fn dealloc(&self, _: *mut u8, _: Layout) {}
}
struct Counted;
unsafe impl GlobalAlloc for Counted {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        USED.fetch_add(layout.size(), Ordering::Relaxed);
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        unsafe { System.dealloc(block, layout) }
    }
}
//GLOBAL
fn main() { println!("{}", vec![1u8; std::env::args().count()].len()); }
"#;

#[test]
fn the_allocator_of_a_rust_program_is_recognised_by_missing_calls() {
    let place = directory("rust-allocators");
    let rustc = std::env::var_os("RUSTC").unwrap_or("rustc".into());
    for (name, flags) in [("debug", &[][..]), ("stripped", &["-O", "-Cstrip=symbols"])] {
        for (global, own) in [
            ("", Own::No),
            (
                "#[global_allocator] static ALLOC: Counted = Counted;",
                Own::No,
            ),
            (
                "#[global_allocator] static ALLOC: Bump = Bump;",
                Own::NotTheSystems,
            ),
        ] {
            let source = place.join("program.rs");
            fs::write(&source, RUST.replace("//GLOBAL", global)).unwrap();
            let program = place.join("program");
            let status = Command::new(&rustc)
                .args(["--edition=2024", "-Adead_code", "-o"])
                .args([&program, &source])
                .args(flags)
                .status()
                .unwrap();
            assert!(status.success());
            assert_eq!(look(&program).allocator.own, own, "{name} {global}");
            let is_hidden = matches!(verdict(&program), Verdict::HeapNotSeen { .. });
            assert_eq!(is_hidden, own != Own::No);
        }
    }
}

#[test]
fn users_that_gain_privileges_are_refused() {
    const UNPRIVILEGED: u32 = 65534;
    if !is_root() {
        plimsoll_testkit::skip!("only root can become another user");
        return;
    }
    let place = directory("rights");
    let plain = compile(&place, "plain", PLAIN, &[]).unwrap();
    let as_unprivileged = |program: &Path| {
        let mut command = Command::new(program);
        command.uid(UNPRIVILEGED).gid(UNPRIVILEGED);
        command
    };
    // A copy in the same directory is accessible to each user to whom the programs are.
    let doctor = place.join("plimsoll");
    // Copied by another process: a child that another test starts meanwhile cannot inherit the open
    // file, with which an execution fails.
    let copied = Command::new("cp")
        .arg(env!("CARGO_BIN_EXE_plimsoll"))
        .arg(&doctor)
        .status();
    assert!(copied.unwrap().success());
    if as_unprivileged(&doctor).arg("--version").output().is_err() {
        plimsoll_testkit::skip!("others have no way to {}", place.display());
        return;
    }
    let copy = |name: &str, mode| {
        let path = place.join(name);
        fs::copy(&plain, &path).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        path
    };
    let programs = [
        copy("setuid", 0o4755),
        copy("setgid", 0o2755),
        copy("neither", 0o755),
        copy("not-for-reading", 0o4711),
        copy("capable", 0o755),
    ];
    run("setcap", &["cap_net_raw+ep", text(&programs[4])]);
    for program in &programs {
        assert!(is_preloaded(&place, program), "root gains nothing");
        assert_eq!(Program::of_file(program).gains, None);
        let is_loaded = is_preloaded_by(&place, &mut as_unprivileged(program));
        let output = as_unprivileged(&doctor)
            .args(["doctor", text(program)])
            .output()
            .unwrap();
        let says = String::from_utf8_lossy(&output.stdout);
        let line = says
            .lines()
            .find(|line| line.contains("plimsoll run"))
            .unwrap();
        assert_eq!(line.contains("the loader ignores"), !is_loaded, "{line}");
    }
    fs::remove_dir_all(&place).unwrap();
}

#[test]
fn programs_of_other_machines_and_other_files_are_recognised() {
    let place = directory("others");
    let program = compile(&place, "program", PLAIN, &[]).unwrap();
    let bytes = fs::read(&program).unwrap();
    let changed = |name: &str, changes: &[(usize, u8)]| {
        let mut bytes = bytes.clone();
        for &(at, byte) in changes {
            bytes[at] = byte;
        }
        Program::of_file(&file(&place, name, &bytes, 0o755)).contents
    };
    let machine = |which| Contents::OtherMachine(which);
    assert_eq!(changed("x86", &[(4, 1), (18, 3)]), machine("x86, 32 bits"));
    assert_eq!(
        changed("ilp32", &[(4, 1), (18, 183)]),
        machine("aarch64 with 32-bit addresses")
    );
    assert_eq!(changed("riscv", &[(18, 243)]), machine("RISC-V"));
    assert_eq!(
        changed("s390", &[(5, 2), (18, 0), (19, 22)]),
        machine("s390")
    );
    assert!(matches!(
        changed("order", &[(5, 2)]),
        Contents::OtherMachine(_)
    ));
    let is_not = |what| Contents::NotAProgram(what);
    assert_eq!(changed("core", &[(16, 4)]), is_not("a core dump"));
    assert_eq!(changed("object", &[(16, 1)]), is_not("an object file"));

    let flags = ["-shared", "-fPIC"];
    let library = compile(&place, "library.so", "int here;", &flags).unwrap();
    assert_eq!(
        Program::of_file(&library).contents,
        is_not("a shared library")
    );
    let of = |name: &str, contents: &[u8]| {
        Program::of_file(&file(&place, name, contents, 0o755)).contents
    };
    assert_eq!(of("zeros", &[0; 4096]), is_not("not ELF"));
    assert_eq!(of("empty", b""), is_not("not ELF"));
    assert_eq!(of("magic", b"\x7fELF"), is_not("its header is truncated"));
    assert!(matches!(
        Program::of_file(&place).contents,
        Contents::NotAProgram(_)
    ));
    let nothing = Program::of_file(&place.join("no-such-file"));
    assert!(matches!(nothing.contents, Contents::Unreadable(_)));
}

#[test]
fn a_program_without_section_headers_is_not_guessed_at() {
    let place = directory("no-sections");
    let program = compile(&place, "program", PLAIN, &[]).unwrap();
    let mut bytes = fs::read(&program).unwrap();
    bytes[40..48].fill(0);
    bytes[58..64].fill(0);
    let program = file(&place, "without", &bytes, 0o755);
    let executable = look(&program);
    assert!(!executable.has_sections);
    assert_eq!(
        executable.needed,
        ["libc.so.6"],
        "the loader's list is there"
    );
    assert!(matches!(verdict(&program), Verdict::Unknown { .. }));
}

/// Runs all examinations of a file; none may panic, hang or use much memory.
fn look_at_all(path: &Path) {
    let program = Program::of_file(path);
    let _ = format!("{:?} {program:?}", preload_verdict(&program));
    let _ = Program::find(path.as_os_str(), None);
}

#[test]
fn damaged_files_do_no_harm() {
    let place = directory("damaged");
    let flags = ["-g", "-gz=zlib", "-O2"];
    let program = compile(&place, "program", PLAIN, &flags)
        .or_else(|| compile(&place, "program", PLAIN, &["-g"]))
        .unwrap();
    let whole = fs::read(&program).unwrap();
    let mut numbers = Numbers(0x9e37_79b9_7f4a_7c15);

    for _ in 0..200 {
        let length = numbers.below(whole.len());
        look_at_all(&file(&place, "cut", &whole[..length], 0o755));
    }
    let headers = whole.len() - 64 * 40..whole.len();
    for round in 0..800 {
        let mut bytes = whole.clone();
        // Many changes in the few places that matter, and few elsewhere.
        for _ in 0..1 + numbers.below(8) {
            let at = match round % 4 {
                0 => numbers.below(64),
                1 => numbers.below(64 + 56 * 13),
                2 => headers.start + numbers.below(headers.len()),
                _ => numbers.below(bytes.len()),
            };
            bytes[at] = match numbers.below(4) {
                0 => 0,
                1 => 0xff,
                2 => bytes[at] ^ (1 << numbers.below(8)),
                _ => numbers.below(256) as u8,
            };
        }
        look_at_all(&file(&place, "flipped", &bytes, 0o755));
    }
}

#[test]
fn an_index_with_offsets_outside_the_file_is_harmless() {
    let place = directory("index");
    let program = compile(&place, "program", PLAIN, &[]).unwrap();
    let mut bytes = fs::read(&program).unwrap();
    // The first bytes of the index; the relative offset of the tables follows.
    let start = [1, 0x1b, 0x03, 0x3b];
    let at = bytes.windows(4).position(|part| part == start).unwrap();
    for far in [i32::MAX, i32::MIN, -1, 0x1000_0000] {
        bytes[at + 4..at + 8].copy_from_slice(&far.to_le_bytes());
        look_at_all(&file(&place, "changed", &bytes, 0o755));
    }
}

#[test]
fn a_huge_file_of_nothing_takes_no_time() {
    let place = directory("huge");
    let program = compile(&place, "program", PLAIN, &["-g"]).unwrap();
    let mut bytes = fs::read(&program).unwrap();
    // Each section claims nearly the size of the file, which is a terabyte of holes.
    let start = u64::from_le_bytes(bytes[40..48].try_into().unwrap()) as usize;
    for section in bytes[start..].chunks_exact_mut(64) {
        section[32..40].copy_from_slice(&((1u64 << 40) - (1 << 30)).to_le_bytes());
    }
    let huge = file(&place, "huge", &bytes, 0o755);
    let opened = fs::OpenOptions::new().write(true).open(&huge).unwrap();
    if let Err(error) = opened.set_len(1 << 40) {
        plimsoll_testkit::skip!("{error}");
        return;
    }
    look_at_all(&huge);
    fs::remove_file(&huge).unwrap();
}

#[test]
fn plimsoll_is_recognised_in_a_stripped_program_by_its_note() {
    let place = directory("plimsoll-stripped");
    let build = |file: &str, name: &str, kind: u32| {
        let length = name.len() + 1;
        let note = format!(
            ".section .note.test,\\\"a\\\",@note\\n.long {length}, 0, {kind}\\n.asciz \\\"{name}\\\"\\n.balign 4\\n.text\\n"
        );
        let source = format!("asm(\"{note}\");\n{PLAIN}");
        compile(&place, file, &source, &["-s"]).unwrap()
    };
    assert_eq!(verdict(&build("with", "Plimsoll", 1)), Verdict::Inside);
    let other = build("other-name", "Plimsole", 1);
    assert_eq!(verdict(&other), Verdict::Covered);
    let other = build("other-kind", "Plimsoll", 2);
    assert_eq!(verdict(&other), Verdict::Covered);
}
