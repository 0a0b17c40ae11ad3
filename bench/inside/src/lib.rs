//! Work of real programs that allocate much, over the global allocator of each binary.
//!
//! `PROGRAM WORK SCALE` generates its input, does the work and prints a checksum of the output.
//! *jaq* filters JSON, *boa* runs JavaScript, *prettyplease* formats Rust.

use std::fmt::Write as _;
use std::hash::{DefaultHasher, Hash, Hasher};

/// Defines a binary over an allocator without Plimsoll.
#[macro_export]
macro_rules! bare {
    ($allocator:path) => {
        #[global_allocator]
        static ALLOC: $allocator = $allocator;

        fn main() {
            $crate::main();
        }
    };
}

/// Defines a binary over an allocator of Plimsoll, counted and sampled.
#[macro_export]
macro_rules! counted {
    ($type:ty, $allocator:ident) => {
        #[global_allocator]
        static ALLOC: plimsoll::Alloc<$type> = plimsoll::Alloc::$allocator();

        fn main() {
            let _plimsoll = plimsoll::start();
            $crate::main();
        }
    };
}

/// The `main` of each binary.
pub fn main() {
    let mut arguments = std::env::args().skip(1);
    let work = match arguments.next().as_deref() {
        Some("jaq") => jaq,
        Some("boa") => boa,
        Some("prettyplease") => prettyplease,
        work => panic!("{work:?} is none of jaq, boa and prettyplease"),
    };
    let scale = arguments.next().and_then(|word| word.parse().ok());
    let scale = scale.expect("the second argument is the amount of work");
    let mut hasher = DefaultHasher::new();
    work(scale).hash(&mut hasher);
    println!("{:016x}", hasher.finish());
}

/// Filters an array of `1000 * scale` records of about 200 bytes of JSON each.
fn jaq(scale: usize) -> String {
    use jaq_core::load::{Arena, File, Loader};
    use jaq_core::{Compiler, Ctx, Vars, data, unwrap_valr};
    use jaq_json::{Val, read};

    let mut text = String::from("[");
    for record in 0..1000 * scale {
        let comma = if record == 0 { "" } else { "," };
        write!(
            text,
            r#"{comma}{{"id":{record},"name":"name {}","city":"city {}","tags":["t{}","t{}","t{}"],"values":[{},{},{}],"nested":{{"a":{},"b":[{}]}}}}"#,
            record * 7919 % 10007,
            record % 97,
            record % 5,
            record % 7,
            record % 11,
            record % 13,
            record % 17,
            record % 19,
            record % 23,
            record % 29,
        )
        .expect("a string takes everything");
    }
    text.push(']');
    let code = r#"map(select(.id % 3 != 0) | {name: (.name | ascii_upcase), city,
        sum: (.values | add), tags: (.tags | map("<" + . + ">") | join(" ")), deep: .nested.b})
        | group_by(.city) | map({city: .[0].city, count: length, sums: (map(.sum) | add),
        names: (map(.name) | sort | .[:5])})"#;
    let input = read::parse_single(text.as_bytes()).expect("the generated JSON is valid");
    let defs = jaq_core::defs()
        .chain(jaq_std::defs())
        .chain(jaq_json::defs());
    let funs = jaq_core::funs()
        .chain(jaq_std::funs())
        .chain(jaq_json::funs());
    let arena = Arena::default();
    let program = File { code, path: () };
    let modules = match Loader::new(defs).load(&arena, program) {
        Ok(modules) => modules,
        Err(_) => panic!("the filter can be parsed"),
    };
    let filter = match Compiler::default().with_funs(funs).compile(modules) {
        Ok(filter) => filter,
        Err(_) => panic!("the filter can be compiled"),
    };
    let context = Ctx::<data::JustLut<Val>>::new(&filter.lut, Vars::new([]));
    let mut output = String::new();
    for value in filter.id.run((context, input)).map(unwrap_valr) {
        let value = value.unwrap_or_else(|error| panic!("the filter fails: {error}"));
        writeln!(output, "{value}").expect("a string takes everything");
    }
    output
}

/// Runs JavaScript that creates objects, strings, arrays, maps and closures, in `scale` rounds.
fn boa(scale: usize) -> String {
    let script = include_str!("objects.js").replace("SCALE", &scale.to_string());
    let mut context = boa_engine::Context::default();
    let value = context
        .eval(boa_engine::Source::from_bytes(&script))
        .unwrap_or_else(|error| panic!("the script fails: {error}"));
    value.display().to_string()
}

/// Parses and formats a file of `100 * scale` functions of Rust.
fn prettyplease(scale: usize) -> String {
    let mut text = String::new();
    for function in 0..100 * scale {
        write!(
            text,
            "/// Function {function}.\npub fn function_{function}<T: Clone>(items: &[T], limit: usize) \
             -> Result<Vec<(usize, T)>, String> {{ let mut found = Vec::with_capacity(limit + {function}); \
             for (at, item) in items.iter().enumerate().filter(|(at, _)| at % {} != 0) {{ \
             if found.len() >= limit {{ return Err(format!(\"more than {{limit}} at {{at}}: {{}}\", {function})); }} \
             match at {{ 0 => continue, 1..=9 if limit > 3 => found.push((at, item.clone())), \
             _ => {{ let pair = (at * 2 + {function}, item.clone()); found.push(pair) }} }} }} Ok(found) }}\n",
            function % 7 + 2,
        )
        .expect("a string takes everything");
    }
    let file = syn::parse_file(&text).expect("the generated Rust can be parsed");
    prettyplease::unparse(&file)
}
