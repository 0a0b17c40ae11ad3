//! The type for which a function of Rust's standard library allocates.

/// Types with a method that allocates: their path, the name to show, and the number of type
/// parameters to show. The other parameters are allocators and hashers.
const CONTAINERS: [(&str, &str, usize); 21] = [
    ("alloc::boxed::Box", "Box", 1),
    (
        "alloc::collections::binary_heap::BinaryHeap",
        "BinaryHeap",
        1,
    ),
    ("alloc::collections::btree::map::BTreeMap", "BTreeMap", 2),
    (
        "alloc::collections::btree::map::entry::Entry",
        "BTreeMap",
        2,
    ),
    (
        "alloc::collections::btree::map::entry::VacantEntry",
        "BTreeMap",
        2,
    ),
    ("alloc::collections::btree::node::LeafNode", "BTreeMap", 2),
    ("alloc::collections::btree::set::BTreeSet", "BTreeSet", 1),
    (
        "alloc::collections::linked_list::LinkedList",
        "LinkedList",
        1,
    ),
    ("alloc::collections::vec_deque::VecDeque", "VecDeque", 1),
    ("alloc::raw_vec::RawVec", "Vec", 1),
    ("alloc::rc::Rc", "Rc", 1),
    ("alloc::sync::Arc", "Arc", 1),
    ("alloc::vec::Vec", "Vec", 1),
    ("hashbrown::map::HashMap", "HashMap", 2),
    ("hashbrown::rustc_entry::RustcVacantEntry", "HashMap", 2),
    ("hashbrown::set::HashSet", "HashSet", 1),
    ("std::collections::hash::map::Entry", "HashMap", 2),
    ("std::collections::hash::map::HashMap", "HashMap", 2),
    ("std::collections::hash::map::VacantEntry", "HashMap", 2),
    ("std::collections::hash::set::HashSet", "HashSet", 1),
    ("std::collections::hash::set::VacantEntry", "HashSet", 1),
];

/// Returns the container that a method belongs to, with the types of its contents: `Vec<u8>` for
/// `<alloc::vec::Vec<u8>>::reserve`, and for `alloc::vec::Vec<T,A>::push<u8, alloc::alloc::Global>`.
/// `None` for other functions, and if the name does not contain these types.
pub(super) fn container(function: &str) -> Option<String> {
    let name = function.strip_prefix('<').unwrap_or(function);
    let (rest, shown, count) = CONTAINERS.iter().find_map(|&(path, shown, count)| {
        let rest = name.strip_prefix(path)?.strip_prefix('<')?;
        Some((rest, shown, count))
    })?;
    let end = closing(rest)?;
    let parameters = separated(&rest[..end]);
    let mut arguments: Vec<String> = Vec::new();
    // The names of parameters, in the order of the type arguments at the end of the name.
    let mut names: Vec<&str> = Vec::new();
    for parameter in &parameters {
        placeholders(parameter, |at| {
            if !names.contains(&&parameter[at..=at]) {
                names.push(&parameter[at..=at]);
            }
        });
    }
    let given = trailing(&rest[end..]);
    for parameter in parameters.iter().take(count) {
        let mut argument = String::new();
        let mut from = 0;
        let mut is_known = true;
        placeholders(parameter, |at| {
            let name = names.iter().position(|name| *name == &parameter[at..=at]);
            match name.and_then(|name| given.get(name)) {
                Some(given) => {
                    argument.push_str(&parameter[from..at]);
                    argument.push_str(given);
                }
                None => is_known = false,
            }
            from = at + 1;
        });
        if !is_known || matches!(*parameter, "" | "_") {
            return None;
        }
        argument.push_str(&parameter[from..]);
        arguments.push(argument);
    }
    (arguments.len() == count).then(|| format!("{shown}<{}>", arguments.join(", ")))
}

/// Returns the offset of the bracket that closes the one before `text`.
fn closing(text: &str) -> Option<usize> {
    let (mut depth, mut before) = (0_usize, b' ');
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'<' | b'(' | b'[' | b'{' => depth += 1,
            // Part of a function type: `fn() -> T`.
            b'>' if before == b'-' => {}
            b'>' | b')' | b']' | b'}' if depth == 0 => return (byte == b'>').then_some(at),
            b'>' | b')' | b']' | b'}' => depth -= 1,
            _ => {}
        }
        before = byte;
    }
    None
}

