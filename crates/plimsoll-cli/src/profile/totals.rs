//! What of a profile is of which function.

use std::borrow::Cow;
use std::collections::HashMap;

use super::{Error, LocationId, Profile, Pruning, Sample};

/// What functions have of a sample type.
#[derive(Clone, Debug, Default)]
pub struct Totals {
    /// Of all samples. Values below zero count as if they were above, as in Go's tool.
    pub total: i64,
    /// Of each function that is in a sample, the largest `flat` first.
    pub functions: Vec<FunctionTotals>,
}

/// What a function has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FunctionTotals {
    /// Functions of one name are one. Without symbols, the address and its file.
    pub name: String,
    /// Of samples with the function at the leaf.
    pub flat: i64,
    /// Of samples with the function anywhere; a sample counts once, also in recursion.
    pub cum: i64,
}

/// What each function has of a sample type: the numbers of `go tool pprof -top`.
///
/// # Errors
/// If what the profile has in `drop_frames` is no regular expression.
pub fn function_totals(profile: &Profile, sample_type: usize) -> Result<Totals, Error> {
    let frames = Frames::new(profile)?;
    let mut flat = vec![0_i64; frames.len()];
    let mut cum = vec![0_i64; frames.len()];
    let mut seen = vec![0_usize; frames.len()];
    let mut total = 0_i64;
    let mut stack = Stack::default();
    for (number, sample) in profile.samples().enumerate() {
        let value = sample.value(sample_type);
        if value == 0 {
            continue;
        }
        total = total.saturating_add(value.saturating_abs());
        let stack = frames.of_sample(&sample, &mut stack);
        if let Some(&leaf) = stack.first() {
            flat[leaf as usize] = flat[leaf as usize].saturating_add(value);
        }
        for &frame in stack {
            let frame = frame as usize;
            if seen[frame] <= number {
                seen[frame] = number + 1;
                cum[frame] = cum[frame].saturating_add(value);
            }
        }
    }
    let mut functions: Vec<FunctionTotals> = (0..frames.len())
        .filter(|&frame| seen[frame] > 0)
        .map(|frame| FunctionTotals {
            name: frames.name(frame as u32).to_owned(),
            flat: flat[frame],
            cum: cum[frame],
        })
        .collect();
    functions.sort_by(|a, b| {
        let key = |of: &FunctionTotals| (of.flat.unsigned_abs(), of.cum.unsigned_abs());
        key(b).cmp(&key(a)).then_with(|| a.name.cmp(&b.name))
    });
    Ok(Totals { total, functions })
}

/// What stacks are shown as: functions by name, inlined ones too, without what is dropped.
#[derive(Debug)]
pub struct Frames<'a> {
    profile: &'a Profile,
    pruning: Pruning,
    names: Vec<Cow<'a, str>>,
    /// The frames of all locations, each innermost first.
    frames: Vec<u32>,
    /// Where those of each location begin; one more entry for the end.
    starts: Vec<u32>,
}

/// Room for the stack of one sample after the other.
#[derive(Debug, Default)]
pub struct Stack {
    locations: Vec<LocationId>,
    frames: Vec<u32>,
}

impl<'a> Frames<'a> {
    /// Of all locations.
    ///
    /// # Errors
    /// If what the profile has in `drop_frames` is no regular expression.
    pub fn new(profile: &'a Profile) -> Result<Self, Error> {
        let pruning = Pruning::new(profile)?;
        let mut by_name: HashMap<Cow<'a, str>, u32> = HashMap::new();
        let mut names: Vec<Cow<'a, str>> = Vec::new();
        let mut frame = |name: Cow<'a, str>| {
            *by_name.entry(name).or_insert_with_key(|name| {
                names.push(name.clone());
                names.len() as u32 - 1
            })
        };
        let of_functions: Vec<u32> = profile
            .functions()
            .iter()
            .map(|function| match profile.string(function.name) {
                "" => profile.string(function.system_name),
                name => name,
            })
            .map(|name| frame(Cow::Borrowed(name)))
            .collect();
        let mut frames = Vec::with_capacity(profile.lines.len());
        let mut starts = Vec::with_capacity(profile.location_count() + 1);
        for id in profile.location_ids() {
            starts.push(frames.len() as u32);
            let location = profile.location(id);
            let hidden = pruning.hidden_lines(id, location.lines.len());
            let named = location.lines[hidden..].iter().filter_map(|line| {
                let function = line.function?;
                (!profile.function_name(function).is_empty())
                    .then(|| of_functions[function.index()])
            });
            frames.extend(named);
            if frames.len() as u32 == starts[id.index()] {
                frames.push(frame(Cow::Owned(address_name(profile, id))));
            }
        }
        starts.push(frames.len() as u32);
        Ok(Self {
            profile,
            pruning,
            names,
            frames,
            starts,
        })
    }

    /// How many there are. Some may be in no sample.
    pub fn len(&self) -> usize {
        self.names.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// Its name.
    pub fn name(&self, frame: u32) -> &str {
        &self.names[frame as usize]
    }

    /// The frames of a sample, leaf first.
    pub fn of_sample<'s>(&self, sample: &Sample<'_>, stack: &'s mut Stack) -> &'s [u32] {
        stack.frames.clear();
        if self.pruning.is_empty() {
            for location in sample.locations() {
                stack.frames.extend_from_slice(self.of_location(location));
            }
        } else {
            stack.locations.clear();
            stack.locations.extend(sample.locations());
            let hidden = self
                .pruning
                .hidden_locations(self.profile, &stack.locations);
            for &location in &stack.locations[hidden..] {
                stack.frames.extend_from_slice(self.of_location(location));
            }
        }
        &stack.frames
    }

    /// The frames of a location, the innermost first.
    #[inline]
    pub fn of_location(&self, location: LocationId) -> &[u32] {
        let index = location.index();
        &self.frames[self.starts[index] as usize..self.starts[index + 1] as usize]
    }
}

/// What stands for a location without names.
pub(crate) fn address_name(profile: &Profile, id: LocationId) -> String {
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
