//! Demangles names of C++ functions.

use std::fmt;

use cpp_demangle::{BorrowedSymbol, DemangleOptions, ParseOptions};

/// The longest linkage name that is parsed, in bytes. Compilers write longer ones for deeply nested
/// templates.
const MAX_LINKAGE_BYTES: usize = 16 << 10;

/// The longest name that is written, in bytes. A linkage name of a hundred bytes may expand to
/// gigabytes, since parts of it refer to earlier parts.
const MAX_NAME_BYTES: usize = 4 << 10;

/// The deepest nesting that is parsed. In an optimized build, the parser then takes at most 512 KiB
/// of the stack.
const MAX_PARSED_DEPTH: u32 = 96;
const MAX_WRITTEN_DEPTH: u32 = 128;

/// Appends the demangled name of `linkage` to `into`, with template arguments, but without
/// parameters and result. Returns whether `linkage` is a C++ name within the limits above. If not,
/// `into` may hold part of a name.
pub(super) fn demangle(linkage: &str, into: &mut String) -> bool {
    if !linkage.starts_with("_Z") || linkage.len() > MAX_LINKAGE_BYTES {
        return false;
    }
    let parsing = ParseOptions::default().recursion_limit(MAX_PARSED_DEPTH);
    let parsed = BorrowedSymbol::with_tail_and_options(linkage.as_bytes(), &parsing);
    let Ok((symbol, tail)) = parsed else {
        return false;
    };
    // A version follows `@`. The suffix of a part or clone of a function follows `.`.
    if !(tail.is_empty() || tail.starts_with(b".") || tail.starts_with(b"@")) {
        return false;
    }
    let writing = DemangleOptions::new()
        .no_params()
        .no_return_type()
        .hide_expression_literal_types()
        .recursion_limit(MAX_WRITTEN_DEPTH);
    let room = MAX_NAME_BYTES;
    let written = symbol.structured_demangle(&mut Bounded { into, room }, &writing);
    written.is_ok() && !into.is_empty()
}

/// A string that accepts a limited number of bytes and fails on any further write.
struct Bounded<'a> {
    into: &'a mut String,
    room: usize,
}

impl fmt::Write for Bounded<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.room = self.room.checked_sub(text.len()).ok_or(fmt::Error)?;
        self.into.push_str(text);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn demangled(linkage: &str) -> Option<String> {
        let mut name = String::new();
        demangle(linkage, &mut name).then_some(name)
    }

    #[test]
    fn cpp_names_keep_template_arguments_and_lose_parameters() {
        for (linkage, name) in [
            ("_Z4makei", "make"),
            ("_Znwm", "operator new"),
            ("_ZnamSt11align_val_t", "operator new[]"),
            ("_ZN2os6mallocEm8MEMFLAGS", "os::malloc"),
            (
                "_ZNSt6vectorIiSaIiEE9push_backEOi",
                "std::vector<int, std::allocator<int> >::push_back",
            ),
            ("_Z3maxIdET_S0_S0_", "max<double>"),
            ("_ZN3app5Store4loadEv.cold", "app::Store::load"),
            ("_ZdlPvm@GLIBCXX_3.4", "operator delete"),
        ] {
            assert_eq!(demangled(linkage).as_deref(), Some(name), "{linkage}");
        }
    }

    #[test]
    fn other_names_are_refused() {
        for linkage in ["", "main", "_Z", "_ZERO", "_ZN", "_Znwm$"] {
            assert_eq!(demangled(linkage), None, "{linkage}");
        }
    }

    /// Covers unbounded nesting, repetition and references to earlier parts.
    #[test]
    fn hostile_names_are_refused_on_a_stack_of_one_mebibyte() {
        let hostile = || {
            for count in [50, 100, 1000, 100_000] {
                let repeated = |part: &str| part.repeat(count);
                let mut doubled = "_Z1fI1aIiiES0_1bIS0_S0_E".to_owned();
                for at in 1..count.min(36) {
                    let last = char::from_digit(at as u32, 36).unwrap();
                    let last = last.to_ascii_uppercase();
                    doubled.push_str(&format!("1bIS{last}_S{last}_E"));
                }
                doubled.push_str("Evv");
                for linkage in [
                    format!("_Z1f{}i", repeated("P")),
                    format!("_Z1f{}i{}", repeated("1aI"), repeated("E")),
                    format!("_Z1fIX{}Li0EEEvv", repeated("ng")),
                    format!("_Z1f{}v{}", repeated("PFv"), repeated("E")),
                    format!("_Z{}vE1xv", repeated("Z1fvE")),
                    format!("_ZN{}1fEv", repeated("1a")),
                    doubled,
                ] {
                    let name = demangled(&linkage).unwrap_or_default();
                    assert!(name.len() <= MAX_NAME_BYTES);
                }
            }
        };
        let thread = std::thread::Builder::new().stack_size(1 << 20);
        thread.spawn(hostile).unwrap().join().unwrap();
    }
}
