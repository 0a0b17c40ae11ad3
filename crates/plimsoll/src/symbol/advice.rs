//! What to set where the program was built without line tables.

use super::elf::Elf;
use super::maps::Mapped;
use super::objects::Object;
use super::resolve::call_of;
use super::source::Source;
use super::table::{Answer, Table};
use super::{Detail, Location, dwarf, names};

/// Why no less debug information is recommended.
const WHY_LIMITED: &str = "; \"line-tables-only\" leaves inlined async functions without names";

/// What is missing of the program's own functions at `locations`, and what to set in order to have
/// it, as a sentence; `None` if nothing is, or if there are no such functions.
///
/// The standard library brings line tables of its own, so those of its files say nothing; nor does
/// code of other languages that has none.
pub(super) fn what_to_set(
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
            "plimsoll: the debug information of {file} is compressed to more than is inflated, or not with zlib, \
             so there are no files, lines or inlined calls: link without --compress-debug-sections"
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

/// Whether a source file is of Rust, and not of the standard library as it is delivered.
fn is_of_its_own(file: &str) -> bool {
    file.ends_with(".rs") && !file.starts_with("/rustc/")
}
