//! Files that are named by `--debug-file`.

use crate::command::Directory;
use crate::scene::{
    BUILD_ID, DEBUG, LIBRARY, assert_complete, assert_unchanged, named, profile, profile_at,
    reported, symbolize,
};

#[test]
fn a_debug_file_names_the_addresses_of_an_absent_library() {
    let directory = Directory::new("symbolize-supplied");
    let profile = profile(&directory, BUILD_ID);
    let file = directory.file("any name", DEBUG);
    let output = symbolize(&directory, &profile, &["--debug-file", &file], &[]);
    assert_eq!(reported(&output), "");
    assert_complete(&directory);
}

/// The address is in the procedure linkage table. Readers keep the names of a module only if each of its addresses has
/// one.
#[test]
fn an_address_without_a_function_is_reported_and_has_the_name_of_its_place() {
    let directory = Directory::new("symbolize-linkage");
    let profile = profile_at(&directory, &[BUILD_ID], 0x375);
    let file = directory.file("any name", DEBUG);
    let output = symbolize(&directory, &profile, &["--debug-file", &file], &[]);
    assert_eq!(
        reported(&output),
        format!("plimsoll: addresses without names: 1 in {LIBRARY} (build id {BUILD_ID})\n")
    );
    let named = named(&directory);
    let names: Vec<&str> = named
        .lines(&named.sample[0])
        .iter()
        .map(|line| line.0)
        .collect();
    assert_eq!(names, ["split.so+0x375"]);
    assert!(named.mapping[0].has_functions);
}

#[test]
fn without_files_the_profile_is_kept_and_its_modules_are_named() {
    let directory = Directory::new("symbolize-nothing");
    let profile = profile(&directory, BUILD_ID);
    let output = symbolize(&directory, &profile, &[], &[]);
    assert_eq!(
        reported(&output),
        format!("plimsoll: addresses without names: 1 in {LIBRARY} (build id {BUILD_ID})\n")
    );
    assert_unchanged(&directory, &profile);
}

#[test]
fn a_debug_file_of_another_build_is_refused_with_both_build_ids() {
    let directory = Directory::new("symbolize-other");
    let file = directory.file("split.so.debug", DEBUG);
    for (build_id, cause) in [
        (
            "abcd",
            format!("its build id {BUILD_ID} is of no mapping; that of {LIBRARY} is abcd"),
        ),
        (
            "",
            format!("its build id is {BUILD_ID}, but the mappings have no build ids"),
        ),
    ] {
        let profile = profile(&directory, build_id);
        let output = symbolize(&directory, &profile, &["--debug-file", &file], &[]);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{errors}");
        assert_eq!(errors, format!("plimsoll: {file}: {cause}\n"));
    }
}

#[test]
fn files_that_cannot_belong_to_a_module_are_refused() {
    let directory = Directory::new("symbolize-unusable");
    let profile = profile(&directory, BUILD_ID);
    let missing = directory.path("missing");
    let without_id = {
        let mut bytes = DEBUG.to_vec();
        let name = bytes.windows(4).position(|part| part == b"GNU\0").unwrap();
        bytes[name] = b'X';
        directory.file("without", &bytes)
    };
    for (file, cause) in [
        (missing, "No such file or directory (os error 2)"),
        (
            directory.file("empty", b""),
            "it is not an ELF file of 64 bits",
        ),
        (
            directory.file("text", b"text"),
            "it is not an ELF file of 64 bits",
        ),
        (
            directory.file("head", &DEBUG[..63]),
            "it is not an ELF file of 64 bits",
        ),
        (
            directory.0.to_str().unwrap().to_owned(),
            "it is not an ELF file of 64 bits",
        ),
        (
            without_id,
            "it has no build id, so it cannot be compared with the mappings",
        ),
    ] {
        let output = symbolize(&directory, &profile, &["--debug-file", &file], &[]);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(errors, format!("plimsoll: {file}: {cause}\n"));
    }
}

/// Damaged files have fewer names or none, and the command neither fails nor hangs.
#[test]
fn truncated_and_damaged_debug_files_lose_names_only() {
    let directory = Directory::new("symbolize-damaged");
    let profile = profile(&directory, BUILD_ID);
    let mut random = 88_172_645_463_325_252_u64;
    for round in 0..60 {
        let mut bytes = DEBUG.to_vec();
        if round < 20 {
            bytes.truncate(DEBUG.len() * (round + 1) / 21);
        } else {
            for _ in 0..20 {
                random ^= random << 13;
                random ^= random >> 7;
                random ^= random << 17;
                let at = (random >> 8) as usize % bytes.len();
                // The build id is kept, so that the file is read.
                if at > 0x200 {
                    bytes[at] = random as u8;
                }
            }
        }
        let file = directory.file("damaged", &bytes);
        let output = symbolize(&directory, &profile, &["--debug-file", &file], &[]);
        // A file that lost its build id is refused.
        assert!(matches!(output.status.code(), Some(0 | 1)), "{output:?}");
    }
}
