//! Nothing is built: cargo asks for this where a crate says what it `links`.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
}
