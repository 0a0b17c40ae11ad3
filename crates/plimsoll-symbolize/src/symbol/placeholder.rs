//! Names for addresses that symbol tables and debug information do not name.
//!
//! Placeholders are names of code. A mapping states whether names were looked up, and readers expect a
//! function at each of its locations then. So an address without a known function has the name of its
//! module and the offset in its file.

use std::ops::Range;

use plimsoll_process::deep_stacks::{LEFT_OUT, LEFT_OUT_NAME};

use super::table::{Answer, Table};
use super::texts::Text;
use super::{Line, Location, Mapping};

/// Adds a line to each location without a function in mappings for which names were looked up.
pub(super) fn add(
    mappings: &[Mapping],
    locations: &[Location],
    answers: &mut [Answer],
    table: &mut Table,
) {
    for (location, answer) in locations.iter().zip(answers) {
        let mapping = location.mapping.map(|at| &mappings[at as usize]);
        let Some(mapping) = mapping.filter(|mapping| mapping.has_functions) else {
            continue;
        };
        if !answer.lines.is_empty() {
            continue;
        }
        let call = location.return_address.wrapping_sub(1) as u64;
        let offset = call
            .wrapping_sub(mapping.start)
            .wrapping_add(mapping.offset);
        answer.lines = named(&placeholder(&mapping.file, offset), table);
    }
}

/// Names the address that stands for the frames left out of a deep stack.
pub(super) fn name_left_out(locations: &mut [Location], answers: &mut [Answer], table: &mut Table) {
    for (location, answer) in locations.iter_mut().zip(answers) {
        if location.return_address == LEFT_OUT {
            location.is_named = true;
            answer.lines = named(LEFT_OUT_NAME, table);
        }
    }
}

/// Adds a line that consists of a name.
fn named(name: &str, table: &mut Table) -> Range<u32> {
    let name = table.name(name.as_bytes());
    let function = table.function(name, Text::EMPTY, 0);
    let start = table.lines.len() as u32;
    table.lines.push(Line { function, line: 0 });
    start..start + 1
}

/// The maximum length of a module in a placeholder, in characters: the limit of file names on most systems.
const MAX_MODULE: usize = 255;

/// Returns the last part of a path.
fn module(path: &str) -> &str {
    let module = path.rsplit('/').next().unwrap_or_default();
    let end = module.char_indices().nth(MAX_MODULE).map(|(end, _)| end);
    match &module[..end.unwrap_or(module.len())] {
        "" => "[unknown]",
        module => module,
    }
}

/// Returns the name of an unknown function at an offset in the file at `path`: the one that `plimsoll-pprof`
/// shows for an address without a function.
fn placeholder(path: &str, offset: u64) -> String {
    format!("{}+{offset:#x}", module(path))
}

/// Returns whether the name of a function is a placeholder for an address in the file at `path`.
pub fn is_placeholder(name: &str, path: &str) -> bool {
    let offset = name
        .strip_prefix(module(path))
        .and_then(|rest| rest.strip_prefix("+0x"));
    offset.is_some_and(|digits| {
        !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_hexdigit())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placeholders_are_the_module_and_a_hexadecimal_offset() {
        for (name, path, is) in [
            ("libc.so.6+0x28e10", "/lib/libc.so.6", true),
            ("[vdso]+0xa0", "[vdso]", true),
            ("[unknown]+0x1", "", true),
            ("libc.so.6+0x28e10", "/lib/libm.so.6", false),
            ("libc.so.6+0x", "/lib/libc.so.6", false),
            ("libc.so.6+12", "/lib/libc.so.6", false),
            ("libc.so.6+0x1g", "/lib/libc.so.6", false),
            ("malloc", "/lib/libc.so.6", false),
        ] {
            assert_eq!(is_placeholder(name, path), is, "{name} {path}");
        }
        let long = "é".repeat(300);
        for path in ["/lib/libc.so.6", "[vdso]", "", &long] {
            let name = placeholder(path, 0x1f);
            assert!(is_placeholder(&name, path), "{name}");
            assert!(name.chars().count() <= MAX_MODULE + 5);
        }
    }
}
