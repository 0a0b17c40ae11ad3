//! Whether this crate's `syscall` is the one that is called, however a program is linked.
//!
//! Small packages are generated, built in each way and run. They contend for a lock in a way that
//! certainly waits, and say what their hook saw. The short form builds a few of the ways;
//! `PLIMSOLL_LINK_MATRIX=all` has all of them. What a machine does not have is skipped, and said.

#![cfg(all(target_os = "linux", target_env = "gnu", target_arch = "x86_64"))]

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// The sources of the generated packages.
mod source {
    pub const CALLER_C: &str = include_str!("link_matrix/caller.c");
    pub const CONTENTION: &str = include_str!("link_matrix/contention.rs");
    pub const HOST: &str = include_str!("link_matrix/host.rs");
    pub const HOST_C: &str = include_str!("link_matrix/host.c");
    pub const LIBRARY: &str = include_str!("link_matrix/library.rs");
    pub const PTHREAD_C: &str = include_str!("link_matrix/pthread.c");
    pub const PTHREAD_LIBRARY: &str = include_str!("link_matrix/pthread_library.rs");
    pub const PTHREAD_PROGRAM: &str = include_str!("link_matrix/pthread_program.rs");
    pub const PTHREAD_WITNESS: &str = include_str!("link_matrix/pthread_witness.rs");
    pub const PROGRAM: &str = include_str!("link_matrix/program.rs");
    pub const PROGRAM_INTEGRATION: &str = include_str!("link_matrix/program_integration.rs");
    pub const PROGRAM_LIB: &str = include_str!("link_matrix/program_lib.rs");
    pub const WITNESS: &str = include_str!("link_matrix/witness.rs");
}

const PROFILES: &str = r#"
[profile.thin]
inherits = "release"
lto = "thin"

[profile.fat]
inherits = "release"
lto = "fat"
codegen-units = 1

[profile.stripped]
inherits = "fat"
panic = "abort"
strip = true
"#;

fn all() -> bool {
    std::env::var_os("PLIMSOLL_LINK_MATRIX").is_some_and(|form| form == "all")
}

/// Past the harness's capture, so that nobody takes what was not done for passed.
fn say(what: &str) {
    let _ = writeln!(std::io::stderr(), "link_matrix: {what}");
}

/// Whether this is done; says so if not.
fn is_in_this_form(case: &str) -> bool {
    if !all() {
        say(&format!("{case}: left to PLIMSOLL_LINK_MATRIX=all"));
    }
    all()
}

/// A command without what cargo, or who runs these tests, has set for the tests themselves.
fn command(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    for variable in [
        "CARGO_BUILD_RUSTFLAGS",
        "CARGO_BUILD_TARGET",
        "CARGO_BUILD_TARGET_DIR",
        "CARGO_ENCODED_RUSTFLAGS",
        "CARGO_INCREMENTAL",
        "CARGO_TARGET_DIR",
        "CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_LINKER",
        "CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUSTFLAGS",
        "LD_LIBRARY_PATH",
        "LD_PRELOAD",
        "RUSTDOCFLAGS",
        "RUSTFLAGS",
        "RUST_TEST_THREADS",
    ] {
        command.env_remove(variable);
    }
    command
}

fn run(command: &mut Command) -> Output {
    command
        .output()
        .unwrap_or_else(|error| panic!("{command:?}: {error}"))
}

/// What it wrote, if it succeeded.
fn succeed(command: &mut Command) -> String {
    let output = run(command);
    assert!(
        output.status.success(),
        "{command:?}: {}\n{}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    String::from_utf8(output.stdout).expect("text")
}

fn rustc() -> Command {
    command(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()))
}

/// Where the standard library's shared form is.
fn rust_libraries() -> PathBuf {
    succeed(rustc().args(["--print", "target-libdir"]))
        .trim()
        .into()
}

/// Whether the C compiler succeeds with these arguments.
fn c_compiler_can(arguments: &[&str]) -> bool {
    command("cc")
        .args(arguments)
        .output()
        .is_ok_and(|output| output.status.success())
}

