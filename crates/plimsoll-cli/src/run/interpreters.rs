//! Removes the loops of interpreters from stacks that have the functions of their languages.

use crate::profile::{LocationId, Profile};

/// The beginning of the listed names of Python's functions.
const PYTHON: &str = "py::";

/// Leaves out the frames of Python's interpreter outside of the innermost function of Python, and its
/// loop. A profile without functions of Python stays as it is.
pub fn hide_loops(profile: &mut Profile) {
    let listed = |profile: &Profile, id: LocationId| -> bool {
        let lines = profile.location(id).lines;
        lines.iter().filter_map(|line| line.function).any(|id| {
            let function = profile.function(id);
            profile.string(function.system_name).starts_with(PYTHON)
        })
    };
    if !profile.location_ids().any(|id| listed(profile, id)) {
        return;
    }
    profile.retain_frames(|profile, stack| {
        let Some(innermost) = stack.iter().position(|&id| listed(profile, id)) else {
            return vec![true; stack.len()];
        };
        let keeps = |(at, &id): (usize, &LocationId)| match at < innermost {
            true => !is_loop(profile, id),
            false => listed(profile, id) || !is_interpreter(profile, id),
        };
        stack.iter().enumerate().map(keeps).collect()
    });
}

/// Returns whether a location is in the loop that executes Python's code.
fn is_loop(profile: &Profile, id: LocationId) -> bool {
    let lines = profile.location(id).lines;
    let mut names = lines.iter().filter_map(|line| line.function);
    names.any(|id| {
        let name = profile.function_name(id);
        name.starts_with("_PyEval_EvalFrame") || name == "_PyEval_Vector"
    })
}

/// Returns whether a location is in the interpreter's program or library.
fn is_interpreter(profile: &Profile, id: LocationId) -> bool {
    let Some(mapping) = profile.location(id).mapping else {
        return false;
    };
    let file = profile.string(profile.mapping(mapping).file);
    let name = file.rsplit('/').next().unwrap_or(file);
    name.starts_with("libpython") || name.starts_with("python")
}
