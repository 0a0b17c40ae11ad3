//! States on which systems functions of the C library can be interposed, for the crate and its
//! tests. Nothing else is built: cargo asks for this file where a crate says what it `links`.
//!
//! * `interposes_syscall`: `syscall` is interposed, with glibc and musl on the processors of
//!   `src/arch`.
//! * `interposes_functions`: functions are interposed whose calls pass to the C library's. This
//!   excludes programs that contain glibc, which have one function of each name, and musl.
//! * `interposes_threads`: the functions that create threads are interposed. Static programs with
//!   musl are included: musl's function has a second name.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-check-cfg=cfg(interposes_syscall, interposes_functions)");
    println!("cargo::rustc-check-cfg=cfg(interposes_threads)");
    let target = |property: &str| {
        let variable = std::env::var(format!("CARGO_CFG_TARGET_{property}"));
        variable.unwrap_or_default()
    };
    let is_processor_supported = ["x86_64", "aarch64"].contains(&target("ARCH").as_str());
    let library = target("ENV");
    let is_supported = target("OS") == "linux" && ["gnu", "musl"].contains(&library.as_str());
    if !is_supported || !is_processor_supported {
        return;
    }
    println!("cargo::rustc-cfg=interposes_syscall");
    let features = target("FEATURE");
    let is_static = features.split(',').any(|feature| feature == "crt-static");
    if library == "musl" || !is_static {
        println!("cargo::rustc-cfg=interposes_threads");
    }
    if library == "gnu" && !is_static {
        println!("cargo::rustc-cfg=interposes_functions");
    }
}