/// A package in a directory of its own, and how it is built.
struct Package {
    root: PathBuf,
    files: BTreeMap<&'static str, String>,
    profile: &'static str,
    flags: Vec<String>,
    arguments: Vec<String>,
}

impl Package {
    fn new(case: &str, name: &str) -> Self {
        let root = Path::new(env!("CARGO_TARGET_TMPDIR"))
            .join("link_matrix")
            .join(case)
            .join(name);
        Self {
            root,
            files: BTreeMap::new(),
            profile: "dev",
            flags: Vec::new(),
            // Nothing is needed that is not here.
            arguments: vec!["--offline".to_owned()],
        }
    }

    /// A program that has the crate.
    fn program(case: &str) -> Self {
        Self::new(case, "program")
            .manifest("program", "", &depends_on_the_crate(&[]))
            .file("src/main.rs", source::PROGRAM)
            .file("src/lib.rs", source::PROGRAM_LIB)
            .file("src/contention.rs", source::CONTENTION)
            .file("src/witness.rs", source::WITNESS)
            .file("tests/integration.rs", source::PROGRAM_INTEGRATION)
    }

    /// A shared library that has the crate.
    fn library(case: &str, features: &[&str]) -> Self {
        Self::new(case, "library")
            .manifest(
                "library",
                "[lib]\ncrate-type = [\"cdylib\"]",
                &depends_on_the_crate(features),
            )
            .file("src/lib.rs", source::LIBRARY)
            .file("src/contention.rs", source::CONTENTION)
            .file("src/witness.rs", source::WITNESS)
    }

    /// A program that does not have the crate.
    fn host(case: &str) -> Self {
        Self::new(case, "host")
            .manifest("host", "", "")
            .file("src/main.rs", source::HOST)
            .file("src/contention.rs", source::CONTENTION)
    }

    fn manifest(self, name: &str, targets: &str, dependencies: &str) -> Self {
        let manifest = format!(
            "[package]\nname = \"{name}\"\nversion = \"0.0.0\"\nedition = \"2024\"\n\
             publish = false\n\n{targets}\n\n[dependencies]\n{dependencies}\n{PROFILES}\n\
             [workspace]\n"
        );
        self.file("Cargo.toml", &manifest)
    }

    fn file(mut self, path: &'static str, content: &str) -> Self {
        self.files.insert(path, content.to_owned());
        self
    }

    fn profile(mut self, profile: &'static str) -> Self {
        self.profile = profile;
        self
    }

    /// Adds a code generation option, as `-C` has them.
    fn flag(mut self, flag: impl Into<String>) -> Self {
        self.flags.extend(["-C".to_owned(), flag.into()]);
        self
    }

    /// Writes what has changed, so that a second run builds nothing.
    fn write(&self) {
        for (path, content) in &self.files {
            let path = self.root.join(path);
            if fs::read_to_string(&path).is_ok_and(|there| there == *content) {
                continue;
            }
            fs::create_dir_all(path.parent().expect("in the package")).expect("may be written");
            fs::write(path, content).expect("may be written");
        }
    }

    fn cargo(&self, verb: &str) -> Command {
        self.write();
        let mut cargo = command(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        cargo
            .current_dir(&self.root)
            .arg(verb)
            .args(["--profile", self.profile, "--target-dir", "target"])
            .args(&self.arguments)
            .env("CARGO_ENCODED_RUSTFLAGS", self.flags.join("\x1f"));
        cargo
    }

    /// Builds it; where the file of that name is.
    fn build(&self, file: &str) -> PathBuf {
        succeed(&mut self.cargo("build"));
        let directory = if self.profile == "dev" {
            "debug"
        } else {
            self.profile
        };
        let built = self.root.join("target").join(directory).join(file);
        assert!(built.exists(), "{built:?}");
        built
    }

    fn build_program(&self) -> PathBuf {
        self.build("program")
    }

    fn build_library(&self) -> PathBuf {
        self.build("liblibrary.so")
    }

    fn build_host(&self) -> PathBuf {
        self.build("host")
    }
}

fn depends_on_the_crate(features: &[&str]) -> String {
    format!(
        "plimsoll-interpose = {{ path = {:?}, features = {features:?} }}",
        env!("CARGO_MANIFEST_DIR")
    )
}

/// What a program printed: `key=value`, separated by spaces.
#[derive(Debug, PartialEq, Eq)]
struct Report {
    linked: bool,
    waits: usize,
    wakes: usize,
    exported: Option<bool>,
}

impl Report {
    fn parse(text: &str) -> Self {
        let values: BTreeMap<_, _> = text
            .split_whitespace()
            .filter_map(|word| word.split_once('='))
            .collect();
        let number = |key| values[key].parse().expect("a number");
        Self {
            linked: values["linked"] == "true",
            waits: number("waits"),
            wakes: number("wakes"),
            exported: values.get("exported").map(|&value| value == "true"),
        }
    }

