//! Converts one profile.

use std::collections::HashMap;

use plimsoll_pprof::message::Message;
use plimsoll_pprof::{FunctionId, LocationId, MappingId, Profile, Sample, varint};

use crate::attribute::{Value, key_value};
use crate::dictionary::{Dictionary, put_indices};
use crate::field;

/// The label of the size of allocations, whose unit pprof implies.
const BYTES: &str = "bytes";

/// Returns a profile as `ScopeProfiles`, and adds its code and labels to the dictionary.
pub(crate) fn encode(profile: &Profile, dictionary: &mut Dictionary) -> Message {
    let mut code = Code::new(profile, dictionary);
    let mut identities = Identities::default();
    let mut dropped = 0;
    for sample in profile.samples() {
        if sample.values().all(|value| value == 0) {
            continue;
        }
        let stack = code.stack(&sample);
        let attributes = labels(profile, &sample, code.dictionary, &mut dropped);
        identities.add(stack, &attributes, &sample);
    }
    let dictionary = code.dictionary;
    let mut scope_profiles = Message::default();
    scope_profiles.message(field::scope_profiles::SCOPE, &scope(profile));
    let mut encoded = Message::default();
    for (index, kind) in profile.sample_types().iter().enumerate() {
        encoded.clear();
        let sample_type = dictionary.value_type(&kind.name, &kind.unit);
        encoded.message(field::profile::SAMPLE_TYPE, &sample_type);
        identities.encode(index, &mut encoded);
        head(profile, dictionary, &mut encoded);
        encoded.number(field::profile::DROPPED_ATTRIBUTES_COUNT, dropped);
        scope_profiles.message(field::scope_profiles::PROFILES, &encoded);
    }
    scope_profiles
}

/// Returns the `InstrumentationScope`.
fn scope(profile: &Profile) -> Message {
    let mut scope = Message::default();
    scope.bytes(field::scope::NAME, b"plimsoll");
    scope.bytes(field::scope::VERSION, env!("CARGO_PKG_VERSION").as_bytes());
    let default = &profile.sample_types()[profile.default_sample_type()];
    let default = key_value("pprof.scope.default_sample_type", &default.name);
    scope.message(field::scope::ATTRIBUTES, &default);
    scope
}

/// Writes the fields that all sample types have in common.
fn head(profile: &Profile, dictionary: &mut Dictionary, to: &mut Message) {
    // Times before 1970 are unknown.
    let time = u64::try_from(profile.time_ns()).unwrap_or(0);
    to.fixed64(field::profile::TIME_UNIX_NANO, time);
    let duration = u64::try_from(profile.duration_ns()).unwrap_or(0);
    to.number(field::profile::DURATION_NANO, duration);
    let period_type = profile.period_type();
    if !period_type.name.is_empty() || !period_type.unit.is_empty() {
        let period_type = dictionary.value_type(&period_type.name, &period_type.unit);
        to.message(field::profile::PERIOD_TYPE, &period_type);
    }
    to.number(field::profile::PERIOD, profile.period() as u64);
    let comments: Vec<&str> = profile.comments().collect();
    let mut attributes = Vec::new();
    if !comments.is_empty() {
        let comments = Value::Texts(&comments);
        attributes.push(dictionary.attribute("pprof.profile.comment", &comments, ""));
    }
    for (key, frames) in [
        ("pprof.profile.drop_frames", profile.drop_frames()),
        ("pprof.profile.keep_frames", profile.keep_frames()),
    ] {
        if !frames.is_empty() {
            attributes.push(dictionary.attribute(key, &Value::Text(frames), ""));
        }
    }
    put_indices(to, field::profile::ATTRIBUTE_INDICES, &attributes);
}

/// Returns the indices of the attributes of a sample. Adds the labels whose key occurred before to
/// `dropped`.
fn labels(
    profile: &Profile,
    sample: &Sample<'_>,
    dictionary: &mut Dictionary,
    dropped: &mut u64,
) -> Vec<u64> {
    let mut keys: Vec<&str> = Vec::new();
    let mut attributes = Vec::new();
    for label in sample.labels() {
        let key = profile.string(label.key);
        if keys.contains(&key) {
            *dropped += 1;
            continue;
        }
        keys.push(key);
        attributes.push(
            match (profile.string(label.text), profile.string(label.unit)) {
                ("", "") if key == BYTES => {
                    dictionary.attribute(key, &Value::Number(label.number), BYTES)
                }
                ("", unit) => dictionary.attribute(key, &Value::Number(label.number), unit),
                (text, _) => dictionary.attribute(key, &Value::Text(text), ""),
            },
        );
    }
    // The order of labels means nothing, so it does not distinguish samples.
    attributes.sort_unstable();
    attributes
}

/// The samples, by what identifies them: the stack and the attributes.
#[derive(Default)]
struct Identities {
    /// The index in `all` of each encoded identity.
    known: HashMap<Box<[u8]>, usize>,
    /// Encoded identities, with one value for each sample type.
    all: Vec<(Box<[u8]>, Vec<i64>)>,
}

