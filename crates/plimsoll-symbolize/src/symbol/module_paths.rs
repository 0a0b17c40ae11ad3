//! Derives the likely module path of a function from its Rust source file.
//!
//! In a program that was built with line tables only, the debug information names an inlined
//! function `grow` or `{closure#0}`, without its path. The path of its source file supplies the
//! module: in a package with Cargo's layout, the two correspond.

/// Writes the likely full name of `function`, a bare name in `file`, to `into`, which is cleared
/// first: `alloc::raw_vec::grow<T>` for `grow<T>` in `.../alloc/src/raw_vec/mod.rs`. A name in a
/// file of another language stays unchanged.
pub(super) fn qualify(function: &str, file: &str, into: &mut String) {
    into.clear();
    let Some(path) = file.strip_suffix(".rs") else {
        into.push_str(function);
        return;
    };
    let (package, modules) = match path.rsplit_once("/src/") {
        Some((package, modules)) => (package.rsplit('/').next().unwrap_or(""), modules),
        // An example, a test or a build script: the last directory stands for its package.
        None => {
            let mut parts = path.rsplitn(3, '/');
            let file = parts.next().unwrap_or("");
            (parts.next().unwrap_or(""), file)
        }
    };
    let names = std::iter::once(without_version(package)).chain(modules.split('/'));
    for name in names.filter(|name| !matches!(*name, "" | "mod" | "lib" | "main")) {
        into.extend(name.chars().map(|c| if c == '-' { '_' } else { c }));
        into.push_str("::");
    }
    into.push_str(function);
}

/// Returns the package name without its version: `tokio` for `tokio-1.54.1`.
fn without_version(package: &str) -> &str {
    package
        .match_indices('-')
        .find(|&(at, _)| package[at + 1..].starts_with(|c: char| c.is_ascii_digit()))
        .map_or(package, |(at, _)| &package[..at])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_of_a_file_is_the_path_of_its_module() {
        let mut name = "left over".to_owned();
        for (function, file, expected) in [
            (
                "grow<T>",
                "/rustc/0123/library/alloc/src/raw_vec/mod.rs",
                "alloc::raw_vec::grow<T>",
            ),
            (
                "{closure#0}<alloc::vec::Vec<u8>>",
                "/home/user/registry/src/index-1/tokio-1.54.1/src/runtime/blocking/pool.rs",
                "tokio::runtime::blocking::pool::{closure#0}<alloc::vec::Vec<u8>>",
            ),
            ("new", "/x/serde-json/src/lib.rs", "serde_json::new"),
            ("run", "/x/my-app/src/bin/tool.rs", "my_app::bin::tool::run"),
            ("main", "/x/app/src/main.rs", "app::main"),
            (
                "build",
                "/x/examples/search/store.rs",
                "search::store::build",
            ),
            ("it_works", "/x/app/tests/all.rs", "tests::all::it_works"),
            (
                "<impl A for B>",
                "/x/app/src/a.rs",
                "app::a::<impl A for B>",
            ),
            ("f", "a.rs", "a::f"),
            ("f", "/src/.rs", "f"),
            ("operator<", "/x/src/vector.h", "operator<"),
            ("f", "", "f"),
        ] {
            qualify(function, file, &mut name);
            assert_eq!(name, expected, "{function} in {file}");
        }
    }
}
