//! Profiles that no usual writer makes.

use opentelemetry_proto::tonic::collector::profiles::v1development::ExportProfilesServiceRequest;
use opentelemetry_proto::tonic::profiles::v1development::{Profile, ProfilesDictionary};
use plimsoll_testkit::pprof;
use prost::Message as _;

use super::{canonical, python, read, request};

/// A profile of the types `space` in `bytes` and `objects` in `count`, with these strings after those.
fn crafted(strings: &[&str]) -> pprof::Profile {
    let own = ["", "space", "bytes", "objects", "count"];
    pprof::Profile {
        sample_type: vec![
            pprof::ValueType { name: 1, unit: 2 },
            pprof::ValueType { name: 3, unit: 4 },
        ],
        string_table: own
            .iter()
            .chain(strings)
            .map(|text| (*text).to_owned())
            .collect(),
        ..pprof::Profile::default()
    }
}

fn sample(location_id: &[u64], value: [i64; 2], label: &[pprof::Label]) -> pprof::Sample {
    pprof::Sample {
        location_id: location_id.to_vec(),
        value: value.to_vec(),
        label: label.to_vec(),
    }
}

/// Returns the request of one profile, decoded: its profiles and the dictionary. Python decodes the
/// same.
fn converted(name: &str, profile: &pprof::Profile) -> (Vec<Profile>, ProfilesDictionary) {
    let body = request(&[read(&profile.encode_to_vec())]);
    if let Some(lines) = python::decoded(name, &body) {
        assert!(lines.len() >= profile.sample_type.len());
    }
    let mut request = ExportProfilesServiceRequest::decode(&body[..]).unwrap();
    let mut scopes = request.resource_profiles.remove(0).scope_profiles;
    (scopes.remove(0).profiles, request.dictionary.unwrap())
}

#[test]
fn a_request_without_profiles_has_the_zero_entries() {
    assert!(canonical::of_otlp(&request(&[])).is_empty());
}

#[test]
fn a_profile_without_samples_has_its_types() {
    let body = request(&[read(&crafted(&[]).encode_to_vec())]);
    let expected = ["space/bytes", "objects/count"]
        .map(|kind| format!("{kind} of objects every 0 / at 0 for 0 "));
    assert_eq!(canonical::of_otlp(&body), [expected]);
}

#[test]
fn equal_code_in_different_entries_becomes_one_entry() {
    let mut profile = crafted(&["main", "main.rs", "main", "/bin/main"]);
    for (id, name) in [(1, 5), (2, 7)] {
        let (filename, start_line, system_name) = (6, 3, name);
        profile.function.push(pprof::Function {
            id,
            name,
            system_name,
            filename,
            start_line,
        });
        let line = vec![pprof::Line {
            function_id: id,
            line: 9,
        }];
        profile.location.push(pprof::Location {
            id: 10 * id,
            mapping_id: id,
            address: 77,
            line,
        });
        let (memory_start, memory_limit) = (64, 128);
        profile.mapping.push(pprof::Mapping {
            id,
            memory_start,
            memory_limit,
            filename: 8,
            ..Default::default()
        });
        profile.sample.push(sample(&[10 * id], [i64::MAX, 1], &[]));
    }
    let (profiles, dictionary) = converted("equal", &profile);
    assert_eq!(dictionary.function_table.len(), 2);
    assert_eq!(dictionary.location_table.len(), 2);
    assert_eq!(dictionary.mapping_table.len(), 2);
    assert_eq!(dictionary.stack_table.len(), 2);
    let values: Vec<_> = profiles
        .iter()
        .map(|profile| &profile.samples[0].values[..])
        .collect();
    assert_eq!(values, [[i64::MAX], [2]], "sums do not overflow");
}