impl Identities {
    /// Adds a sample, or its values to those of an equal one.
    fn add(&mut self, stack: u64, attributes: &[u64], sample: &Sample<'_>) {
        let mut identity = Message::default();
        identity.number(field::sample::STACK_INDEX, stack);
        put_indices(&mut identity, field::sample::ATTRIBUTE_INDICES, attributes);
        let identity: Box<[u8]> = identity.into_bytes().into();
        if let Some(&known) = self.known.get(&identity) {
            for (sum, value) in self.all[known].1.iter_mut().zip(sample.values()) {
                *sum = sum.saturating_add(value);
            }
            return;
        }
        self.known.insert(identity.clone(), self.all.len());
        self.all.push((identity, sample.values().collect()));
    }

    /// Writes the samples of one sample type.
    fn encode(&self, sample_type: usize, to: &mut Message) {
        let (mut sample, mut packed) = (Message::default(), Vec::new());
        for (identity, values) in &self.all {
            let value = values[sample_type];
            if value != 0 {
                sample.clear();
                sample.append(identity);
                packed.clear();
                varint::put(&mut packed, value as u64);
                sample.bytes(field::sample::VALUES, &packed);
                to.message(field::profile::SAMPLES, &sample);
            }
        }
    }
}

/// The code of a profile, and the indices of its converted parts.
struct Code<'a> {
    profile: &'a Profile,
    dictionary: &'a mut Dictionary,
    mappings: Vec<Option<u64>>,
    functions: Vec<Option<u64>>,
    locations: Vec<Option<u64>>,
}

impl<'a> Code<'a> {
    fn new(profile: &'a Profile, dictionary: &'a mut Dictionary) -> Self {
        Self {
            profile,
            dictionary,
            mappings: vec![None; profile.mappings().len()],
            functions: vec![None; profile.functions().len()],
            locations: vec![None; profile.location_count()],
        }
    }

    fn stack(&mut self, sample: &Sample<'_>) -> u64 {
        let indices: Vec<u64> = sample.locations().map(|id| self.location(id)).collect();
        let mut stack = Message::default();
        put_indices(&mut stack, field::stack::LOCATION_INDICES, &indices);
        self.dictionary.stacks.index(stack.as_bytes())
    }

    fn location(&mut self, id: LocationId) -> u64 {
        if let Some(known) = self.locations[id.index()] {
            return known;
        }
        let location = self.profile.location(id);
        let mut encoded = Message::default();
        let mapping = location.mapping.map_or(0, |id| self.mapping(id));
        encoded.number(field::location::MAPPING_INDEX, mapping);
        encoded.number(field::location::ADDRESS, location.address);
        let mut line = Message::default();
        for at in location.lines {
            line.clear();
            let function = at.function.map_or(0, |id| self.function(id));
            line.number(field::line::FUNCTION_INDEX, function);
            line.number(field::line::LINE, u64::from(at.line));
            encoded.message(field::location::LINES, &line);
        }
        let index = self.dictionary.locations.index(encoded.as_bytes());
        self.locations[id.index()] = Some(index);
        index
    }

    fn mapping(&mut self, id: MappingId) -> u64 {
        if let Some(known) = self.mappings[id.index()] {
            return known;
        }
        let mapping = self.profile.mapping(id);
        let mut encoded = Message::default();
        encoded.number(field::mapping::MEMORY_START, mapping.start);
        encoded.number(field::mapping::MEMORY_LIMIT, mapping.limit);
        encoded.number(field::mapping::FILE_OFFSET, mapping.offset);
        let file = self.dictionary.string(self.profile.string(mapping.file));
        encoded.number(field::mapping::FILENAME, file);
        let build_id = self.profile.string(mapping.build_id);
        if !build_id.is_empty() {
            let key = match build_id.bytes().all(|byte| byte.is_ascii_hexdigit()) {
                true => "process.executable.build_id.gnu",
                false => "process.executable.build_id.go",
            };
            let attribute = self.dictionary.attribute(key, &Value::Text(build_id), "");
            put_indices(
                &mut encoded,
                field::mapping::ATTRIBUTE_INDICES,
                &[attribute],
            );
        }
        let index = self.dictionary.mappings.index(encoded.as_bytes());
        self.mappings[id.index()] = Some(index);
        index
    }

    fn function(&mut self, id: FunctionId) -> u64 {
        if let Some(known) = self.functions[id.index()] {
            return known;
        }
        let function = self.profile.function(id);
        let mut encoded = Message::default();
        for (field, text) in [
            (field::function::NAME, function.name),
            (field::function::SYSTEM_NAME, function.system_name),
            (field::function::FILENAME, function.file),
        ] {
            let string = self.dictionary.string(self.profile.string(text));
            encoded.number(field, string);
        }
        encoded.number(field::function::START_LINE, u64::from(function.start_line));
        let index = self.dictionary.functions.index(encoded.as_bytes());
        self.functions[id.index()] = Some(index);
        index
    }
}