    fn of(command: &mut Command) -> Self {
        Self::parse(&succeed(command))
    }

    fn saw_the_lock(&self) -> bool {
        self.waits >= 1 && self.wakes >= 1
    }

    fn saw_anything(&self) -> bool {
        self.waits + self.wakes > 0
    }
}

/// Holds that the program's own lock is seen, and the calls of a C library that it loads.
fn is_interposed(case: &str, program: &Path) {
    let libraries = rust_libraries();
    let report = Report::of(command(program).env("LD_LIBRARY_PATH", &libraries));
    say(&format!("{case}: {report:?}"));
    assert!(report.linked && report.saw_the_lock(), "{case}: {report:?}");

    let Some(library) = c_library(case) else {
        return;
    };
    let report = Report::of(
        command(program)
            .arg(library)
            .env("LD_LIBRARY_PATH", &libraries),
    );
    assert_eq!((report.waits, report.wakes), (1, 2), "{case}, C library");
}

/// A C library that makes futex calls, built with nothing of Rust's.
fn c_library(case: &str) -> Option<PathBuf> {
    compile_c(
        case,
        source::CALLER_C,
        "libcaller.so",
        &["-shared", "-fPIC"],
    )
}

fn compile_c(case: &str, source: &str, name: &str, arguments: &[&str]) -> Option<PathBuf> {
    if !c_compiler_can(&["--version"]) {
        say(&format!("{case}: no C compiler, so nothing in C is loaded"));
        return None;
    }
    let package = Package::new(case, "c").file("source.c", source);
    package.write();
    let built = package.root.join(name);
    succeed(
        command("cc")
            .current_dir(&package.root)
            .args(arguments)
            .args(["-o", name, "source.c", "-ldl"]),
    );
    Some(built)
}

/// Whether those bytes are in the file.
fn holds(file: &Path, bytes: &[u8]) -> bool {
    let content = fs::read(file).expect("it was built");
    content.windows(bytes.len()).any(|window| window == bytes)
}

#[test]
fn a_debug_build_is_interposed() {
    is_interposed("debug", &Package::program("debug").build_program());
}

#[test]
fn a_release_build_is_interposed() {
    let package = Package::program("release").profile("release");
    is_interposed("release", &package.build_program());
}

#[test]
fn a_build_with_thin_lto_is_interposed() {
    if is_in_this_form("thin LTO") {
        let package = Package::program("thin").profile("thin");
        is_interposed("thin", &package.build_program());
    }
}

#[test]
fn a_build_with_fat_lto_is_interposed() {
    if is_in_this_form("fat LTO") {
        let package = Package::program("fat").profile("fat");
        is_interposed("fat", &package.build_program());
    }
}

#[test]
fn a_stripped_build_with_fat_lto_that_aborts_is_interposed() {
    let package = Package::program("stripped").profile("stripped");
    is_interposed("stripped", &package.build_program());
}

/// A linker, by the name that the C compiler knows it by.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Linker {
    Bfd,
    Gold,
    Lld,
}