#[test]
fn unused_entries_are_left_out() {
    let mut profile = crafted(&["unused"]);
    profile.function.push(pprof::Function {
        id: 1,
        name: 5,
        ..Default::default()
    });
    let line = vec![pprof::Line {
        function_id: 1,
        line: 9,
    }];
    profile.location.push(pprof::Location {
        id: 1,
        line,
        ..Default::default()
    });
    let label = pprof::Label {
        key: 5,
        str: 5,
        ..Default::default()
    };
    profile.sample.push(sample(&[1], [0, 0], &[label]));
    let (profiles, dictionary) = converted("unused", &profile);
    assert!(profiles.iter().all(|profile| profile.samples.is_empty()));
    assert_eq!(dictionary.function_table.len(), 1);
    assert_eq!(dictionary.attribute_table.len(), 1);
    assert!(!dictionary.string_table.contains(&"unused".to_owned()));
}

#[test]
fn labels_keep_their_types_and_units_and_one_of_each_key() {
    let mut profile = crafted(&["key", "text", "milliseconds"]);
    let text = pprof::Label {
        key: 5,
        str: 6,
        ..Default::default()
    };
    let number = pprof::Label {
        key: 6,
        num: i64::MIN,
        num_unit: 7,
        ..Default::default()
    };
    let zero = pprof::Label {
        key: 2,
        ..Default::default()
    };
    let nameless = pprof::Label {
        num: 5,
        ..Default::default()
    };
    let again = pprof::Label {
        key: 5,
        str: 5,
        ..Default::default()
    };
    let mut labels = vec![text, number, zero, nameless, again];
    profile.sample.push(sample(&[], [1, -1], &labels));
    // In another order: the same sample.
    labels.swap(0, 1);
    labels.swap(2, 3);
    profile.sample.push(sample(&[], [2, i64::MIN + 1], &labels));
    let body = request(&[read(&profile.encode_to_vec())]);
    let lines = canonical::of_otlp(&body).remove(0);
    let identity = " [=5 , bytes=0 bytes, key=\"text\", text=-9223372036854775808 milliseconds]";
    assert_eq!(lines[1], format!("  3 {identity}"));
    assert_eq!(lines[3], format!("  {} {identity}", i64::MIN));
    let (profiles, _) = converted("labels", &profile);
    assert!(
        profiles
            .iter()
            .all(|profile| profile.dropped_attributes_count == 2)
    );
}

#[test]
fn the_rest_of_a_profile_is_kept() {
    let mut profile = crafted(&[
        "one",
        "two",
        "drop.*",
        "keep.*",
        "go/build/id",
        "0123abcDEF",
    ]);
    profile.comment = vec![5, 6];
    (profile.drop_frames, profile.keep_frames) = (7, 8);
    profile.default_sample_type = 1;
    (profile.time_nanos, profile.duration_nanos) = (1_700_000_000_123_456_789, 15_000_000_000);
    profile.period_type = Some(pprof::ValueType { name: 1, unit: 2 });
    profile.period = -7;
    for (id, build_id) in [(1, 9), (2, 10), (3, 0)] {
        profile.mapping.push(pprof::Mapping {
            id,
            memory_limit: u64::MAX,
            build_id,
            ..Default::default()
        });
        profile.location.push(pprof::Location {
            id,
            mapping_id: id,
            address: u64::MAX,
            ..Default::default()
        });
    }
    profile.sample.push(sample(&[1, 2, 3, 2], [5, 0], &[]));
    let (profiles, dictionary) = converted("rest", &profile);
    let string = |index: i32| &*dictionary.string_table[index as usize];
    for profile in &profiles {
        assert_eq!(profile.time_unix_nano, 1_700_000_000_123_456_789);
        assert_eq!(
            (profile.duration_nano, profile.period),
            (15_000_000_000, -7)
        );
        let keys = profile.attribute_indices.iter();
        let keys: Vec<_> = keys
            .map(|&at| string(dictionary.attribute_table[at as usize].key_strindex))
            .collect();
        assert_eq!(
            keys,
            [
                "pprof.profile.comment",
                "pprof.profile.drop_frames",
                "pprof.profile.keep_frames"
            ]
        );
    }
    assert_eq!(
        [profiles[0].samples.len(), profiles[1].samples.len()],
        [1, 0]
    );
    let stack = &dictionary.stack_table[profiles[0].samples[0].stack_index as usize];
    assert_eq!(stack.location_indices, [1, 2, 3, 2]);
    let keys = dictionary.mapping_table.iter().skip(1).map(|mapping| {
        let attributes = mapping.attribute_indices.iter();
        attributes
            .map(|&at| string(dictionary.attribute_table[at as usize].key_strindex))
            .collect::<String>()
    });
    let keys: Vec<_> = keys.collect();
    assert_eq!(
        keys,
        [
            "process.executable.build_id.go",
            "process.executable.build_id.gnu",
            ""
        ]
    );
}

