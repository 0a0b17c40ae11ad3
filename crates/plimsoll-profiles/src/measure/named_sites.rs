//! The functions of the sites of a measurement.

use std::path::Path;

use plimsoll_leaves::leaves;
use plimsoll_symbolize::Detail;
use plimsoll_tasks::measured::{AllocationSite, describe_sites_by};

use crate::profile::{self, Frame};

/// The number of frames that a line of a site shows.
const MAX_FRAMES: usize = 4;

/// Lets a measurement name its sites.
pub fn prepare() {
    describe_sites_by(described);
}

fn described(sites: &[AllocationSite]) -> Vec<String> {
    // One call reads debug information once for all stacks.
    let stacks = sites.iter().map(|site| short(site.stack));
    let frames = profile::frames(&stacks.collect::<Vec<_>>().concat(), Detail::Full);
    let mut frames = &frames[..];
    let mut described = Vec::new();
    for site in sites {
        let ends = (frames.iter().zip(1..)).filter(|(frame, _)| !frame.is_inlined);
        let end = ends.take(short(site.stack).len()).last();
        let (of_site, others) = frames.split_at(end.map_or(0, |(_, end)| end));
        described.push(shown(of_site));
        frames = others;
    }
    described
}

/// The number of return addresses of a stack that are resolved. Some of them are hidden.
const MAX_ADDRESSES: usize = 40;

fn short(stack: &[usize]) -> &[usize] {
    &stack[..stack.len().min(MAX_ADDRESSES)]
}

/// Formats the innermost functions of a stack that are not part of an allocator or a container.
fn shown(frames: &[Frame]) -> String {
    let text = |path: &Option<std::path::PathBuf>| {
        let path = path.as_deref().map(Path::to_string_lossy);
        path.unwrap_or_default().into_owned()
    };
    let files: Vec<String> = frames.iter().map(|frame| text(&frame.file)).collect();
    let functions = frames.iter().zip(&files);
    let functions =
        functions.map(|(frame, file)| (frame.function.as_deref().unwrap_or_default(), &**file));
    let hidden = leaves::hidden(leaves::allocation::leaf, functions);
    // The callers of the measured code.
    let is_measuring = |frame: &Frame| {
        let function = frame.function.as_deref().unwrap_or_default();
        function.starts_with("plimsoll_profiles::measure::")
    };
    let end = frames.iter().position(is_measuring);
    let frames = &frames[..end.unwrap_or(frames.len())];
    let mut to = String::new();
    for (at, frame) in frames.iter().enumerate().skip(hidden).take(MAX_FRAMES) {
        if at > hidden {
            to.push_str(" < ");
        }
        match &frame.function {
            Some(function) => to.push_str(function),
            None => to.push_str(&format!("{:#x}", frame.address)),
        }
        if let Some(line) = frame.line.filter(|_| !files[at].is_empty()) {
            to.push_str(&format!(" ({}:{line})", files[at]));
        }
    }
    to
}