impl Linker {
    fn name(self) -> &'static str {
        match self {
            Self::Bfd => "bfd",
            Self::Gold => "gold",
            Self::Lld => "lld",
        }
    }

    /// What the C compiler has to be told. Rust's own lld is taken where there is one.
    fn arguments(self) -> Vec<String> {
        let mut arguments = vec![format!("-fuse-ld={}", self.name())];
        let own = rust_libraries().with_file_name("bin").join("gcc-ld");
        if self == Self::Lld && own.exists() {
            arguments.push(format!("-B{}", own.display()));
        }
        arguments
    }

    fn is_here(self) -> bool {
        let arguments = self.arguments();
        let mut arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
        arguments.push("-Wl,--version");
        let is_here = c_compiler_can(&arguments);
        if !is_here {
            say(&format!("{}: skipped, there is none", self.name()));
        }
        is_here
    }

    /// Which one linked this, as it left in the file.
    fn of(file: &Path) -> Self {
        if holds(file, b"Linker: LLD ") {
            Self::Lld
        } else if holds(file, b"GNU\0gold ") {
            Self::Gold
        } else {
            Self::Bfd
        }
    }

    fn applied_to(self, package: Package) -> Package {
        self.arguments().iter().fold(package, |package, argument| {
            package.flag(format!("link-arg={argument}"))
        })
    }
}

fn what_it_links_is_interposed(linker: Linker) {
    if !linker.is_here() {
        return;
    }
    let profiles: &[_] = if all() {
        &["dev", "release", "stripped"]
    } else {
        &["dev"]
    };
    for profile in profiles {
        let case = format!("{}-{profile}", linker.name());
        let package = linker.applied_to(Package::program(&case).profile(profile));
        let program = package.build_program();
        assert!(Linker::of(&program) == linker, "{case}");
        is_interposed(&case, &program);
    }
}

#[test]
fn what_bfd_links_is_interposed() {
    what_it_links_is_interposed(Linker::Bfd);
}

#[test]
fn what_gold_links_is_interposed() {
    if is_in_this_form("gold") {
        what_it_links_is_interposed(Linker::Gold);
    }
}

#[test]
fn what_lld_links_is_interposed() {
    if is_in_this_form("lld") {
        what_it_links_is_interposed(Linker::Lld);
    }
}

/// The standard library is a shared library then, whose calls have to find the program's function.
#[test]
fn a_program_with_a_shared_standard_library_is_interposed() {
    if !is_in_this_form("prefer-dynamic") {
        return;
    }
    for profile in ["dev", "release"] {
        let case = format!("dynamic-{profile}");
        let package = Package::program(&case)
            .profile(profile)
            .flag("prefer-dynamic");
        let program = package.build_program();
        assert!(holds(&program, b"\0libstd-"), "{case}");
        is_interposed(&case, &program);
    }
}

/// The C library is in the program then: its definition must not be taken, nor clash.
#[test]
fn a_program_with_the_c_library_in_it_is_interposed() {
    if !is_in_this_form("crt-static") {
        return;
    }
    let empty = Package::new("static", "c").file("empty.c", "int main(void) { return 0; }");
    empty.write();
    let source = empty.root.join("empty.c");
    let built = empty.root.join("empty");
    let paths = [&source, &built].map(|path| path.to_str().expect("text"));
    if !c_compiler_can(&["-static", paths[0], "-o", paths[1]]) {
        return say("crt-static: skipped, there is no static C library");
    }
    for profile in ["dev", "release", "stripped"] {
        let case = format!("static-{profile}");
        let package = Package::program(&case)
            .profile(profile)
            .flag("target-feature=+crt-static");
        let program = package.build_program();
        assert!(!has_interpreter(&program), "{case}");
        let report = Report::of(&mut command(&program));
        say(&format!("{case}: {report:?}"));
        assert!(report.linked && report.saw_the_lock(), "{case}: {report:?}");
    }
}

/// Whether the file names a dynamic linker.
fn has_interpreter(file: &Path) -> bool {
    const PT_INTERP: u32 = 3;
    let content = fs::read(file).expect("it was built");
    let half = |at: usize| u16::from_le_bytes([content[at], content[at + 1]]) as usize;
    let start = u32::from_le_bytes(content[32..36].try_into().expect("four")) as usize;
    (0..half(56)).any(|index| {
        let at = start + index * half(54);
        content[at..at + 4] == PT_INTERP.to_le_bytes()
    })
}