#[test]
fn times_before_1970_are_unknown() {
    let mut profile = crafted(&[]);
    (profile.time_nanos, profile.duration_nanos) = (-1, i64::MIN);
    let (profiles, _) = converted("times", &profile);
    assert_eq!(
        (profiles[0].time_unix_nano, profiles[0].duration_nano),
        (0, 0)
    );
}

#[test]
fn profiles_of_one_request_share_the_dictionary() {
    let mut profile = crafted(&["shared"]);
    profile.function.push(pprof::Function {
        id: 1,
        name: 5,
        ..Default::default()
    });
    let line = vec![pprof::Line {
        function_id: 1,
        line: 9,
    }];
    profile.location.push(pprof::Location {
        id: 1,
        line,
        ..Default::default()
    });
    profile.sample.push(sample(&[1], [1, 2], &[]));
    let profile = read(&profile.encode_to_vec());
    let [once, twice] = [1, 2].map(|count| request(&vec![profile.clone(); count]));
    let dictionary = |body: &[u8]| {
        ExportProfilesServiceRequest::decode(body)
            .unwrap()
            .dictionary
    };
    assert_eq!(dictionary(&once), dictionary(&twice));
    let scopes = canonical::of_otlp(&twice);
    assert_eq!(scopes.len(), 2);
    assert_eq!(scopes[0], scopes[1]);
}

/// 20,000 samples with 100 frames each, of 20,000 functions.
#[test]
fn a_large_profile_is_converted() {
    let mut profile = crafted(&[]);
    for id in 1..=20_000_u64 {
        profile.string_table.push(format!("function_{id}"));
        let name = profile.string_table.len() as i64 - 1;
        profile.function.push(pprof::Function {
            id,
            name,
            ..Default::default()
        });
        let line = vec![pprof::Line {
            function_id: id,
            line: 1,
        }];
        profile.location.push(pprof::Location {
            id,
            address: id,
            line,
            ..Default::default()
        });
    }
    for number in 0..20_000_u64 {
        let stack: Vec<u64> = (0..100)
            .map(|frame| (number * 31 + frame * 7) % 20_000 + 1)
            .collect();
        let label = pprof::Label {
            key: 2,
            num: (number % 3) as i64,
            ..Default::default()
        };
        profile
            .sample
            .push(sample(&stack, [number as i64 + 1, 1], &[label]));
    }
    let body = request(&[read(&profile.encode_to_vec())]);
    let request = ExportProfilesServiceRequest::decode(&body[..]).unwrap();
    let profiles = &request.resource_profiles[0].scope_profiles[0].profiles;
    let sum = |profile: &Profile| {
        profile
            .samples
            .iter()
            .map(|sample| sample.values[0])
            .sum::<i64>()
    };
    assert_eq!(
        profiles.iter().map(sum).collect::<Vec<_>>(),
        [20_000 * 20_001 / 2, 20_000]
    );
    assert_eq!(request.dictionary.unwrap().location_table.len(), 20_001);
}
