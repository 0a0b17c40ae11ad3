//! Profiles as lines of text, the same for pprof and OTLP: a line for each sample type, and one for
//! each of its samples. `decode.py` writes the same.

use std::collections::{BTreeMap, HashMap, HashSet};

use opentelemetry_proto::tonic::collector::profiles::v1development::ExportProfilesServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use opentelemetry_proto::tonic::profiles::v1development::{Profile, ProfilesDictionary, Sample};
use plimsoll_testkit::pprof;
use prost::Message as _;

/// Sums by stack and labels.
type Sums = BTreeMap<String, i64>;

fn lines(head: String, sums: Sums) -> Vec<String> {
    let samples = sums.into_iter().filter(|&(_, sum)| sum != 0);
    let samples = samples.map(|(identity, sum)| format!("  {sum} {identity}"));
    [head].into_iter().chain(samples).collect()
}

fn head(
    default: &str,
    kind: [&str; 2],
    period: (i64, [&str; 2]),
    times: [u64; 2],
    notes: &str,
) -> String {
    let (period, [name, unit]) = period;
    let [time, duration] = times;
    format!(
        "{}/{} of {default} every {period} {name}/{unit} at {time} for {duration} {notes}",
        kind[0], kind[1]
    )
}

/// Returns the lines of a profile in pprof's format.
pub(crate) fn of_pprof(profile: &pprof::Profile) -> Vec<String> {
    let text = |index: i64| profile.text(index);
    let types = profile.sample_types();
    let default = text(profile.default_sample_type);
    let known = types.iter().any(|(name, _)| *name == default);
    let default = if known {
        default
    } else {
        types[types.len() - 1].0
    };
    let period = profile.period_type.clone().unwrap_or_default();
    let functions: HashMap<_, _> = profile.function.iter().map(|at| (at.id, at)).collect();
    let mut all = Vec::new();
    for (index, &(name, unit)) in types.iter().enumerate() {
        let mut sums = Sums::new();
        for sample in &profile.sample {
            let frames = sample.location_id.iter().map(|&id| {
                let location = &profile.location[id as usize - 1];
                assert_eq!(location.id, id);
                let lines = location.line.iter().map(|line| {
                    let function = functions[&line.function_id];
                    let texts = [function.name, function.system_name, function.filename];
                    let [name, system, file] = texts.map(text);
                    format!(
                        "{name}|{system}|{file}|{}|{}",
                        function.start_line, line.line
                    )
                });
                let lines: Vec<_> = lines.collect();
                let mapping = match location.mapping_id {
                    0 => String::new(),
                    id => {
                        let at = &profile.mapping[id as usize - 1];
                        assert_eq!(at.id, id);
                        let (file, build_id) = (text(at.filename), text(at.build_id));
                        mapping(
                            at.memory_start,
                            at.memory_limit,
                            at.file_offset,
                            file,
                            build_id,
                        )
                    }
                };
                format!("{:x}@{mapping}({})", location.address, lines.join(","))
            });
            let frames: Vec<_> = frames.collect();
            let labels = sample.label.iter().map(|label| {
                let key = text(label.key);
                match (label.str, text(label.num_unit)) {
                    (0, "") if key == "bytes" => format!("{key}={} bytes", label.num),
                    (0, unit) => format!("{key}={} {unit}", label.num),
                    (value, _) => format!("{key}={:?}", text(value)),
                }
            });
            let mut labels: Vec<_> = labels.collect();
            labels.sort();
            let identity = format!("{} [{}]", frames.join(";"), labels.join(", "));
            *sums.entry(identity).or_default() += sample.value[index];
        }
        let times = [profile.time_nanos, profile.duration_nanos].map(|time| time as u64);
        let period = (profile.period, [text(period.name), text(period.unit)]);
        let notes = profile.comments().join("|");
        all.extend(lines(
            head(default, [name, unit], period, times, &notes),
            sums,
        ));
    }
    all
}

fn mapping(start: u64, limit: u64, offset: u64, file: &str, build_id: &str) -> String {
    format!("{start:x}-{limit:x}+{offset:x} {file} {build_id}")
}

fn text_of(value: &AnyValue) -> String {
    match value.value.as_ref().expect("a value") {
        Value::StringValue(text) => text.clone(),
        Value::ArrayValue(array) => {
            let texts: Vec<_> = array.values.iter().map(text_of).collect();
            texts.join("|")
        }
        other => panic!("{other:?}"),
    }
}

fn find(attributes: &[KeyValue], key: &str) -> String {
    let mut found = attributes.iter().filter(|attribute| attribute.key == key);
    let attribute = found.next().unwrap_or_else(|| panic!("{key} is absent"));
    assert!(found.next().is_none(), "{key} is there twice");
    text_of(attribute.value.as_ref().expect("a value"))
}

