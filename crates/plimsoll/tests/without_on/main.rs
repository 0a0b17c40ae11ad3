//! Plimsoll without its feature `on`: the package in `package` is built apart, since the tests have the feature.

use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

const CRATE: &str = env!("CARGO_MANIFEST_DIR");

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Returns a copy of the package, below the directory of the build: cargo writes a file beside the manifest.
fn package() -> &'static Path {
    static COPY: OnceLock<PathBuf> = OnceLock::new();
    COPY.get_or_init(|| {
        let copy = Path::new(env!("CARGO_TARGET_TMPDIR")).join("without_on");
        let source = Path::new(CRATE).join("tests/without_on/package");
        fs::create_dir_all(copy.join("src/bin")).unwrap();
        for file in [
            "Cargo.toml",
            "src/main.rs",
            "src/bin/bare.rs",
            "src/bin/forwarding.rs",
        ] {
            let content = fs::read_to_string(source.join(file)).unwrap();
            let content = content.replace("\"../../..\"", &format!("{CRATE:?}"));
            fs::write(copy.join(file), content).unwrap();
        }
        copy
    })
}

fn cargo(arguments: &[&str]) -> Output {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo
        .args(arguments)
        .arg("--offline")
        .current_dir(package());
    // What is built here is not built for a sanitizer, and not for another target.
    for variable in [
        "RUSTFLAGS",
        "CARGO_ENCODED_RUSTFLAGS",
        "CARGO_BUILD_TARGET",
        "CARGO_TARGET_DIR",
    ] {
        cargo.env_remove(variable);
    }
    let output = cargo.output().expect("cargo can be run");
    assert!(
        output.status.success(),
        "{cargo:?}: {}",
        text(&output.stderr)
    );
    output
}

fn built(program: &str) -> PathBuf {
    cargo(&["build", "--quiet", "--release", "--target-dir", "target"]);
    package().join("target/release").join(program)
}

/// Returns the instructions of the function with that name, without operands.
fn instructions(program: &Path, function: &str) -> Vec<String> {
    let mut objdump = Command::new("objdump");
    objdump
        .args(["--disassemble", "--no-show-raw-insn"])
        .arg(program);
    let output = objdump.output().expect("the linker's package has it");
    let listing = text(&output.stdout);
    let head = format!("{function}>:");
    let lines = listing
        .lines()
        .skip_while(|line| !line.ends_with(&head))
        .skip(1);
    let body = lines.take_while(|line| !line.is_empty());
    body.filter_map(|line| line.split('\t').nth(1))
        .map(|instruction| instruction.split(' ').next().unwrap_or_default().to_owned())
        .filter(|name| !matches!(&**name, "int3" | "nop" | "nopw" | "nopl"))
        .collect()
}

#[test]
fn an_allocation_has_the_instructions_of_the_allocator_alone() {
    let forwarding = built("forwarding");
    let bare = forwarding.with_file_name("bare");
    for function in ["alloc", "dealloc", "realloc", "alloc_zeroed"] {
        let name = format!("___rust_{function}");
        let expected = instructions(&bare, &name);
        assert!(!expected.is_empty(), "{name} is not in {}", bare.display());
        assert_eq!(instructions(&forwarding, &name), expected, "{name}");
    }
}

#[test]
fn one_small_crate_is_built_besides() {
    let output = cargo(&["tree", "--prefix", "none", "--edges", "normal,build"]);
    let packages = text(&output.stdout);
    let names: Vec<_> = packages
        .lines()
        .filter_map(|line| line.split(' ').next())
        .collect();
    assert_eq!(names, ["without-on", "plimsoll", "plimsoll-off"]);
}

#[test]
fn everything_can_be_called_and_each_profile_says_why_it_is_empty() {
    let program = built("without-on");
    let file = package().join("own.pb.gz");
    let output = Command::new(&program)
        .arg(&file)
        .env_remove("PLIMSOLL")
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(text(&output.stderr), "");
    let mut encoded = Vec::new();
    let mut reader = flate2::read::GzDecoder::new(fs::File::open(&file).unwrap());
    reader.read_to_end(&mut encoded).unwrap();
    assert!(text(&encoded).contains("not compiled in"));
    let written = text(&output.stdout);
    for profile in plimsoll::profile::profiles() {
        let name = profile.name();
        assert!(
            written.lines().any(|line| line == name),
            "{name}: {written}"
        );
    }

    let output = Command::new(&program)
        .arg(&file)
        .env("PLIMSOLL", "http=127.0.0.1:0")
        .output()
        .unwrap();
    assert!(output.status.success());
    let said = text(&output.stderr);
    assert!(
        said.contains("PLIMSOLL") && said.contains("not compiled in"),
        "{said}"
    );
    assert_eq!(said.lines().count(), 1, "{said}");
}
