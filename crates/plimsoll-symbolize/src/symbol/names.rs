//! Demangles linkage names.

use std::fmt::Write;

/// Writes the demangled name of `linkage` to `into`, which is cleared first. Rust's names lose
/// their hash. C++ names lose their parameters if a C++ demangler is built in, as in the command
/// and in the preloaded library. Otherwise they stay unchanged, like all other names.
///
/// Returns whether all instances of a generic function share the name: Rust's legacy mangling
/// contains a hash of the type arguments, not the type arguments.
pub(super) fn demangle(linkage: &str, into: &mut String) -> bool {
    into.clear();
    let rust = rustc_demangle::try_demangle(linkage);
    let is_rust = rust.is_ok();
    let written = match rust {
        // The alternate form omits the hash.
        Ok(name) => write!(into, "{name:#}").is_ok(),
        #[cfg(feature = "cpp")]
        Err(_) => super::cpp::demangle(linkage, into),
        #[cfg(not(feature = "cpp"))]
        Err(_) => false,
    };
    if !written {
        into.clear();
        into.push_str(linkage);
    }
    written && is_rust && !linkage.starts_with("_R")
}

/// Returns the type arguments at the end of a Rust function's name in the debug information, with
/// their brackets: `<u32>` of `f<u32>`. Empty if there are none.
#[cfg(feature = "debug-info")]
pub(super) fn type_arguments(name: &str) -> &str {
    match name.find('<') {
        None | Some(0) => "",
        Some(_) if !name.ends_with('>') => "",
        Some(at) => &name[at..],
    }
}

/// Returns a name without the arguments of generic types and functions, and without the brackets
/// around the type of a method: `<a::B>::c`, `a::B<T>::c` and `a::B::c::<T>` become `a::B::c`.
pub fn without_types(name: &str) -> String {
    let mut plain = String::with_capacity(name.len());
    let mut inside = 0;
    let mut before = ' ';
    for (at, character) in name.char_indices() {
        let last = std::mem::replace(&mut before, character);
        match character {
            '<' if inside > 0
                || plain.ends_with(|last: char| last.is_alphanumeric() || last == '}') =>
            {
                inside += 1;
            }
            '<' if plain.ends_with("::") && !name[at..].starts_with("<impl ") => {
                plain.truncate(plain.len() - 2);
                inside += 1;
            }
            // Part of a function type: `fn() -> T`.
            '>' if inside > 0 && last == '-' => {}
            '>' if inside > 0 => inside -= 1,
            '<' | '>' => {}
            other if inside == 0 => plain.push(other),
            _ => {}
        }
    }
    plain
}

/// Returns whether a linkage name is mangled, so that it contains more than the source name.
#[cfg(feature = "debug-info")]
pub(super) fn is_mangled(linkage: &[u8]) -> bool {
    // Rust's v0 mangling, and the prefix that C++ shares with Rust's legacy mangling.
    linkage.starts_with(b"_R") || linkage.starts_with(b"_Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_are_left_out_of_names() {
        for (name, plain) in [
            ("main", "main"),
            ("<a::B>::c", "a::B::c"),
            ("a::B<T>::c", "a::B::c"),
            ("<a::B<T, C<U>>>::c", "a::B::c"),
            ("<a::B<T> as d::E<T>>::c", "a::B as d::E::c"),
            ("<&mut a::B as d::E>::c", "&mut a::B as d::E::c"),
            ("a::b::<T>::{closure#0}", "a::b::{closure#0}"),
            ("a::b::{{closure}}<fn(u8) -> B<T>, C>", "a::b::{{closure}}"),
            ("a::<impl b::C for d::E>::f<T>", "a::impl b::C for d::E::f"),
            (">><<", ""),
            ("a<", "a"),
        ] {
            assert_eq!(without_types(name), plain);
        }
    }

    fn demangled(linkage: &str) -> String {
        let mut name = "left over".to_owned();
        demangle(linkage, &mut name);
        name
    }

    #[test]
    fn both_of_rusts_manglings_lose_their_hashes() {
        for (linkage, name) in [
            (
                "_ZN4core3ptr13drop_in_place17h0123456789abcdefE",
                "core::ptr::drop_in_place",
            ),
            (
                "_ZN3app4main28_$u7b$$u7b$closure$u7d$$u7d$17h0123456789abcdefE",
                "app::main::{{closure}}",
            ),
            (
                "_ZN43_$LT$app..List$LT$T$GT$$u20$as$u20$Drop$GT$4drop17h0123456789abcdefE",
                "<app::List<T> as Drop>::drop",
            ),
            ("_ZN3app3run17h0123456789abcdefE.llvm.1234", "app::run"),
            ("_RNvCskwGfYPst2Cb_3foo3bar", "foo::bar"),
            (
                "_RNvCsdBezzDwma51_7___rustc12___rust_alloc",
                "__rustc::__rust_alloc",
            ),
            ("_RNCNvCskwGfYPst2Cb_3foo3bar0", "foo::bar::{closure#0}"),
        ] {
            assert_eq!(demangled(linkage), name, "{linkage}");
        }
    }

    #[test]
    fn names_without_types_are_recognised() {
        let mut name = String::new();
        for (linkage, is_shared) in [
            ("_ZN3app3run17h0123456789abcdefE", true),
            ("_RINvCskwGfYPst2Cb_3foo3barmE", false),
            ("_ZNSt6vectorIiSaIiEE9push_backEOi", false),
            ("main", false),
        ] {
            assert_eq!(demangle(linkage, &mut name), is_shared, "{linkage}");
        }
    }

    #[cfg(feature = "debug-info")]
    #[test]
    fn type_arguments_are_at_the_end() {
        for (name, arguments) in [
            ("f<u32>", "<u32>"),
            ("{closure#0}<a::B<T>, fn() -> u8>", "<a::B<T>, fn() -> u8>"),
            ("f", ""),
            ("<impl A for B>", ""),
            ("operator<", ""),
            ("", ""),
        ] {
            assert_eq!(type_arguments(name), arguments, "{name}");
        }
    }

    #[test]
    fn other_names_stay_as_they_are() {
        for name in ["main", "_start", "memcpy@plt", "", "_R", "_ZN"] {
            assert_eq!(demangled(name), name);
        }
    }
}
