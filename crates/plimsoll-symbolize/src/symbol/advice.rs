//! Recommends build settings for programs that were built without line tables.

use super::elf::Elf;
use super::maps::Mapped;
use super::objects::Object;
use super::resolve::call_of;
use super::source::Source;
use super::table::{Answer, Table};
use super::{Detail, Location, dwarf, names};

/// The reason for recommending no less debug information.
const WHY_LIMITED: &str = "; \"line-tables-only\" leaves inlined async functions without names";

/// Returns a sentence about symbols that the program's own functions at `locations` lack, with the
/// settings that add them. Returns `None` if they lack nothing, or if no location is in the
/// program.
///
/// The standard library is delivered with line tables, so lines in its files do not count. Neither
/// do functions without files whose names are not mangled, such as those of C.
pub(super) fn build_advice(
    objects: &[Object],
    mapped: &[Mapped],
    locations: &[Location],
    answers: &[Answer],
    table: &Table,
) -> Option<String> {
    let program = objects.iter().find(|object| object.is_program)?;
    let is_of_program = |location: &Location| {
        let call = call_of(location);
        program.code().any(|code| code.contains(&call))
    };
    let (mut nameless, mut without_lines, mut place) = (false, false, None);
    for (location, answer) in locations.iter().zip(answers) {
        if !is_of_program(location) {
            continue;
        }
        place = place.or(location.mapping);
        nameless |= answer.lines.is_empty();
        for line in &table.lines[answer.lines.start as usize..answer.lines.end as usize] {
            let function = &table.functions[line.function as usize];
            match table.texts.get(function.file) {
                "" => {
                    let name = table.texts.get(function.system_name);
                    without_lines |= names::is_mangled(name.as_bytes());
                }
                file if is_of_its_own(file) => return None,
                _ => {}
            }
        }
    }
    if !nameless && !without_lines {
        return None;
    }
    let mapped = mapped.get(place? as usize)?;
    let source = Source::open(program, Some(mapped), Detail::Full)?;
    let files = || [source.debug(), source.image()].into_iter().flatten();
    let file = &mapped.file;
    if files().any(dwarf::is_out_of_reach) {
        return Some(format!(
            "plimsoll: the debug information of {file} is too large when decompressed, or not \
             compressed with zlib, so there are no files, lines or inlined calls: link without \
             --compress-debug-sections"
        ));
    }
    if !files().any(Elf::has_symbols) {
        return Some(format!(
            "plimsoll: {file} is stripped, so there are no names, files or lines: \
             set debug = \"limited\" and strip = false in [profile.release]{WHY_LIMITED}"
        ));
    }
    without_lines.then(|| {
        format!(
            "plimsoll: {file} has no line tables, so there are no files, lines or inlined calls: \
             set debug = \"limited\" in [profile.release]{WHY_LIMITED}"
        )
    })
}

/// Returns whether a source file is Rust code outside the standard library as delivered.
fn is_of_its_own(file: &str) -> bool {
    file.ends_with(".rs") && !file.starts_with("/rustc/")
}
