//! The function to which an allocation of a Rust program is attributed, in all kinds of builds.

use std::process::Command;

use crate::scene::{PLIMSOLL, Scene, run};

/// Each function `by_...` allocates in a different way, and no other function of the program does.
const SOURCE: &str = r#"
use std::alloc::{GlobalAlloc, Layout, System};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::hint::black_box;
use std::rc::Rc;
use std::sync::Arc;

struct Forwarding;

unsafe impl GlobalAlloc for Forwarding {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 { unsafe { checked(System.alloc(layout)) } }
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 { unsafe { checked(System.alloc_zeroed(layout)) } }
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        unsafe { checked(System.realloc(block, layout, size)) }
    }
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) { unsafe { System.dealloc(block, layout) } }
}

fn checked(block: *mut u8) -> *mut u8 { assert!(!block.is_null()); block }

#[cfg_attr(with_static, global_allocator)]
#[allow(dead_code)]
static ALLOCATOR: Forwarding = Forwarding;

struct Point { x: f64 }
impl std::fmt::Display for Point {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result { write!(to, "at {}", self.x) }
}

macro_rules! sites {
    ($($name:ident $make:expr;)*) => {
        $(#[inline(never)] fn $name() { std::mem::forget(black_box($make)); black_box(()); })*
        fn main() { $($name();)* }
    };
}

sites! {
    by_box Box::new(black_box(7_u64));
    by_boxed_closure { let held = black_box(5_u64); Box::new(move |x: u64| x + held) as Box<dyn Fn(u64) -> u64> };
    by_vec vec![black_box(0_u8); 3000];
    by_elements vec![black_box(1_u32); 700];
    by_push { let mut all = Vec::new(); for at in 0..black_box(3000_u64) { all.push(at); } all };
    by_reserve Vec::<u16>::with_capacity(black_box(500));
    by_collect (0..black_box(900_u64)).map(|at| at * 3).collect::<Vec<_>>();
    by_filter (0..black_box(900_u64)).filter(|at| at % 3 == 0).collect::<Vec<_>>();
    by_extend { let mut all = vec![1_u8]; all.extend_from_slice(&[black_box(2); 900]); all };
    by_to_vec black_box(&[1_u8, 2, 3][..]).to_vec();
    by_clone { let all = vec![black_box(1_u64); 20]; (all.clone(), all) };
    by_boxed_slice black_box(&[1_u32, 2, 3][..]).to_vec().into_boxed_slice();
    by_string String::from(black_box("some text"));
    by_into { let text: String = black_box("a longer text").into(); text };
    by_owned black_box("the longest text of all").to_owned();
    by_to_string black_box("text").to_string();
    by_display Point { x: black_box(1.5) }.to_string();
    by_format format!("{} and {:?}", black_box(17), black_box("more"));
    by_push_str { let mut text = String::new(); for _ in 0..black_box(300) { text.push_str("abc"); } text };
    by_repeat black_box("abc").repeat(50);
    by_join [black_box("a"), "b"].join("-");
    by_replace black_box("abcabc").replace("bc", "long text");
    by_rc Rc::new(black_box(3_u64));
    by_arc Arc::<str>::from(black_box("some text"));
    by_hash_map { let mut map = HashMap::new(); for at in 0..black_box(300_u64) { map.insert(at, at); } map };
    by_tree { let mut map = BTreeMap::new(); for at in 0..black_box(300_u64) { map.insert(at, at); } map };
    by_queue { let mut all = VecDeque::new(); for at in 0..black_box(300_u64) { all.push_back(at); } all };
    by_option black_box(Some(3_u64)).map(Box::new);
    by_mapping black_box(&[1_u64, 2, 3][..]).iter().map(|at| Box::new(*at)).collect::<Vec<_>>();
}
"#;

/// Returns the sites of [`SOURCE`].
fn sites() -> Vec<&'static str> {
    let words = SOURCE.split_whitespace();
    let names = words.filter(|word| word.starts_with("by_"));
    names.collect()
}

/// The options of a build.
#[derive(Clone, Copy, Debug)]
struct Build {
    debug: &'static str,
    lto: &'static str,
    mangling: &'static str,
    panic: &'static str,
    frame_pointers: &'static str,
    has_static: bool,
}

const DEBUG: [&str; 4] = ["none", "line-tables-only", "limited", "full"];
const LTO: [&str; 3] = ["off", "thin", "fat"];
const MANGLING: [&str; 2] = ["v0", "legacy"];
const PANIC: [&str; 2] = ["unwind", "abort"];
const FRAME_POINTERS: [&str; 2] = ["no", "yes"];