/// Divides a list at its outermost commas.
fn separated(list: &str) -> Vec<&str> {
    let (mut depth, mut before, mut start) = (0_usize, b' ', 0);
    let mut parts = Vec::new();
    for (at, byte) in list.bytes().enumerate() {
        match byte {
            b'<' | b'(' | b'[' | b'{' => depth += 1,
            b'>' if before == b'-' => {}
            b'>' | b')' | b']' | b'}' => depth = depth.saturating_sub(1),
            b',' if depth == 0 => {
                parts.push(list[start..at].trim());
                start = at + 1;
            }
            _ => {}
        }
        before = byte;
    }
    parts.push(list[start..].trim());
    parts
}

/// Returns the type arguments at the end of a name; none if it has none.
fn trailing(name: &str) -> Vec<&str> {
    let opening = |&(at, _): &(usize, char)| closing(&name[at + 1..]) == Some(name.len() - at - 2);
    let mut brackets = name.char_indices().filter(|&(_, sign)| sign == '<');
    match brackets.find(opening) {
        Some((at, _)) => separated(&name[at + 1..name.len() - 1]),
        None => Vec::new(),
    }
}

/// Calls `found` with the offset of each type parameter: a single capital letter that is no part of
/// a path.
fn placeholders(text: &str, mut found: impl FnMut(usize)) {
    let bytes = text.as_bytes();
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b':';
    for (at, byte) in bytes.iter().enumerate() {
        let before = at.checked_sub(1).map(|at| bytes[at]);
        let after = bytes.get(at + 1).copied();
        let stands_alone = !before.is_some_and(is_part) && !after.is_some_and(is_part);
        if byte.is_ascii_uppercase() && stands_alone {
            found(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_method_allocates_for_its_container() {
        for (function, container_of) in [
            // Debug information, with paths of the legacy mangling.
            (
                "alloc::vec::Vec<T,A>::push<app::Node, alloc::alloc::Global>",
                "Vec<app::Node>",
            ),
            (
                "alloc::boxed::Box<T>::new<app::f::{closure_env#0}>",
                "Box<app::f::{closure_env#0}>",
            ),
            ("alloc::sync::Arc<[T]>::copy_from_slice<u8>", "Arc<[u8]>"),
            (
                "<alloc::sync::Arc<str> as core::convert::From<&str>>::from",
                "Arc<str>",
            ),
            (
                "std::collections::hash::map::HashMap<K,V,S,A>::insert<u64, (app::A, T), \
                 std::hash::random::RandomState, alloc::alloc::Global>",
                "HashMap<u64, (app::A, T)>",
            ),
            (
                "<alloc::vec::Vec<T,A> as core::clone::Clone>::clone<alloc::vec::Vec<u8, \
                 alloc::alloc::Global>, alloc::alloc::Global>",
                "Vec<alloc::vec::Vec<u8, alloc::alloc::Global>>",
            ),
            (
                "alloc::raw_vec::RawVec<T,A>::grow_one<fn(u8) -> u16, alloc::alloc::Global>",
                "Vec<fn(u8) -> u16>",
            ),
            // The mangling v0.
            ("<alloc::vec::Vec<u8>>::reserve", "Vec<u8>"),
            (
                "<alloc::collections::btree::map::BTreeMap<u64, app::Node>>::insert",
                "BTreeMap<u64, app::Node>",
            ),
            (
                "<alloc::vec::Vec<app::Node> as alloc::vec::spec_from_iter::SpecFromIter<app::Node, \
                 core::iter::adapters::map::Map<core::ops::range::Range<u8>, \
                 app::f::{closure#0}>>>::from_iter",
                "Vec<app::Node>",
            ),
        ] {
            assert_eq!(
                container(function).as_deref(),
                Some(container_of),
                "{function}"
            );
        }
        for function in [
            "",
            "app::make",
            "alloc::vec::Vec<T,A>::push",
            "<alloc::vec::Vec<T> as core::iter::traits::collect::FromIterator<T>>::from_iter",
            "alloc::raw_vec::RawVecInner<A>::grow_one<alloc::alloc::Global>",
            "<alloc::vec::Vec<_>>::reserve::do_reserve_and_handle",
            "alloc::alloc::exchange_malloc",
            "alloc::vec::Vec<T",
            "alloc::vec::Vec<",
            "alloc::vec::Vec<>",
        ] {
            assert_eq!(container(function), None, "{function}");
        }
    }
}
