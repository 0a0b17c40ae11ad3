//! The environment of measured programs.

use std::env;
use std::process::Command;

/// Removes all variables but `PATH` and `HOME`. Others may add work: by one, node reads further
/// certificates at its start.
pub fn plain(command: &mut Command) -> &mut Command {
    let kept = ["PATH", "HOME"].map(|name| (name, env::var_os(name)));
    command.env_clear();
    for (name, value) in kept {
        command.envs(value.map(|value| (name, value)));
    }
    command
}
