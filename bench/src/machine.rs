//! A description of the machine for measured figures.

use std::process::Command;

/// Prints a line each for the machine, the versions and the date.
pub fn print() {
    let cpuinfo = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpuinfo
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(": "))
        .map_or("unknown processor", |(_, model)| model);
    let cpus = std::thread::available_parallelism().map_or(0, usize::from);
    let kind = match cpuinfo.contains("hypervisor") {
        true => ", virtual machine",
        false => "",
    };
    let system = run("uname", &["-r"]);
    println!("machine: {model}, {cpus} processors{kind}, Linux {system}");
    println!(
        "versions: plimsoll {}, {}, {}",
        env!("CARGO_PKG_VERSION"),
        run("rustc", &["--version"]),
        run("getconf", &["GNU_LIBC_VERSION"]),
    );
    println!("date: {}\n", run("date", &["+%Y-%m-%d"]));
}

fn run(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output();
    output.map_or_else(
        |_| "unknown".into(),
        |output| String::from_utf8_lossy(&output.stdout).trim().into(),
    )
}