/// Decodes a request, checks the rules of the protocol, and returns the lines of each scope.
pub(crate) fn of_otlp(body: &[u8]) -> Vec<Vec<String>> {
    let request = ExportProfilesServiceRequest::decode(body).expect("a request");
    assert_eq!(
        request.encode_to_vec().len(),
        body.len(),
        "no unknown fields"
    );
    let dictionary = request.dictionary.expect("a dictionary");
    check(&dictionary);
    let [resource] = &request.resource_profiles[..] else {
        panic!("one resource")
    };
    let attributes = &resource.resource.as_ref().expect("a resource").attributes;
    assert_eq!(find(attributes, "service.name"), "shop");
    assert_eq!(find(attributes, "host.name"), "\u{1f6a2}");
    let scopes = resource.scope_profiles.iter().map(|profiles| {
        let scope = profiles.scope.as_ref().expect("a scope");
        assert_eq!(scope.name, "plimsoll");
        let default = find(&scope.attributes, "pprof.scope.default_sample_type");
        let profiles = profiles.profiles.iter();
        profiles
            .flat_map(|profile| of_profile(profile, &default, &dictionary))
            .collect()
    });
    scopes.collect()
}

/// Asserts that each table begins with its zero entry, and has no entry twice.
fn check(dictionary: &ProfilesDictionary) {
    fn check<T: Default + PartialEq + std::fmt::Debug>(
        table: &[T],
        encoded: impl Fn(&T) -> Vec<u8>,
    ) {
        assert_eq!(table.first(), Some(&T::default()));
        let unique: HashSet<_> = table.iter().map(encoded).collect();
        assert_eq!(unique.len(), table.len());
    }
    check(&dictionary.mapping_table, |entry| entry.encode_to_vec());
    check(&dictionary.location_table, |entry| entry.encode_to_vec());
    check(&dictionary.function_table, |entry| entry.encode_to_vec());
    check(&dictionary.link_table, |entry| entry.encode_to_vec());
    check(&dictionary.string_table, |entry| entry.clone().into_bytes());
    check(&dictionary.attribute_table, |entry| entry.encode_to_vec());
    check(&dictionary.stack_table, |entry| entry.encode_to_vec());
    assert_eq!(dictionary.link_table.len(), 1);
}

fn at<T>(table: &[T], index: i32) -> &T {
    &table[usize::try_from(index).expect("an index")]
}

fn of_profile(profile: &Profile, default: &str, dictionary: &ProfilesDictionary) -> Vec<String> {
    let string = |index: i32| at(&dictionary.string_table, index).as_str();
    let kind = profile.sample_type.expect("a sample type");
    let period = profile.period_type.unwrap_or_default();
    let notes = profile.attribute_indices.iter().map(|&index| {
        let attribute = at(&dictionary.attribute_table, index);
        assert_eq!(string(attribute.key_strindex), "pprof.profile.comment");
        text_of(attribute.value.as_ref().expect("a value"))
    });
    let notes: Vec<_> = notes.collect();
    let mut sums = Sums::new();
    for sample in &profile.samples {
        assert_eq!(sample.link_index, 0);
        assert!(sample.timestamps_unix_nano.is_empty());
        let [value] = sample.values[..] else {
            panic!("one value: {sample:?}")
        };
        let before = sums.insert(identity(sample, dictionary), value);
        assert_eq!(before, None, "equal samples are added up");
    }
    let head = head(
        default,
        [string(kind.type_strindex), string(kind.unit_strindex)],
        (
            profile.period,
            [string(period.type_strindex), string(period.unit_strindex)],
        ),
        [profile.time_unix_nano, profile.duration_nano],
        &notes.concat(),
    );
    lines(head, sums)
}

fn identity(sample: &Sample, dictionary: &ProfilesDictionary) -> String {
    let string = |index: i32| at(&dictionary.string_table, index).as_str();
    let stack = at(&dictionary.stack_table, sample.stack_index);
    let frames = stack.location_indices.iter().map(|&index| {
        let location = at(&dictionary.location_table, index);
        let lines = location.lines.iter().map(|line| {
            let function = at(&dictionary.function_table, line.function_index);
            format!(
                "{}|{}|{}|{}|{}",
                string(function.name_strindex),
                string(function.system_name_strindex),
                string(function.filename_strindex),
                function.start_line,
                line.line
            )
        });
        let lines: Vec<_> = lines.collect();
        let mapping = match location.mapping_index {
            0 => String::new(),
            index => {
                let at_index = at(&dictionary.mapping_table, index);
                let build_id = match at_index.attribute_indices[..] {
                    [] => String::new(),
                    [index] => {
                        let attribute = at(&dictionary.attribute_table, index);
                        let key = string(attribute.key_strindex);
                        assert!(key.starts_with("process.executable.build_id."), "{key}");
                        text_of(attribute.value.as_ref().expect("a value"))
                    }
                    _ => panic!("{at_index:?}"),
                };
                let file = string(at_index.filename_strindex);
                let (start, limit) = (at_index.memory_start, at_index.memory_limit);
                mapping(start, limit, at_index.file_offset, file, &build_id)
            }
        };
        format!("{:x}@{mapping}({})", location.address, lines.join(","))
    });
    let frames: Vec<_> = frames.collect();
    let labels = sample.attribute_indices.iter().map(|&index| {
        let attribute = at(&dictionary.attribute_table, index);
        let (key, unit) = (
            string(attribute.key_strindex),
            string(attribute.unit_strindex),
        );
        match attribute
            .value
            .as_ref()
            .and_then(|value| value.value.as_ref())
        {
            Some(Value::IntValue(number)) => format!("{key}={number} {unit}"),
            Some(Value::StringValue(text)) => format!("{key}={text:?}"),
            other => panic!("{other:?}"),
        }
    });
    let mut labels: Vec<_> = labels.collect();
    labels.sort();
    format!("{} [{}]", frames.join(";"), labels.join(", "))
}
