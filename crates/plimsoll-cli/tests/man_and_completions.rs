//! The build generates manual pages and completions beside the program. They exist, name every
//! subcommand and option, and work.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::CommandFactory;
use plimsoll_args::args::{Arguments, CargoArguments};

fn beside(directory: &str) -> PathBuf {
    let program = Path::new(env!("CARGO_BIN_EXE_plimsoll"));
    program.parent().unwrap().join(directory)
}

/// Returns all commands of `plimsoll` with the names that the manual pages use.
fn commands() -> Vec<(String, clap::Command)> {
    commands_of(Arguments::command(), "plimsoll")
}

/// The same of `cargo plimsoll`.
fn commands_of_cargo() -> Vec<(String, clap::Command)> {
    commands_of(CargoArguments::clap_command(), "cargo-plimsoll")
}

fn commands_of(mut root: clap::Command, name: &str) -> Vec<(String, clap::Command)> {
    root.build();
    let subcommands = root
        .get_subcommands()
        .filter(|command| command.get_name() != "help")
        .map(|command| (format!("{name}-{}", command.get_name()), command.clone()));
    let mut all: Vec<_> = subcommands.collect();
    all.push((name.into(), root));
    all
}

/// Returns the long options of a command.
fn options(command: &clap::Command) -> Vec<String> {
    let shown = command
        .get_arguments()
        .filter(|argument| !argument.is_hide_set());
    shown
        .filter_map(|argument| argument.get_long().map(|long| format!("--{long}")))
        .collect()
}

fn page(name: &str) -> String {
    let path = beside("man").join(format!("{name}.1"));
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Returns whether a program is installed, by running it with `--version`.
fn is_installed(program: &str) -> bool {
    let is_there = Command::new(program).arg("--version").output().is_ok();
    if !is_there {
        plimsoll_testkit::skip!("{program} is not installed");
    }
    is_there
}

#[test]
fn each_command_has_a_page_that_names_its_options() {
    let (commands, of_cargo) = (commands(), commands_of_cargo());
    assert!(commands.len() >= 4);
    assert_eq!(of_cargo.len(), 5);
    for (name, command) in commands.iter().chain(&of_cargo) {
        // The pages escape hyphens that the user types.
        let page = page(name).replace("\\-", "-");
        assert!(
            page.contains(&format!(".TH {}", name.to_uppercase())),
            "{name}"
        );
        for option in options(command) {
            assert!(page.contains(&option), "{name} {option}");
        }
    }
    for (root, all) in [("plimsoll", &commands), ("cargo-plimsoll", &of_cargo)] {
        let root = page(root).replace("\\-", "-");
        for (name, _) in all {
            assert!(root.contains(name), "{name}");
        }
    }
}

#[test]
fn exit_codes_and_variables_are_in_the_pages() {
    for name in ["plimsoll", "plimsoll-doctor"] {
        let page = page(name);
        for title in [".SH \"EXIT STATUS\"", ".SH ENVIRONMENT"] {
            assert!(page.contains(title), "{name}: {title}");
        }
        for word in ["126", "127", "NO_COLOR"] {
            assert!(page.contains(word), "{name}: {word}");
        }
    }
}

#[test]
fn pages_are_shown_without_warnings() {
    if !is_installed("groff") {
        return;
    }
    for (name, _) in commands().into_iter().chain(commands_of_cargo()) {
        let path = beside("man").join(format!("{name}.1"));
        let output = Command::new("groff")
            .args(["-man", "-ww", "-Tascii"])
            .arg(&path)
            .output()
            .unwrap();
        assert!(output.status.success());
        assert_eq!(String::from_utf8_lossy(&output.stderr), "", "{name}");
        assert!(output.stdout.len() > 500, "{name}");
    }
}

#[test]
fn completions_are_there_for_all_shells_and_name_every_option() {
    for (name, commands) in [
        ("plimsoll", commands()),
        ("cargo-plimsoll", commands_of_cargo()),
    ] {
        for file in [
            format!("{name}.bash"),
            format!("_{name}"),
            format!("{name}.fish"),
            format!("{name}.elv"),
            format!("_{name}.ps1"),
        ] {
            let path = beside("completions").join(&file);
            let text = fs::read_to_string(&path).unwrap();
            for (long, command) in &commands {
                let subcommand = long.trim_start_matches(&format!("{name}-"));
                assert!(text.contains(subcommand), "{file}: {subcommand}");
                for option in options(command) {
                    // fish lists options without hyphens.
                    assert!(
                        text.contains(option.trim_start_matches('-')),
                        "{file}: {option}"
                    );
                }
            }
        }
    }
}

#[test]
fn shells_understand_the_completions() {
    for (shell, file) in [
        ("bash", "plimsoll.bash"),
        ("zsh", "_plimsoll"),
        ("fish", "plimsoll.fish"),
        ("bash", "cargo-plimsoll.bash"),
        ("zsh", "_cargo-plimsoll"),
        ("fish", "cargo-plimsoll.fish"),
    ] {
        if !is_installed(shell) {
            continue;
        }
        let path = beside("completions").join(file);
        let output = Command::new(shell).arg("-n").arg(&path).output().unwrap();
        let says = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.success() && says.is_empty(),
            "{shell}: {says}"
        );
    }
}

