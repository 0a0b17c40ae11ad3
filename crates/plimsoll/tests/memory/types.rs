//! The label `type` of the heap profiles, and instances of generic functions in other profiles.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::hint::black_box;
use std::rc::Rc;
use std::sync::Arc;

use plimsoll::profile::{self, Detail, Format};
use plimsoll_checks::profile::read_profile;
use plimsoll_testkit::child;
use plimsoll_testkit::pprof::Profile;

#[derive(Clone)]
struct Node(#[expect(dead_code)] [u64; 20]);

fn node() -> Node {
    Node(black_box([7; 20]))
}

#[inline(never)]
fn in_a_box() -> Box<Node> {
    black_box(Box::new(node()))
}

#[inline(never)]
fn in_a_vec() -> Vec<Node> {
    let mut nodes = black_box(Vec::new());
    nodes.push(node());
    black_box(nodes)
}

#[inline(never)]
fn collected() -> Vec<Node> {
    black_box((0..black_box(9)).map(|_| node()).collect())
}

#[inline(never)]
fn in_an_arc() -> Arc<Node> {
    black_box(Arc::new(node()))
}

#[inline(never)]
fn in_an_rc() -> Rc<Node> {
    black_box(Rc::new(node()))
}

#[inline(never)]
fn in_a_map() -> HashMap<u64, Node> {
    black_box(HashMap::from([(7, node())]))
}

#[inline(never)]
fn in_a_tree() -> BTreeMap<u64, Node> {
    let mut tree = BTreeMap::new();
    tree.insert(7, node());
    black_box(tree)
}

#[inline(never)]
fn in_a_deque() -> VecDeque<Node> {
    let mut deque = VecDeque::new();
    deque.push_back(node());
    black_box(deque)
}

#[inline(never)]
fn of_no_type() -> *mut libc::c_void {
    let layout = std::alloc::Layout::new::<[u64; 77]>();
    // SAFETY: the layout is not empty.
    black_box(unsafe { std::alloc::alloc(layout) }).cast()
}

/// Returns the types of the samples whose leaf is `function`.
fn types<'a>(profile: &'a Profile, function: &str) -> Vec<Option<&'a str>> {
    let samples = profile.at(function);
    assert!(!samples.is_empty(), "{function}");
    let mut types: Vec<_> = samples
        .iter()
        .map(|sample| profile.label(sample, "type"))
        .collect();
    types.dedup();
    types
}

fn labelled() {
    let kept = (in_a_box(), in_a_vec(), collected(), in_an_arc(), in_an_rc());
    let maps = (in_a_map(), in_a_tree(), in_a_deque(), of_no_type());
    for name in ["heap", "allocs", "peak"] {
        let profile = read_profile(name);
        for (function, container) in [
            ("in_a_box", "Box"),
            ("in_a_vec", "Vec"),
            ("collected", "Vec"),
            ("in_an_arc", "Arc"),
            ("in_an_rc", "Rc"),
            ("in_a_deque", "VecDeque"),
        ] {
            let function = format!("types::{function}");
            let expected = format!("{container}<memory::types::Node>");
            assert_eq!(types(&profile, &function), [Some(&*expected)], "{name}");
        }
        for (function, expected) in [
            ("types::in_a_map", "HashMap<u64, memory::types::Node>"),
            ("types::in_a_tree", "BTreeMap<u64, memory::types::Node>"),
        ] {
            assert_eq!(types(&profile, function), [Some(expected)], "{name}");
        }
        assert_eq!(types(&profile, "types::of_no_type"), [None], "{name}");
    }
    // Without names, no type is known.
    let mut bytes = Vec::new();
    let heap = profile::lookup("heap").unwrap();
    heap.write_with(&mut bytes, Format::Pprof, Detail::Addresses)
        .unwrap();
    let profile = Profile::read(&bytes);
    let mut samples = profile.sample.iter();
    assert!(samples.all(|sample| profile.label(sample, "type").is_none()));
    drop((kept, maps));
}

#[test]
fn samples_have_the_type_for_which_they_were_allocated() {
    child::run(
        "samples_have_the_type_for_which_they_were_allocated",
        "heap_rate=1",
        labelled,
    );
}

#[inline(never)]
fn waits<T: Send>(lock: &std::sync::Mutex<T>) {
    drop(black_box(lock.lock().unwrap()));
    black_box(size_of::<T>());
}

/// Waits of two instances, which are separate functions in the profiles of waits and of threads.
fn instances_wait() {
    profile::set_block_rate(std::time::Duration::from_nanos(1));
    let (first, second) = (std::sync::Mutex::new(0_u32), std::sync::Mutex::new(0_u64));
    let names = |profile: &Profile| -> Vec<String> {
        let samples = profile.sample.iter();
        let names = samples.flat_map(|sample| profile.names(sample));
        names.map(str::to_owned).collect()
    };
    let has = |names: &[String], of: &str| {
        let is_instance = |name: &String| {
            name.contains("types::waits<") && name.ends_with(&format!("<{of}>"))
                || name.ends_with(&format!("types::waits::<{of}>"))
        };
        names.iter().any(is_instance)
    };
    std::thread::scope(|scope| {
        let held = (first.lock().unwrap(), second.lock().unwrap());
        scope.spawn(|| waits(&first));
        scope.spawn(|| waits(&second));
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(120);
        loop {
            assert!(std::time::Instant::now() < deadline, "they never wait");
            let names = names(&read_profile("goroutine"));
            if has(&names, "u32") && has(&names, "u64") {
                break;
            }
        }
        drop(held);
    });
    let names = names(&read_profile("block"));
    assert!(has(&names, "u32") && has(&names, "u64"), "{names:?}");
}

#[test]
fn instances_of_a_function_differ_in_profiles_of_waits() {
    child::run(
        "instances_of_a_function_differ_in_profiles_of_waits",
        "",
        instances_wait,
    );
}
