//! Stacks in the form in which they are shown.

use std::borrow::Cow;
use std::collections::HashMap;

use crate::error::Error;
use crate::ids::{LocationId, StringId};
use crate::profile::{Line, Profile};
use crate::prune::Pruning;
use crate::samples::Sample;

/// A table of functions by name, including inlined ones, without dropped ones. A frame is an index
/// into it.
#[derive(Debug)]
pub struct Frames<'a> {
    profile: &'a Profile,
    pruning: Pruning,
    kinds: Vec<Kind<'a>>,
    /// The frames of all locations, each innermost first.
    frames: Vec<u32>,
    /// The index in `frames` of each location's first frame, with one more entry for the end.
    starts: Vec<u32>,
}

/// All functions of the same name.
#[derive(Debug)]
struct Kind<'a> {
    name: Cow<'a, str>,
    file: StringId,
    inlined: bool,
    called: bool,
}

/// The extent to which a function is inlined into its callers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inlined {
    /// Not inlined anywhere, as far as the profile shows.
    Nowhere,
    /// Inlined at some call sites.
    Partly,
    /// Inlined at all call sites.
    Everywhere,
}

/// A reusable buffer for the stack of one sample.
#[derive(Debug, Default)]
pub struct Stack {
    locations: Vec<LocationId>,
    frames: Vec<u32>,
}

impl Stack {
    /// Returns the locations of the last sample that was read, leaf first, without dropped ones.
    pub fn locations(&self) -> &[LocationId] {
        &self.locations
    }

    /// Returns the frames of the last sample that was read, leaf first, without dropped ones.
    pub fn frames(&self) -> &[u32] {
        &self.frames
    }
}

impl<'a> Frames<'a> {
    /// Builds the table from all locations of `profile`.
    ///
    /// # Errors
    /// If the profile's `drop_frames` or `keep_frames` is not a valid regular expression, and
    /// [`Error::TooLarge`] if stacks have too many frames.
    pub fn new(profile: &'a Profile) -> Result<Self, Error> {
        let pruning = Pruning::new(profile)?;
        let mut by_name: HashMap<Cow<'a, str>, u32> = HashMap::new();
        let mut kinds: Vec<Kind<'a>> = Vec::new();
        let mut frame = |kinds: &mut Vec<Kind<'a>>, name: Cow<'a, str>, file: StringId| {
            *by_name.entry(name).or_insert_with_key(|name| {
                kinds.push(Kind {
                    name: name.clone(),
                    file,
                    inlined: false,
                    called: false,
                });
                kinds.len() as u32 - 1
            })
        };
        // Functions without a name have no frame.
        let of_functions: Vec<Option<u32>> = profile
            .functions()
            .iter()
            .map(|function| {
                let name = match profile.string(function.name) {
                    "" => profile.string(function.system_name),
                    name => name,
                };
                (!name.is_empty()).then(|| frame(&mut kinds, Cow::Borrowed(name), function.file))
            })
            .collect();
        let mut frames = Vec::with_capacity(profile.lines.len());
        let mut starts = Vec::with_capacity(profile.location_count() + 1);
        for id in profile.location_ids() {
            let start = frames.len();
            starts.push(start as u32);
            let lines = shown_lines(profile, &pruning, id);
            let named = lines
                .iter()
                .filter_map(|line| of_functions[line.function?.index()]);
            frames.extend(named);
            if frames.len() == start {
                let name = Cow::Owned(address_name(profile, id));
                frames.push(frame(&mut kinds, name, StringId::default()));
            }
            let (&outermost, inlined) = frames[start..].split_last().unwrap_or((&0, &[]));
            kinds[outermost as usize].called = true;
            for &frame in inlined {
                kinds[frame as usize].inlined = true;
            }
        }
        starts.push(frames.len() as u32);
        check_stacks(profile, &starts)?;
        Ok(Self {
            profile,
            pruning,
            kinds,
            frames,
            starts,
        })
    }

    /// Returns the number of frames. Some may occur in no sample.
    pub fn len(&self) -> usize {
        self.kinds.len()
    }

    /// Returns whether the table is empty.
    pub fn is_empty(&self) -> bool {
        self.kinds.is_empty()
    }

    /// Returns the function's name; without symbols, the module and the offset in its file.
    pub fn name(&self, frame: u32) -> &str {
        &self.kinds[frame as usize].name
    }

