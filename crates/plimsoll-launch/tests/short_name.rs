//! Names of functions are shortened.

use plimsoll_launch::run::short_name::shortened;

/// The most characters of a short name.
const MAX_CHARACTERS: usize = 60;

#[test]
fn names_that_fit_stay_as_they_are() {
    for name in [
        "",
        "main",
        "std::vector<int, std::allocator<int> >::push_back",
        "<app::Store as core::clone::Clone>::clone",
    ] {
        assert_eq!(shortened(name), name);
    }
}

#[test]
fn type_arguments_are_left_out_from_the_inside() {
    for (name, short) in [
        (
            "std::vector<std::pair<int, int>, std::allocator<std::pair<int, int> > >::push_back",
            "std::vector<std::pair<...>, std::allocator<...> >::push_back",
        ),
        (
            "std::map<int, std::vector<std::pair<int, int> >, std::less<int>, \
             std::allocator<int> >::operator[]",
            "std::map<...>::operator[]",
        ),
        (
            "app::print<std::__cxx11::basic_string<char, std::char_traits<char>, \
             std::allocator<char> > >",
            "app::print<std::string >",
        ),
        (
            "<app::cache::Table<alloc::string::String, app::Value<u64>> as app::Store<u64>>::load",
            "<app::cache::Table<...> as app::Store<...>>::load",
        ),
        (
            "app::map::<alloc::vec::Vec<u8>, fn(u8) -> alloc::vec::Vec<u8>, app::a::long::path::Type>",
            "app::map::<...>",
        ),
        (
            "std::operator<< <std::char_traits<char>, some::quite::long::name::of::a::type>",
            "std::operator<< <...>",
        ),
    ] {
        assert_eq!(shortened(name), short);
    }
}

#[test]
fn the_middle_of_a_long_path_is_left_out() {
    let name = format!("first::{}::last_function", "module::".repeat(20));
    let short = shortened(&name);
    assert_eq!(short.chars().count(), MAX_CHARACTERS);
    assert!(
        short.starts_with("first::") && short.ends_with("::last_function"),
        "{short}"
    );
}

#[test]
fn broken_names_are_shortened_too() {
    for part in ["<", ">", "<é", "operator<", "->", "a<b>"] {
        for count in [100, 100_000] {
            let short = shortened(&part.repeat(count));
            assert!(short.chars().count() <= MAX_CHARACTERS, "{short}");
        }
    }
}