#[test]
fn unit_integration_and_doc_tests_are_interposed() {
    for profile in ["dev", "release"] {
        if profile == "release" && !is_in_this_form("cargo test --release") {
            return;
        }
        let package = Package::program(&format!("tests-{profile}")).profile(profile);
        let passed = succeed(&mut package.cargo("test"));
        for test in [
            "test tests::a_unit_test_is_interposed ... ok",
            "test an_integration_test_is_interposed ... ok",
            "test src/lib.rs - (line 3) ... ok",
        ] {
            assert!(passed.contains(test), "{profile}: {test}\n{passed}");
        }
    }
}

#[test]
fn the_locks_of_parking_lot_are_seen() {
    if !is_in_this_form("parking_lot") {
        return;
    }
    for profile in ["dev", "release", "stripped"] {
        let case = format!("parking_lot-{profile}");
        let dependencies = depends_on_the_crate(&[]) + "\nparking_lot = \"0.12\"";
        let mut package =
            Package::program(&case)
                .profile(profile)
                .manifest("program", "", &dependencies);
        package.flags.push("--cfg=parking_lot".to_owned());
        package.arguments.clear();
        let program = package.build_program();
        let report = Report::of(command(&program).arg("parking_lot"));
        say(&format!("{case}: {report:?}"));
        assert!(report.linked && report.saw_the_lock(), "{case}: {report:?}");
    }
}

/// The hosts that load a library: one of Rust's, with a standard library of its own, and one
/// that is not.
fn hosts(case: &str) -> Vec<PathBuf> {
    let mut hosts = vec![Package::host(case).build_host()];
    hosts.extend(compile_c(case, source::HOST_C, "host", &[]));
    hosts
}

/// Holds that for each of the hosts, and says what they say.
fn for_each_host(
    case: &str,
    hosts: &[PathBuf],
    package: &Package,
    is_right: impl Fn(&Report) -> bool,
) {
    let library = package.build_library();
    for host in hosts {
        let report = Report::of(command(host).arg(&library));
        say(&format!("{case}: {report:?}"));
        assert!(is_right(&report), "{case}: {report:?}");
    }
}

/// rustc makes what is not Rust's in a `cdylib` local to it: so the library's own calls are bound
/// to its own function whatever the program has, and nobody else's are.
#[test]
fn a_library_that_is_loaded_sees_its_own_calls() {
    let hosts = hosts("cdylib-hosts");
    let holds = |case: &str, package: Package| {
        for_each_host(case, &hosts, &package, |report| {
            report.linked && report.saw_the_lock() && report.exported == Some(false)
        });
    };
    let dev = |case: &str| Package::library(case, &[]);
    holds("cdylib-debug", dev("cdylib-debug"));
    if !is_in_this_form("other cdylibs") {
        return;
    }
    for (case, profile) in [
        ("cdylib-release", "release"),
        ("cdylib-stripped", "stripped"),
    ] {
        holds(case, dev(case).profile(profile));
    }
    for (case, linker) in [("cdylib-bfd", Linker::Bfd), ("cdylib-gold", Linker::Gold)] {
        if linker.is_here() {
            holds(case, linker.applied_to(dev(case)));
        }
    }
    let case = "cdylib-symbolic";
    holds(case, dev(case).flag(SYMBOLIC));
}

const SYMBOLIC: &str = "link-arg=-Wl,-Bsymbolic-functions";

/// What is found from outside can be found elsewhere first.
#[test]
fn a_loaded_library_that_exports_the_function_knows_whether_it_has_it() {
    if !is_in_this_form("cdylibs with the feature export") {
        return;
    }
    let hosts = hosts("export-hosts");
    for profile in ["dev", "release", "stripped"] {
        let case = format!("export-{profile}");
        let package = Package::library(&case, &["export"]).profile(profile);
        for_each_host(&case, &hosts, &package, |report| {
            !report.linked && !report.saw_anything() && report.exported == Some(true)
        });
        let case = format!("export-symbolic-{profile}");
        let package = Package::library(&case, &["export"])
            .profile(profile)
            .flag(SYMBOLIC);
        for_each_host(&case, &hosts, &package, |report| {
            report.linked && report.saw_the_lock() && report.exported == Some(true)
        });
    }
}