    /// Returns the source file of the first function with that name; empty if unknown.
    pub fn file(&self, frame: u32) -> &'a str {
        self.profile.string(self.kinds[frame as usize].file)
    }

    /// Returns the extent to which the function is inlined.
    pub fn inlined(&self, frame: u32) -> Inlined {
        let kind = &self.kinds[frame as usize];
        match (kind.inlined, kind.called) {
            (false, _) => Inlined::Nowhere,
            (true, true) => Inlined::Partly,
            (true, false) => Inlined::Everywhere,
        }
    }

    /// Reads the stack of a sample into `stack`.
    #[inline]
    pub fn read(&self, sample: &Sample<'_>, stack: &mut Stack) {
        stack.locations.clear();
        stack.locations.extend(sample.locations());
        let hidden = self
            .pruning
            .hidden_locations(self.profile, &stack.locations);
        if hidden > 0 {
            stack.locations.drain(..hidden);
        }
        stack.frames.clear();
        for &location in &stack.locations {
            let index = location.index();
            let (start, end) = (self.starts[index], self.starts[index + 1]);
            // Most locations have one frame.
            if end - start == 1 {
                stack.frames.push(self.frames[start as usize]);
            } else {
                stack
                    .frames
                    .extend_from_slice(&self.frames[start as usize..end as usize]);
            }
        }
    }

    /// Returns the frames of a location, innermost first. At least one.
    pub fn frames_of(&self, location: LocationId) -> &[u32] {
        let index = location.index();
        &self.frames[self.starts[index] as usize..self.starts[index + 1] as usize]
    }

    /// Returns the visible lines of a location, innermost first.
    pub fn lines(&self, location: LocationId) -> &'a [Line] {
        shown_lines(self.profile, &self.pruning, location)
    }
}

fn shown_lines<'a>(profile: &'a Profile, pruning: &Pruning, id: LocationId) -> &'a [Line] {
    let lines = profile.location(id).lines;
    &lines[pruning.hidden_lines(id, lines.len())..]
}

/// The maximum number of frames of one stack.
const MAX_STACK: u64 = 1 << 20;

/// The maximum number of frames of all stacks.
const MAX_FRAMES: u64 = 1 << 28;

/// The maximum mean number of frames of a location, in profiles with more than [`MAX_STACK`] frames.
const MAX_INLINED: u64 = 32;

/// Checks the number of frames of all stacks. A profile states the lines of a location once, so a small
/// file can have stacks of any length.
fn check_stacks(profile: &Profile, starts: &[u32]) -> Result<(), Error> {
    let too_many = |which: &str, limit: u64| {
        Err(Error::TooLarge(format!(
            "{which} more than {limit} frames, with inlined functions"
        )))
    };
    let (mut frames, mut locations) = (0, 0);
    for sample in profile.samples() {
        let before = frames;
        for location in sample.locations() {
            let index = location.index();
            frames += u64::from(starts[index + 1] - starts[index]);
            locations += 1;
        }
        if frames - before > MAX_STACK {
            return too_many("a stack has", MAX_STACK);
        }
    }
    let limit = MAX_FRAMES.min(MAX_STACK + MAX_INLINED * locations);
    if frames > limit {
        return too_many("the stacks have", limit);
    }
    Ok(())
}

/// The maximum length of the module's name in a location's name, in characters: the limit of file names
/// on most systems.
const MAX_MODULE: usize = 255;

/// Returns the name of a location without functions: `module+0xoffset`, where the offset counts from
/// the beginning of the module's file. Parts that the profile lacks are left out.
fn address_name(profile: &Profile, id: LocationId) -> String {
    let location = profile.location(id);
    let mapping = location.mapping.map(|mapping| profile.mapping(mapping));
    let file = mapping.map_or("", |mapping| profile.string(mapping.file));
    let file = file.rsplit('/').next().unwrap_or_default();
    let end = file.char_indices().nth(MAX_MODULE).map(|(end, _)| end);
    let file = &file[..end.unwrap_or(file.len())];
    match (location.address, mapping) {
        (0, _) if file.is_empty() => "[unknown]".to_owned(),
        (0, _) => format!("[{file}]"),
        (address, Some(mapping)) if !file.is_empty() => {
            let offset = address
                .wrapping_sub(mapping.start)
                .wrapping_add(mapping.offset);
            format!("{file}+{offset:#x}")
        }
        (address, _) => format!("{address:#x}"),
    }
}