/// Builds the program this way. Describes the sites to which not all of their blocks are
/// attributed.
fn misattributed(scene: &Scene, build: Build) -> Vec<String> {
    let (source, program) = (scene.path("sites.rs"), scene.path("sites"));
    std::fs::write(&source, SOURCE).unwrap();
    let mut rustc = Command::new(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()));
    // Without this variable, only a nightly compiler accepts the older mangling.
    rustc.env("RUSTC_BOOTSTRAP", "1");
    if build.has_static {
        rustc.args(["--cfg", "with_static"]);
    }
    let compiled = rustc
        .args([
            "--edition=2024",
            "-Awarnings",
            "-Zunstable-options",
            "-Copt-level=3",
        ])
        .arg(format!("-Cdebuginfo={}", build.debug))
        .arg(format!("-Clto={}", build.lto))
        .arg(format!("-Csymbol-mangling-version={}", build.mangling))
        .arg(format!("-Cpanic={}", build.panic))
        .arg(format!("-Cforce-frame-pointers={}", build.frame_pointers))
        .args(["-Cstrip=none", "-o"])
        .args([&program, &source])
        .status()
        .unwrap();
    assert!(compiled.success(), "{build:?}");
    let out = scene.path("out");
    let options = [
        "--heap-rate",
        "1",
        "--out",
        out.to_str().unwrap(),
        "--quiet",
    ];
    let run = run(&options, &program, &[]).output().unwrap();
    assert!(
        run.status.success(),
        "{}",
        String::from_utf8_lossy(&run.stderr)
    );
    let report = Command::new(PLIMSOLL)
        .args(["report", "--folded", "--sample-type", "alloc_objects"])
        .arg(out.join("heap.pb.gz"))
        .output()
        .unwrap();
    let folded = String::from_utf8_lossy(&report.stdout);
    let mut wrong = Vec::new();
    for site in sites() {
        let stacks = folded
            .lines()
            .filter(|line| line.contains(&format!("::{site}")));
        let mut count = 0;
        for line in stacks {
            count += 1;
            let (stack, _) = line.rsplit_once(' ').unwrap();
            let (_, inside) = stack.split_once(site).unwrap();
            let leaf = inside.rsplit(';').next().unwrap();
            // Functions of the program that the site calls are accepted, too.
            let is_of_program = ["{closure#0}", "{{closure}}"]
                .iter()
                .any(|end| leaf.ends_with(end))
                || leaf.contains("sites::") && leaf.ends_with("fmt");
            if inside.contains(';') && !is_of_program {
                wrong.push(format!("{build:?}: {site}{inside}"));
            }
        }
        if count == 0 {
            wrong.push(format!("{build:?}: {site} is in no stack"));
        }
    }
    wrong
}

fn check(name: &str, builds: impl Iterator<Item = Build>) {
    let scene = Scene::new(name);
    let wrong: Vec<String> = builds
        .flat_map(|build| misattributed(&scene, build))
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Each pair of options except one occurs in one of these builds.
#[test]
fn blocks_belong_to_the_function_that_makes_them_in_some_builds() {
    let build = |debug, lto, mangling, panic, frame_pointers, has_static| Build {
        debug,
        lto,
        mangling,
        panic,
        frame_pointers,
        has_static,
    };
    let builds = [
        build("none", "off", "v0", "unwind", "yes", true),
        build("line-tables-only", "thin", "legacy", "abort", "no", true),
        build("limited", "off", "legacy", "unwind", "no", false),
        build("line-tables-only", "off", "v0", "abort", "yes", true),
    ];
    check("frames", builds.into_iter());
}

/// All 192 builds, which take about 10 minutes.
#[test]
#[ignore = "takes long"]
fn blocks_belong_to_the_function_that_makes_them_in_every_build() {
    let mut builds = Vec::new();
    for debug in DEBUG {
        for lto in LTO {
            for mangling in MANGLING {
                for panic in PANIC {
                    for frame_pointers in FRAME_POINTERS {
                        for has_static in [false, true] {
                            builds.push(Build {
                                debug,
                                lto,
                                mangling,
                                panic,
                                frame_pointers,
                                has_static,
                            });
                        }
                    }
                }
            }
        }
    }
    check("all-frames", builds.into_iter());
}
