//! Shortens names of functions for lines of limited width.

/// The maximum number of characters of a name.
const MAX_CHARACTERS: usize = 60;

/// The maximum length in bytes of a name whose type arguments are parsed.
const MAX_PARSED: usize = 4 << 10;

/// The text that replaces an omitted part.
const DOTS: &str = "...";

/// Shortens a name that is too long: omits inner type arguments first, then all of them, and then
/// the middle. So the last part of a path stays: `std::vector<...>::push_back`.
pub fn shortened(name: &str) -> String {
    let name = with_plain_strings(name);
    let mut short = name.clone();
    for depth in [2, 1] {
        if short.chars().count() <= MAX_CHARACTERS {
            return short;
        }
        if name.len() > MAX_PARSED {
            break;
        }
        short = without_arguments(&name, depth);
    }
    let characters: Vec<char> = short.chars().collect();
    if characters.len() <= MAX_CHARACTERS {
        return short;
    }
    let kept = MAX_CHARACTERS - DOTS.len();
    // The end of a path identifies a function better than its beginning.
    let (begin, end) = (kept / 3, kept - kept / 3);
    let first: String = characters[..begin].iter().collect();
    let last: String = characters[characters.len() - end..].iter().collect();
    first + DOTS + &last
}

/// Replaces C++'s string types by their usual names.
fn with_plain_strings(name: &str) -> String {
    const STRING: &str = "basic_string<char, std::char_traits<char>, std::allocator<char> >";
    name.replace("std::__cxx11::basic_string", "std::basic_string")
        .replace(&format!("std::{STRING}"), "std::string")
        .replace(&format!("std::__1::{STRING}"), "std::string")
}

/// Returns the name with `...` for type arguments that are nested at least `depth` deep. The type
/// in `<type>::method` and `<type as trait>::method` is not an argument.
fn without_arguments(name: &str, depth: usize) -> String {
    let mut short = String::with_capacity(name.len());
    /// The meaning of a `<` that is not closed yet.
    #[derive(PartialEq)]
    enum Open {
        Type,
        Arguments,
    }
    let mut open: Vec<Open> = Vec::new();
    let arguments = |open: &[Open]| open.iter().filter(|at| **at == Open::Arguments).count();
    let mut before = ' ';
    for (at, character) in name.char_indices() {
        // The characters of `operator<<` are not brackets; those of `operator<< <int>` are.
        let follows_operator = name[..at]
            .trim_end()
            .trim_end_matches(['<', '>', '=', '-'])
            .ends_with("operator");
        let is_operator = follows_operator && before != ' ';
        let hidden = arguments(&open) >= depth;
        match character {
            '<' if !is_operator => {
                let is_after_name = before.is_alphanumeric()
                    || matches!(before, '_' | '}')
                    || short.ends_with("::");
                open.push(if is_after_name || follows_operator {
                    Open::Arguments
                } else {
                    Open::Type
                });
                if !hidden {
                    short.push('<');
                    if arguments(&open) >= depth {
                        short.push_str(DOTS);
                    }
                }
            }
            '>' if !is_operator && before != '-' && before != '=' => {
                open.pop();
                if arguments(&open) < depth {
                    short.push('>');
                }
            }
            _ if !hidden => short.push(character),
            _ => {}
        }
        before = character;
    }
    short
}
