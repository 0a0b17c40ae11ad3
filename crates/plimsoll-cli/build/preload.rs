//! Builds the shared library that `plimsoll run` preloads, from the packages beside this one.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process;
use std::{env, fs, io};

/// Compiles `plimsoll-preload` as a shared library, with a package of its own that depends on it:
/// its features of `plimsoll` must not reach the crates that are built beside it. Always optimized
/// as for a release, in a directory that all builds of the command share.
pub fn build(beside: &Path) -> io::Result<()> {
    let manifest = PathBuf::from(variable("CARGO_MANIFEST_DIR"));
    let target = variable("TARGET");
    let directory = beside.parent().unwrap_or(beside).join("preload");
    let package = directory.join("package");
    fs::create_dir_all(&package)?;
    write(&package.join("Cargo.toml"), &wrapper(&manifest))?;
    write(&package.join("lib.rs"), "use plimsoll_preload as _;\n")?;
    // The versions are those of this build, where it has a lock file.
    let lock = manifest.ancestors().map(|above| above.join("Cargo.lock"));
    if let Some(lock) = lock.clone().find(|lock| lock.is_file()) {
        println!("cargo::rerun-if-changed={}", lock.display());
        write(&package.join("Cargo.lock"), &fs::read_to_string(lock)?)?;
    }
    if !build_package(&package, &directory, &target)? {
        return Err(io::Error::other(
            "plimsoll-preload, the library that `plimsoll run` preloads, was not built",
        ));
    }
    let library = directory.join(format!("{target}/release/libplimsoll_preload_library.so"));
    println!("cargo::rustc-env=PLIMSOLL_PRELOAD={}", library.display());
    let mut hasher = DefaultHasher::new();
    fs::read(&library)?.hash(&mut hasher);
    println!(
        "cargo::rustc-env=PLIMSOLL_PRELOAD_HASH={:016x}",
        hasher.finish()
    );
    Ok(())
}

/// The manifest of the package that becomes the shared library. Packages of this project come from
/// the folders beside this one, where they are, and else from the registry.
fn wrapper(manifest: &Path) -> String {
    const VERSION: &str = env!("CARGO_PKG_VERSION");
    let mut patches = String::new();
    for (name, folder) in siblings(manifest) {
        for part in ["Cargo.toml", "src"] {
            println!("cargo::rerun-if-changed={}", folder.join(part).display());
        }
        patches.push_str(&format!("{name} = {{ path = {folder:?} }}\n"));
    }
    format!(
        r#"[package]
name = "plimsoll-preload-library"
version = "{VERSION}"
edition = "2024"
publish = false
build = false

[workspace]

[lib]
name = "plimsoll_preload_library"
path = "lib.rs"
crate-type = ["cdylib"]

[dependencies]
plimsoll-preload = {{ version = "={VERSION}", features = ["library"] }}

[patch.crates-io]
{patches}
[profile.release]
lto = "fat"
codegen-units = 1
debug = "limited"
strip = "debuginfo"
"#
    )
}

/// Returns the packages of this project that the library is made of, as far as their folders are beside this one: in
/// the repository, or unpacked under their names and versions.
fn siblings(manifest: &Path) -> BTreeMap<String, PathBuf> {
    const VERSION: &str = env!("CARGO_PKG_VERSION");
    let mut found = BTreeMap::new();
    let mut wanted = vec!["plimsoll-preload".to_owned()];
    while let Some(name) = wanted.pop() {
        let folders = [name.clone(), format!("{name}-{VERSION}")];
        let mut folders = folders
            .map(|folder| manifest.join("..").join(folder))
            .into_iter();
        let read =
            |folder: PathBuf| Some((fs::read_to_string(folder.join("Cargo.toml")).ok()?, folder));
        let Some((text, folder)) = folders.find_map(read) else {
            continue;
        };
        if found.insert(name, folder).is_none() {
            wanted.extend(dependencies(&text));
        }
    }
    found
}

/// Returns the packages of this project that a manifest names as dependencies, as cargo writes it for a package, too:
/// `plimsoll-sys = { .. }` in a section, or `[dependencies.plimsoll-sys]`.
fn dependencies(manifest: &str) -> Vec<String> {
    let mut is_in_section = false;
    let mut names = Vec::new();
    for line in manifest.lines() {
        let name = match line.strip_prefix('[') {
            Some(section) => {
                let section = section.trim_end_matches(']');
                is_in_section = section == "dependencies" || section.ends_with(".dependencies");
                section.strip_prefix("dependencies.")
            }
            None => line.split(['=', '.']).next().filter(|_| is_in_section),
        };
        names.extend(
            name.map(str::trim)
                .filter(|name| name.starts_with("plimsoll"))
                .map(str::to_owned),
        );
    }
    names
}

/// Builds the package, without the network if possible. Returns whether that succeeded.
fn build_package(package: &Path, directory: &Path, target: &str) -> io::Result<bool> {
    let build =
        |options| cargo_build(package, directory, target, options).map(|status| status.success());
    Ok(build(&["--offline", "--quiet"])? || build(&["--quiet"])?)
}

/// Runs `cargo build` in the current directory, whose configuration (vendored sources, mirrors,
/// linkers) holds for the command as well, with the job slots of the outer build.
fn cargo_build(
    package: &Path,
    directory: &Path,
    target: &str,
    options: &[&str],
) -> io::Result<process::ExitStatus> {
    let mut command = process::Command::new(variable("CARGO"));
    command
        .args(["build", "--release", "--target", target])
        .arg("--manifest-path")
        .arg(package.join("Cargo.toml"))
        .arg("--target-dir")
        .arg(directory)
        .args(options);
    // Flags and profiles of the outer build, and what cargo sets for build scripts, are not for
    // this one. Its network settings, linkers and job slots are.
    for (name, _) in env::vars_os() {
        let name = name.to_string_lossy();
        let is_kept = ["CARGO_HOME", "CARGO_MAKEFLAGS"].contains(&&*name)
            || [
                "CARGO_NET_",
                "CARGO_HTTP_",
                "CARGO_REGISTR",
                "CARGO_SOURCE_",
            ]
            .iter()
            .any(|prefix| name.starts_with(prefix))
            || name.starts_with("CARGO_TARGET_") && name.ends_with("_LINKER");
        let is_for_build = ["CARGO_", "RUSTC"].iter().any(|of| name.starts_with(of))
            || [
                "RUSTFLAGS",
                "RUSTDOCFLAGS",
                "TARGET",
                "HOST",
                "OUT_DIR",
                "PROFILE",
            ]
            .contains(&&*name);
        if is_for_build && !is_kept {
            command.env_remove(&*name);
        }
    }
    command.status()
}

/// An environment variable that cargo sets for build scripts.
pub fn variable(name: &str) -> String {
    env::var(name).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// Writes a file unless it has this content, so that nothing is built anew without need.
fn write(path: &Path, content: &str) -> io::Result<()> {
    match fs::read_to_string(path) {
        Ok(present) if present == content => Ok(()),
        _ => fs::write(path, content),
    }
}
