//! Go's tool prints each name that Plimsoll found, also where other addresses of the same file have none.

use std::collections::BTreeSet;
use std::ffi::{CStr, CString, OsStr, c_long};
use std::hint::black_box;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use plimsoll::profile::{Detail, cpu};
use plimsoll_checks::relations::Until;
use plimsoll_testkit::child;
use plimsoll_testkit::pprof::Profile;
use plimsoll_testkit::tools::go;

/// Whether the child removes its program.
const REMOVES: &str = "PLIMSOLL_TEST_REMOVES";

/// The number of recordings of each process: 25 in long runs.
fn recordings() -> usize {
    match std::env::var_os("PLIMSOLL_SOAK_SECONDS") {
        Some(_) => 25,
        None => 5,
    }
}

// A function of which most has no symbol, since that ends before the loop.
#[cfg(target_arch = "x86_64")]
std::arch::global_asm!(
    ".text",
    ".p2align 4",
    ".globl plimsoll_test_counts",
    ".type plimsoll_test_counts, @function",
    "plimsoll_test_counts:",
    "mov rax, rdi",
    "jmp 2f",
    ".size plimsoll_test_counts, . - plimsoll_test_counts",
    "2: dec rax",
    "jnz 2b",
    "ret",
);
#[cfg(target_arch = "aarch64")]
std::arch::global_asm!(
    ".text",
    ".p2align 4",
    ".globl plimsoll_test_counts",
    ".type plimsoll_test_counts, %function",
    "plimsoll_test_counts:",
    "b 2f",
    ".size plimsoll_test_counts, . - plimsoll_test_counts",
    "2: subs x0, x0, #1",
    "b.ne 2b",
    "ret",
);

unsafe extern "C" {
    fn plimsoll_test_counts(turns: usize);
}

/// A library whose functions call one another through the procedure linkage table, and one without a symbol.
const LIBRARY: &str = r#"
__attribute__((noinline)) long leaf(long n) { __asm__ volatile(""); return n; }
static __attribute__((noinline)) long hidden(long n) {
    long sum = 0;
    for (long i = 0; i < n; i++) { __asm__ volatile("" : "+r"(sum)); sum += i; }
    return sum;
}
long through_table(long n) {
    long sum = 0;
    for (long i = 0; i < n; i++) sum += leaf(i);
    return sum;
}
long through_hidden(long n) { return hidden(n) + 1; }
"#;

type Function = unsafe extern "C" fn(c_long) -> c_long;

/// Compiles the library, strips and loads it. Returns its functions.
fn load(directory: &Path) -> [Function; 2] {
    let source = directory.join("stripped.c");
    let library = directory.join("libstripped.so");
    std::fs::write(&source, LIBRARY).unwrap();
    let options = ["-O1", "-shared", "-fPIC", "-fplt", "-s", "-Wl,-z,lazy"];
    let mut compiler = Command::new("cc");
    let compiler = compiler.args(options).arg("-o").args([&library, &source]);
    assert!(compiler.status().expect("a C compiler").success());
    let path = CString::new(library.as_os_str().as_bytes()).unwrap();
    // SAFETY: the library has no code that runs on loading.
    let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_LAZY) };
    assert!(!handle.is_null());
    [c"through_table", c"through_hidden"].map(|name: &CStr| {
        // SAFETY: the library is never closed.
        let found = unsafe { libc::dlsym(handle, name.as_ptr()) };
        assert!(!found.is_null(), "{name:?}");
        // SAFETY: the function has this type.
        unsafe { std::mem::transmute::<*mut libc::c_void, Function>(found) }
    })
}

#[inline(never)]
fn sums_in_rust() {
    black_box((0..black_box(20_000_u64)).map(|turn| turn ^ 5).sum::<u64>());
}