/// Returns bash's completions of the last word, as after a press of the Tab key.
fn completed(words: &[&str]) -> Vec<String> {
    let script = r#"
        source "$1"; shift
        COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMP_LINE="$*"; COMP_POINT=${#COMP_LINE}
        read -r _ _ function _ < <(complete -p plimsoll | grep -o -- '-F .*' | sed 's/^/x /')
        "$function" plimsoll "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD-1]}"
        printf '%s\n' "${COMPREPLY[@]}"
    "#;
    let output = Command::new("bash")
        .args(["--norc", "-c", script, "bash"])
        .arg(beside("completions").join("plimsoll.bash"))
        .args(words)
        .output()
        .unwrap();
    let says = String::from_utf8_lossy(&output.stderr);
    assert!(says.is_empty(), "{says}");
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines()
        .filter(|line| !line.is_empty())
        .map(str::to_owned)
        .collect()
}

#[test]
fn bash_completes_subcommands_and_options() {
    if !is_installed("bash") {
        return;
    }
    assert_eq!(completed(&["plimsoll", "doc"]), ["doctor"]);
    assert!(completed(&["plimsoll", "no-such"]).is_empty());
    let all = completed(&["plimsoll", ""]);
    for (name, command) in commands() {
        let Some(subcommand) = name.strip_prefix("plimsoll-") else {
            continue;
        };
        assert!(all.iter().any(|word| word == subcommand), "{subcommand}");
        let its = completed(&["plimsoll", subcommand, "--"]);
        for option in options(&command) {
            assert!(its.contains(&option), "{subcommand} {option}: {its:?}");
        }
    }
    assert_eq!(completed(&["plimsoll", "doctor", "--js"]), ["--json"]);
}

/// The reference page contains the help of each subcommand. `PLIMSOLL_WRITE_DOCS=1` writes it.
#[test]
fn the_reference_contains_the_help() {
    let mut text = String::from(
        "# The command\n\nThe help of `plimsoll` and `cargo plimsoll`, and of each subcommand. This page is written from \
         `crates/plimsoll-args/src/args`.\n",
    );
    let (mut commands, mut of_cargo) = (commands(), commands_of_cargo());
    // The command itself comes first.
    commands.rotate_right(1);
    of_cargo.rotate_right(1);
    for (name, command) in commands.into_iter().chain(of_cargo) {
        let name = name.replace('-', " ");
        let help = command.bin_name(&name).term_width(110).render_long_help();
        let help = help.to_string();
        let help: Vec<&str> = help.trim_end().lines().map(str::trim_end).collect();
        text.push_str(&format!("\n## {name}\n```text\n{}\n```\n", help.join("\n")));
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/command.md");
    if std::env::var_os("PLIMSOLL_WRITE_DOCS").is_some() {
        fs::write(&path, &text).unwrap();
    }
    assert!(
        fs::read_to_string(&path).unwrap_or_default() == text,
        "docs/reference/command.md differs from the help: write it with PLIMSOLL_WRITE_DOCS=1"
    );
}
