//! Instances of generic functions in every form of the heap profile. The cases are those of Go's
//! `TestGenericsHashKeyInPprofBuilder` and `TestGenericsInlineLocations`.

use std::hint::black_box;

use plimsoll::profile::{self, Detail, Format};

use plimsoll_checks::profile::read_profile;
use plimsoll_testkit::child;

#[inline(never)]
fn allocate<T: Default + Clone>(count: usize) -> Vec<T> {
    let mut items = Vec::with_capacity(black_box(count));
    items.push(T::default());
    items
}

#[inline(always)]
fn innermost<T: Default + Clone>(count: usize) -> Vec<T> {
    black_box(Vec::with_capacity(black_box(count)))
}

#[inline(always)]
fn middle<T: Default + Clone>(count: usize) -> Vec<T> {
    innermost(count)
}

#[inline(never)]
fn outer<T: Default + Clone>(count: usize) -> Vec<T> {
    let items = middle(count);
    black_box(items)
}

/// Reports whether `name` is an instance of a function, as debug information or the mangled name
/// spells it.
fn is_instance(name: &str, function: &str, of: &str) -> bool {
    let path = format!("generics::{function}");
    name.ends_with(&format!("{path}<{of}>")) || name.ends_with(&format!("{path}::<{of}>"))
}

fn written(format: Format) -> String {
    let mut bytes = Vec::new();
    let profile = profile::lookup("heap").expect("it is there always");
    profile
        .write_with(&mut bytes, format, Detail::Full)
        .expect("writing to memory");
    String::from_utf8(bytes).expect("text")
}

fn instances_differ() {
    let kept = (allocate::<u32>(128), allocate::<u64>(128));
    let chains = (outer::<u32>(300), outer::<u64>(300));
    let profile = read_profile("heap");
    for (of, item) in [("u32", 4), ("u64", 8)] {
        // Objects and bytes of the samples whose innermost functions are `functions`.
        let sum = |functions: &[&str]| {
            let samples = profile.sample.iter().filter(|sample| {
                let names = profile.names(sample);
                let mut pairs = names.iter().zip(functions);
                names.len() >= functions.len()
                    && pairs.all(|(name, function)| is_instance(name, function, of))
            });
            let sum = profile.sum(samples);
            (sum.inuse_objects, sum.inuse_space)
        };
        assert_eq!(sum(&["allocate"]), (1, 128 * item), "{of}");
        let class = plimsoll::size_class::counted_size(300 * item as usize) as i64;
        assert_eq!(sum(&["innermost", "middle", "outer"]), (1, class), "{of}");
    }
    // Inlined functions are lines of one location.
    let lines = profile.location.iter().map(|location| location.line.len());
    assert!(lines.max() >= Some(3));

    for text in [written(Format::Text), written(Format::Dump)] {
        for of in ["u32", "u64"] {
            let names = [format!("allocate<{of}>"), format!("allocate::<{of}>")];
            assert!(names.iter().any(|name| text.contains(name)), "{text}");
        }
    }
    drop((kept, chains));
}

#[test]
fn instances_of_generic_functions_differ_in_every_form() {
    child::run(
        "generics::instances_of_generic_functions_differ_in_every_form",
        "heap_rate=1",
        instances_differ,
    );
}