/// What the library counted that was preloaded into a program that contends.
fn preloaded(case: &str, library: &Package, host: &Path) -> Report {
    let report = Report::of(
        command(host)
            .env("LD_PRELOAD", library.build_library())
            .env("LIBRARY_REPORTS_AT_EXIT", "1"),
    );
    say(&format!("{case}: {report:?}"));
    report
}

#[test]
fn a_preloaded_library_that_exports_the_function_sees_the_programs_calls() {
    let host = Package::host("preload-export-host").build_host();
    let holds = |case: &str, library: Package| {
        let report = preloaded(case, &library, &host);
        assert!(report.linked && report.saw_the_lock(), "{case}: {report:?}");
    };
    let dev = |case: &str| Package::library(case, &["export"]);
    holds("preload-export-dev", dev("preload-export-dev"));
    if !is_in_this_form("other preloaded cdylibs") {
        return;
    }
    for profile in ["release", "stripped"] {
        let case = format!("preload-export-{profile}");
        holds(&case, dev(&case).profile(profile));
    }
    for linker in [Linker::Bfd, Linker::Gold] {
        if linker.is_here() {
            let case = format!("preload-export-{}", linker.name());
            holds(&case, linker.applied_to(dev(&case)));
        }
    }
}

/// The other side of [`a_library_that_is_loaded_sees_its_own_calls`].
#[test]
fn a_preloaded_library_that_does_not_sees_nothing_of_the_program() {
    if !is_in_this_form("LD_PRELOAD without the feature export") {
        return;
    }
    let host = Package::host("preload-host").build_host();
    for profile in ["dev", "release"] {
        let case = format!("preload-{profile}");
        let library = Package::library(&case, &[]).profile(profile);
        let report = preloaded(&case, &library, &host);
        assert!(
            report.linked && !report.saw_anything(),
            "{case}: {report:?}"
        );
    }
}

/// A program that has the crate with the feature `pthread`.
fn pthread_program(case: &str) -> Package {
    Package::new(case, "program")
        .manifest("program", "", &depends_on_the_crate(&["pthread"]))
        .file("src/main.rs", source::PTHREAD_PROGRAM)
        .file("src/witness.rs", source::PTHREAD_WITNESS)
}

/// What is seen of a library's, or a program's, [`source::PTHREAD_C`]: one lock is waited for,
/// which is given up; one condition is, until that is cancelled.
fn saw_the_pthread_locks(case: &str, report: &str) {
    say(&format!("{case}: {}", report.trim()));
    for part in [
        "linked=true in_force=true locks=1 conditions=1 releases=",
        " abandoned=1",
    ] {
        assert!(report.contains(part), "{case}: {report}");
    }
    assert!(!report.contains(" releases=0 "), "{case}: {report}");
}

/// Holds that locks of a C library that the program loads are seen.
fn takes_over_pthread(case: &str, package: &Package) {
    let program = package.build_program();
    let arguments = ["-shared", "-fPIC", "-pthread"];
    if let Some(library) = compile_c(case, source::PTHREAD_C, "liblocks.so", &arguments) {
        let libraries = rust_libraries();
        let report = succeed(
            command(&program)
                .arg(library)
                .env("LD_LIBRARY_PATH", libraries),
        );
        saw_the_pthread_locks(case, &report);
    }
}

