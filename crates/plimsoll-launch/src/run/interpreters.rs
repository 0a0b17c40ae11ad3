//! Removes the loops of interpreters from stacks that have the functions of their languages.

use plimsoll_command::profile::{Function, LocationId, Profile};

/// The beginning of the system names of Python's functions.
const PYTHON: &str = "py::";

/// The origin of a function of Python.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Origin {
    /// The interpreter's frames, which have lines.
    Frames,
    /// The list for perf.
    List,
}

/// Leaves out the frames of Python's interpreter outside of the innermost function of Python, and its
/// loop. Functions from the list for perf are left out where the interpreter's frames show them. A
/// profile without functions of Python stays as it is.
pub fn hide_loops(profile: &mut Profile) {
    if !(profile.location_ids()).any(|id| origin(profile, id).is_some()) {
        return;
    }
    profile.retain_frames(|profile, stack| {
        let origins: Vec<Option<Origin>> = stack.iter().map(|&id| origin(profile, id)).collect();
        let Some(innermost) = origins.iter().position(Option::is_some) else {
            return vec![true; stack.len()];
        };
        let has_frames = origins.contains(&Some(Origin::Frames));
        let keeps = |(at, &id): (usize, &LocationId)| match origins[at] {
            Some(Origin::Frames) => true,
            Some(Origin::List) => !has_frames,
            None if at < innermost => !is_loop(profile, id),
            None => !is_interpreter(profile, id),
        };
        stack.iter().enumerate().map(keeps).collect()
    });
}

/// Returns the origin of a location's function, if that is one of Python.
fn origin(profile: &Profile, id: LocationId) -> Option<Origin> {
    let lines = profile.location(id).lines;
    let functions = lines.iter().filter_map(|line| line.function);
    let mut functions = functions.map(|id| profile.function(id));
    let is_pythons =
        |function: &&Function| profile.string(function.system_name).starts_with(PYTHON);
    let function = functions.find(is_pythons)?;
    Some(match function.start_line {
        0 => Origin::List,
        _ => Origin::Frames,
    })
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
