//! Linkage names to names that people read.

use std::fmt::Write;

/// Writes the name that `linkage` stands for to `into`, which is emptied first. Rust's names lose
/// their hash. Names of C++ lose their parameters where a demangler for C++ is built in (in the
/// command and in the preloaded library), and stay as they are elsewhere, like all other names.
///
/// Returns whether the name is the same for all instances of a generic function: Rust's older
/// mangling has a hash of their types, and not the types.
pub(super) fn demangle(linkage: &str, into: &mut String) -> bool {
    into.clear();
    let rust = rustc_demangle::try_demangle(linkage);
    let is_rust = rust.is_ok();
    let written = match rust {
        // The alternate form is the one without the hash.
        Ok(name) => write!(into, "{name:#}").is_ok(),
        #[cfg(any(feature = "offline", feature = "preload"))]
        Err(_) => super::cpp::demangle(linkage, into),
        #[cfg(not(any(feature = "offline", feature = "preload")))]
        Err(_) => false,
    };
    if !written {
        into.clear();
        into.push_str(linkage);
    }
    written && is_rust && !linkage.starts_with("_R")
}

/// The type arguments at the end of a Rust function's name in the debug information, with their
/// brackets: `<u32>` of `f<u32>`. Empty if there are none.
#[cfg(feature = "symbolize")]
pub(super) fn type_arguments(name: &str) -> &str {
    match name.find('<') {
        None | Some(0) => "",
        Some(_) if !name.ends_with('>') => "",
        Some(at) => &name[at..],
    }
}

/// A name without the arguments of generic types and functions, and without the brackets about the
/// type of a method: `<a::B>::c`, `a::B<T>::c` and `a::B::c::<T>` are `a::B::c`.
pub(crate) fn without_types(name: &str) -> String {
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
            // Of a function's type: `fn() -> T`.
            '>' if inside > 0 && last == '-' => {}
            '>' if inside > 0 => inside -= 1,
            '<' | '>' => {}
            other if inside == 0 => plain.push(other),
            _ => {}
        }
    }
    plain
}

/// Whether a linkage name says more than a name in the source does.
#[cfg(feature = "symbolize")]
pub(super) fn is_mangled(linkage: &[u8]) -> bool {
    // Rust's, and what C++ and Rust have in common.
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
    fn names_that_say_nothing_of_types_are_known() {
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

    #[cfg(feature = "symbolize")]
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