#[test]
fn pthread_locks_are_taken_over_however_a_program_is_linked() {
    for (case, profile) in [
        ("pthread-debug", "dev"),
        // Aborts on panics; a thread can be cancelled even so.
        ("pthread-stripped", "stripped"),
    ] {
        takes_over_pthread(case, &pthread_program(case).profile(profile));
    }
    if Linker::Bfd.is_here() {
        let package = Linker::Bfd.applied_to(pthread_program("pthread-bfd"));
        takes_over_pthread("pthread-bfd", &package);
    }
    if !is_in_this_form("pthread in other ways") {
        return;
    }
    for (case, profile) in [
        ("pthread-release", "release"),
        ("pthread-thin", "thin"),
        ("pthread-fat", "fat"),
    ] {
        takes_over_pthread(case, &pthread_program(case).profile(profile));
    }
    for linker in [Linker::Bfd, Linker::Gold, Linker::Lld] {
        if linker.is_here() {
            for profile in ["dev", "stripped"] {
                let case = format!("pthread-{}-{profile}", linker.name());
                let package = linker.applied_to(pthread_program(&case).profile(profile));
                takes_over_pthread(&case, &package);
            }
        }
    }
    for profile in ["dev", "release"] {
        let case = format!("pthread-dynamic-{profile}");
        let package = pthread_program(&case)
            .profile(profile)
            .flag("prefer-dynamic");
        takes_over_pthread(&case, &package);
    }
}

/// Nothing is defined there, and nothing clashes.
#[test]
fn pthread_locks_are_left_alone_in_a_program_with_the_c_library_in_it() {
    if !is_in_this_form("pthread with crt-static") {
        return;
    }
    for profile in ["dev", "stripped"] {
        let case = format!("pthread-static-{profile}");
        let package = pthread_program(&case)
            .profile(profile)
            .flag("target-feature=+crt-static");
        let program = package.build_program();
        assert!(!has_interpreter(&program), "{case}");
        let report = succeed(&mut command(&program));
        assert!(
            report.contains("linked=false in_force=false"),
            "{case}: {report}"
        );
    }
}

#[test]
fn a_preloaded_library_sees_the_programs_pthread_locks() {
    let case = "pthread-preload";
    let arguments = ["-DHOST", "-pthread"];
    let Some(host) = compile_c(case, source::PTHREAD_C, "host", &arguments) else {
        return;
    };
    let profiles: &[_] = if all() {
        &["dev", "release", "stripped"]
    } else {
        &["dev"]
    };
    for profile in profiles {
        let case = format!("{case}-{profile}");
        let library = Package::new(&case, "library")
            .manifest(
                "library",
                "[lib]\ncrate-type = [\"cdylib\"]",
                &depends_on_the_crate(&["export", "pthread"]),
            )
            .file("src/lib.rs", source::PTHREAD_LIBRARY)
            .file("src/witness.rs", source::PTHREAD_WITNESS)
            .profile(profile);
        let report = succeed(command(&host).env("LD_PRELOAD", library.build_library()));
        saw_the_pthread_locks(&case, &report);
    }
}

/// As it would be if two versions were asked for: one after the other must not win in silence.
#[test]
fn two_copies_in_one_program_are_an_error_that_cargo_explains() {
    let original = Path::new(env!("CARGO_MANIFEST_DIR"));
    let manifest = fs::read_to_string(original.join("Cargo.toml")).expect("is there");
    let mut dependencies = String::new();
    for version in ["0.1.0", "0.2.0"] {
        let manifest = manifest
            .replace("version.workspace = true\nedition", "edition")
            .replace("edition.workspace = true", "edition = \"2024\"")
            .replace("rust-version.workspace = true\n", "")
            .replace("license.workspace = true\n", "")
            .replace("[lints]\nworkspace = true\n", "")
            .replace(
                "[package]\n",
                &format!("[package]\nversion = \"{version}\"\n"),
            );
        let name = format!("copy-{version}");
        let mut copy = Package::new("copies", &name).file("Cargo.toml", &manifest);
        for path in ["build.rs", "src/lib.rs", "src/x86_64.rs"] {
            let content = fs::read_to_string(original.join(path)).expect("is there");
            copy = copy.file(path, &content);
        }
        copy.write();
        dependencies += &format!(
            "copy-{} = {{ package = \"plimsoll-interpose\", path = {:?} }}\n",
            version.replace('.', "-"),
            copy.root
        );
    }
    let program = Package::new("copies", "program")
        .manifest("program", "", &dependencies)
        .file("src/main.rs", "fn main() {}\n");
    let output = run(&mut program.cargo("build"));
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success());
    assert!(
        told.contains("links to the native library `plimsoll_interpose`"),
        "{told}"
    );
}
