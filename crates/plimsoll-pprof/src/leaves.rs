//! Removes frames from the leaves of stacks.

use std::borrow::Cow;
use std::collections::HashMap;

use plimsoll_leaves::leaves::{allocation, hidden};

use crate::ids::LocationId;
use crate::names::AddedStrings;
use crate::profile::{NONE, Profile, StoredLocation};
use crate::samples::Sample;
use crate::{samples, varint};

/// The label of the type for which memory was allocated.
const TYPE: &str = "type";

/// Adds the types for which memory was allocated.
#[derive(Default)]
struct Types {
    strings: AddedStrings,
}

impl Types {
    /// Returns the labels of a sample, with its type if the `hidden` innermost functions name it.
    fn add_to<'a>(
        &mut self,
        profile: &mut Profile,
        sample: &Sample<'a>,
        stack: &[LocationId],
        hidden: usize,
    ) -> Cow<'a, [u8]> {
        let has_type = |profile: &Profile| {
            let mut labels = sample.labels();
            labels.any(|label| profile.string(label.key) == TYPE)
        };
        let functions = profile.functions_of(stack).take(hidden);
        let container = allocation::type_in(functions.map(|(name, _)| name));
        let Some(container) = container.filter(|_| !has_type(profile)) else {
            return Cow::Borrowed(sample.labels);
        };
        let mut labels = sample.labels.to_vec();
        let key = self.strings.add(profile, TYPE);
        let text = self.strings.add(profile, &container);
        for part in [key.0, text.0, 0, 0] {
            varint::put(&mut labels, u64::from(part));
        }
        Cow::Owned(labels)
    }
}

impl Profile {
    /// Removes from the leaf of every stack the frames in mapped files for which `is_hidden` is
    /// true. A stack that consists only of such frames becomes empty.
    pub fn hide_leaves_in(&mut self, is_hidden: impl Fn(&str) -> bool) {
        let hidden: Vec<bool> = self
            .mappings
            .iter()
            .map(|mapping| is_hidden(self.string(mapping.file)))
            .collect();
        if !hidden.contains(&true) {
            return;
        }
        let hides = |id: LocationId| {
            let mapping = self.locations[id.index()].mapping;
            mapping != NONE && hidden[mapping as usize]
        };
        let mut kept = samples::Store::default();
        for sample in self.samples.iter() {
            let mut locations = sample.locations();
            let mut rest = locations.clone();
            while locations.next().is_some_and(hides) {
                rest = locations.clone();
            }
            kept.push(rest.bytes(), sample.values, sample.labels);
        }
        self.samples = kept;
    }

    /// Removes frames from stacks: those for which `keep` returns false, leaf first.
    pub fn retain_frames(&mut self, keep: impl Fn(&Self, &[LocationId]) -> Vec<bool>) {
        let all = std::mem::take(&mut self.samples);
        let mut kept = samples::Store::default();
        let (mut stack, mut bytes) = (Vec::new(), Vec::new());
        for sample in all.iter() {
            stack.clear();
            stack.extend(sample.locations());
            bytes.clear();
            for (id, _) in stack
                .iter()
                .zip(keep(self, &stack))
                .filter(|(_, keep)| *keep)
            {
                varint::put(&mut bytes, u64::from(id.0) + 1);
            }
            kept.push(&bytes, sample.values, sample.labels);
        }
        self.samples = kept;
    }

    /// Returns whether its samples are blocks of memory, by allocation site.
    pub fn is_of_allocations(&self) -> bool {
        let is_mapped = |kind: &crate::profile::ValueType| kind.name.starts_with("mapped_");
        self.period_type.name == "space" && !self.sample_types.iter().any(is_mapped)
    }

    /// Removes from the leaf of every stack the functions that make an allocation, as Plimsoll's
    /// own pages do: `malloc` and functions that wrap it, operators, collections. A stack that
    /// consists only of such functions stays complete. Adds the label `type` to samples without one, if
    /// the hidden functions name the type.
    pub fn hide_allocators(&mut self) {
        let mut kept = samples::Store::default();
        let mut shortened: HashMap<(LocationId, usize), LocationId> = HashMap::new();
        let all = std::mem::take(&mut self.samples);
        let mut types = Types::default();
        let (mut stack, mut bytes) = (Vec::new(), Vec::new());
        for sample in all.iter() {
            stack.clear();
            stack.extend(sample.locations());
            let mut hidden = hidden(allocation::leaf, self.functions_of(&stack));
            let labels = types.add_to(self, &sample, &stack, hidden);
            let mut callers = sample.locations();
            let mut rest = callers.clone();
            let mut first = callers.next();
            while let Some(id) = first {
                // A location without a name counts as one function.
                let lines = self.location(id).lines.len().max(1);
                if hidden < lines {
                    break;
                }
                hidden -= lines;
                rest = callers.clone();
                first = callers.next();
            }
            let Some(id) = first.filter(|_| hidden > 0) else {
                kept.push(rest.bytes(), sample.values, &labels);
                continue;
            };
            let id = *shortened
                .entry((id, hidden))
                .or_insert_with(|| self.without_innermost(id, hidden));
            bytes.clear();
            varint::put(&mut bytes, u64::from(id.0) + 1);
            bytes.extend_from_slice(callers.bytes());
            kept.push(&bytes, sample.values, &labels);
        }
        self.samples = kept;
    }

    /// Returns names and files of functions, from the leaf.
    fn functions_of<'a>(
        &'a self,
        stack: &'a [LocationId],
    ) -> impl Iterator<Item = (&'a str, &'a str)> {
        stack.iter().flat_map(|&id| {
            let is_nameless = self.is_nameless(id);
            let lines = match is_nameless {
                true => &[],
                false => self.location(id).lines,
            };
            let named = lines.iter().map(|line| match line.function {
                Some(id) => (self.function_name(id), self.string(self.function(id).file)),
                None => ("", ""),
            });
            named.chain(is_nameless.then_some(("", "")))
        })
    }

    /// Adds a copy of a location without its `hidden` innermost lines.
    fn without_innermost(&mut self, id: LocationId, hidden: usize) -> LocationId {
        let stored = self.locations[id.index()];
        let lines = self.location(id).lines[hidden..].to_vec();
        self.locations.push(StoredLocation {
            first_line: self.lines.len() as u32,
            ..stored
        });
        self.lines.extend(lines);
        LocationId(self.locations.len() as u32 - 1)
    }
}
