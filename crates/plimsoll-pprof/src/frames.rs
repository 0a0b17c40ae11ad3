//! What stacks are shown as.

use std::borrow::Cow;
use std::collections::HashMap;

use super::{Error, Line, LocationId, Profile, Pruning, Sample, StringId};

/// Functions by name, inlined ones too, without what is dropped. A frame is told by its index.
#[derive(Debug)]
pub struct Frames<'a> {
    profile: &'a Profile,
    pruning: Pruning,
    kinds: Vec<Kind<'a>>,
    /// The frames of all locations, each innermost first.
    frames: Vec<u32>,
    /// Where those of each location begin; one more entry for the end.
    starts: Vec<u32>,
}

/// All functions of one name.
#[derive(Debug)]
struct Kind<'a> {
    name: Cow<'a, str>,
    file: StringId,
    inlined: bool,
    called: bool,
}

/// Whether a function is inlined where it is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inlined {
    /// Nowhere, as far as the profile says.
    Nowhere,
    /// At some places.
    Partly,
    /// Wherever it is.
    Everywhere,
}

/// Room for the stack of one sample after the other.
#[derive(Debug, Default)]
pub struct Stack {
    locations: Vec<LocationId>,
    frames: Vec<u32>,
}

impl Stack {
    /// Those of the sample that was read last, leaf first, without what is dropped.
    pub fn locations(&self) -> &[LocationId] {
        &self.locations
    }

    /// The same as frames.
    pub fn frames(&self) -> &[u32] {
        &self.frames
    }
}

impl<'a> Frames<'a> {
    /// Of all locations.
    ///
    /// # Errors
    /// If what the profile has in `drop_frames` is no regular expression.
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
        // Those without a name have none.
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
        Ok(Self {
            profile,
            pruning,
            kinds,
            frames,
            starts,
        })
    }

    /// How many there are. Some may be in no sample.
    pub fn len(&self) -> usize {
        self.kinds.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.kinds.is_empty()
    }

    /// The function's name; without symbols, the address and its file.
    pub fn name(&self, frame: u32) -> &str {
        &self.kinds[frame as usize].name
    }

    /// The source file of the first function of that name; empty if the profile does not say.
    pub fn file(&self, frame: u32) -> &'a str {
        self.profile.string(self.kinds[frame as usize].file)
    }

    /// Whether it is inlined.
    pub fn inlined(&self, frame: u32) -> Inlined {
        let kind = &self.kinds[frame as usize];
        match (kind.inlined, kind.called) {
            (false, _) => Inlined::Nowhere,
            (true, true) => Inlined::Partly,
            (true, false) => Inlined::Everywhere,
        }
    }

    /// Reads the stack of a sample.
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
            // Mostly one.
            if end - start == 1 {
                stack.frames.push(self.frames[start as usize]);
            } else {
                stack
                    .frames
                    .extend_from_slice(&self.frames[start as usize..end as usize]);
            }
        }
    }

    /// The frames of a location, the innermost first. At least one.
    pub fn frames_of(&self, location: LocationId) -> &[u32] {
        let index = location.index();
        &self.frames[self.starts[index] as usize..self.starts[index + 1] as usize]
    }

    /// The lines of a location that are shown, the innermost first.
    pub fn lines(&self, location: LocationId) -> &'a [Line] {
        shown_lines(self.profile, &self.pruning, location)
    }
}

fn shown_lines<'a>(profile: &'a Profile, pruning: &Pruning, id: LocationId) -> &'a [Line] {
    let lines = profile.location(id).lines;
    &lines[pruning.hidden_lines(id, lines.len())..]
}
/// What stands for a location without names.
fn address_name(profile: &Profile, id: LocationId) -> String {
    let location = profile.location(id);
    let file = location
        .mapping
        .map_or("", |mapping| profile.string(profile.mapping(mapping).file));
    let file = file.rsplit('/').next().unwrap_or_default();
    match (location.address, file) {
        (0, "") => "[unknown]".to_owned(),
        (0, file) => format!("[{file}]"),
        (address, "") => format!("{address:#x}"),
        (address, file) => format!("{address:#x} [{file}]"),
    }
}