fn cpu_time() -> Duration {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `time` is valid for the write.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Executes each kind of code for some samples' time.
fn work([through_table, through_hidden]: [Function; 2]) {
    let calls = |function: Function| {
        // SAFETY: the library's functions only count.
        black_box(unsafe { function(20_000) });
    };
    // SAFETY: the function only counts.
    let counts = || unsafe { plimsoll_test_counts(20_000) };
    let reads_clock = || {
        for _ in 0..500 {
            black_box(Instant::now());
        }
    };
    let kinds: [&dyn Fn(); 5] = [
        &sums_in_rust,
        &counts,
        &|| calls(through_table),
        &|| calls(through_hidden),
        &reads_clock,
    ];
    for kind in kinds {
        let end = cpu_time() + Duration::from_millis(20);
        while cpu_time() < end {
            kind();
        }
    }
}

/// Returns the names in Go's list of functions.
fn names_by_go(go: &Path, source: &OsStr, kept: &Path) -> BTreeSet<String> {
    let output = Command::new(go)
        .env("PPROF_TMPDIR", kept)
        .args(["tool", "pprof", "-top", "-nodecount=1000000"])
        .args(["-nodefraction=0", "-edgefraction=0"])
        .arg(source)
        .output()
        .unwrap();
    let top = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{output:?}");
    let rows = top.lines().skip_while(|line| !line.contains("flat%"));
    let names = rows.skip(1).map(|row| {
        let mut rest = row;
        for _ in 0..5 {
            let column = rest.trim_start();
            rest = column.split_once(' ').map_or("", |(_, rest)| rest);
        }
        let name = rest.trim().trim_end_matches(" (inline)");
        name.trim_end_matches(" (partial-inline)").to_owned()
    });
    names.collect()
}

/// Checks one recording. Adds the names of modules with code whose function is unknown.
fn check(profile: &Profile, by_go: &BTreeSet<String>, nameless: &mut BTreeSet<String>) {
    let of_samples = profile.sample.iter().flat_map(|sample| &sample.location_id);
    let recorded: BTreeSet<u64> = of_samples.copied().collect();
    let locations = profile.location.iter();
    for location in locations.filter(|location| recorded.contains(&location.id)) {
        let module = (profile.mapping.iter())
            .find(|mapping| mapping.id == location.mapping_id)
            .and_then(|mapping| profile.text(mapping.filename).rsplit('/').next());
        for line in &location.line {
            let mut functions = profile.function.iter();
            let function = functions.find(|function| function.id == line.function_id);
            let name = profile.text(function.expect("it exists").name);
            assert!(by_go.contains(name), "{name} is not among {by_go:#?}");
            let placeholder = module.filter(|module| name.starts_with(&format!("{module}+0x")));
            nameless.extend(placeholder.map(str::to_owned));
        }
    }
}

fn records(go: &Path) {
    let directory = std::env::temp_dir().join(format!("plimsoll-nameless-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let functions = load(&directory);
    cpu::set_rate(cpu::MAX_RATE).expect("a signal is unused");
    let (mut named, mut nameless) = (BTreeSet::new(), BTreeSet::new());
    let mut has_vdso = false;
    for _ in 0..recordings() {
        cpu::start().unwrap();
        work(functions);
        let mut bytes = Vec::new();
        let recording = cpu::stop().expect("it was started");
        recording.write_to(&mut bytes, Detail::Full).unwrap();
        let file = directory.join("recording");
        std::fs::write(&file, &bytes).unwrap();
        let by_go = names_by_go(go, file.as_os_str(), &directory);
        let profile = Profile::read(&bytes);
        check(&profile, &by_go, &mut nameless);
        let mut mappings = profile.mapping.iter();
        has_vdso |= mappings.any(|mapping| profile.text(mapping.filename) == "[vdso]");
        named.extend(by_go);
    }
    for source in ["profile?seconds=1", "allocs"] {
        let (by_go, profile) = over_http(go, source, functions, &directory);
        check(&profile, &by_go, &mut nameless);
        named.extend(by_go);
    }
    // A recording under load may miss a kind of code, but not all of them do.
    let rust = "pages::go_tool::nameless::sums_in_rust";
    assert!(named.contains(rust), "{named:#?}");
    let program = std::env::args().next().expect("it has a name");
    let program = program.rsplit('/').next().unwrap();
    for module in [program, "libstripped.so"] {
        assert!(nameless.contains(module), "{module}: {nameless:?}");
    }
    // Where the clock is read by a system call, the kernel has no such function.
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    assert!(
        has_vdso || !maps.contains("[vdso]"),
        "no time is in the function that reads the clock"
    );
    std::fs::remove_dir_all(&directory).unwrap();
}

/// Has Go's tool fetch a page, beside work. The tool asks the page `symbol` for what it believes to be without names. Returns
/// the names that it prints, and the profile that it received.
fn over_http(
    go: &Path,
    page: &str,
    functions: [Function; 2],
    directory: &Path,
) -> (BTreeSet<String>, Profile) {
    let plimsoll = plimsoll::start();
    let address = plimsoll.http_address().expect("the settings request it");
    let kept = directory.join("fetched");
    std::fs::create_dir(&kept).unwrap();
    let is_done = AtomicBool::new(false);
    let by_go = std::thread::scope(|scope| {
        let _until = Until(&is_done);
        scope.spawn(|| {
            while !is_done.load(Ordering::Relaxed) {
                work(functions);
            }
        });
        let url = format!("http://{address}/debug/pprof/{page}");
        names_by_go(go, url.as_ref(), &kept)
    });
    let mut files = std::fs::read_dir(&kept).unwrap();
    let file = files.next().expect("the tool keeps the profile").unwrap();
    let profile = Profile::read(&std::fs::read(file.path()).unwrap());
    std::fs::remove_dir_all(&kept).unwrap();
    (by_go, profile)
}

const TEST: &str = "gos_tool_prints_each_name_beside_code_without_names";

#[test]
fn gos_tool_prints_each_name_beside_code_without_names() {
    let Some(go) = go() else { return };
    if !child::is_child() {
        let directory = std::env::temp_dir().join(format!("plimsoll-copy-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        // The tool cannot read the second program, whose file is removed while it runs.
        for is_removed in [false, true] {
            let copy = directory.join("copy");
            child::copy_program(&std::env::current_exe().unwrap(), &copy);
            let mut command = child::command_of(&copy, TEST, "http=127.0.0.1:0");
            command.env(REMOVES, if is_removed { "1" } else { "0" });
            let output = command.output().unwrap();
            assert!(output.status.success(), "{output:#?}");
            assert_eq!(copy.exists(), !is_removed);
        }
        std::fs::remove_dir_all(&directory).unwrap();
        return;
    }
    if std::env::var(REMOVES).as_deref() == Ok("1") {
        std::fs::remove_file(std::env::current_exe().unwrap()).unwrap();
    }
    records(&go);
}
