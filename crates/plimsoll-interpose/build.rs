//! States on which systems functions of the C library can be interposed, for the crate and its
//! tests. Nothing else is built: cargo asks for this file where a crate says what it `links`.
//!
//! * `interposes_syscall`: `syscall` is interposed, with glibc on the processors of `src/arch`.
//! * `interposes_functions`: functions are interposed whose calls pass to the C library's. This
//!   excludes programs that contain the C library, which have one function of each name.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-check-cfg=cfg(interposes_syscall, interposes_functions)");
    let target = |property: &str| {
        let variable = std::env::var(format!("CARGO_CFG_TARGET_{property}"));
        variable.unwrap_or_default()
    };
    let is_processor_supported = ["x86_64", "aarch64"].contains(&target("ARCH").as_str());
    if target("OS") != "linux" || target("ENV") != "gnu" || !is_processor_supported {
        return;
    }
    println!("cargo::rustc-cfg=interposes_syscall");
    let features = target("FEATURE");
    if !features.split(',').any(|feature| feature == "crt-static") {
        println!("cargo::rustc-cfg=interposes_functions");
    }
}
