//! `plimsoll symbolize`: adds names to a profile that was written without them.

mod debuginfod;

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use plimsoll_symbolize::offline::{DebugFiles, Unusable};

use debuginfod::Debuginfod;
use plimsoll_args::args::SymbolizeArguments;
use plimsoll_command::failure::Failure;
use plimsoll_command::files;
use plimsoll_command::input::add_names;
use plimsoll_command::plain_text::plain;
use plimsoll_command::profile::{HEAP, Mapping, Profile, read_url_or_file};

/// Reads the profile, adds names, and writes it. Reports addresses that remain without a name.
pub fn symbolize(arguments: &SymbolizeArguments) -> Result<ExitCode, Failure> {
    let mut profile = read_url_or_file(&arguments.profile, HEAP)?;
    let mut servers = Debuginfod::from_environment()?;
    {
        let mut files = DebugFiles::default();
        for file in &arguments.debug_files {
            add(&mut files, file, &profile)?;
        }
        if let Some(servers) = &mut servers {
            files.fetch_with(|build_id| servers.fetch(build_id));
        }
        add_names(&mut profile, &mut files);
    }
    let output = &arguments.output;
    files::create(output)
        .and_then(|mut file| file.write_all(&profile.to_bytes(|_| true)))
        .map_err(|error| Failure::new(output.display(), error))?;
    let failures = servers.into_iter().flat_map(Debuginfod::into_failures);
    for line in failures
        .map(|failure| failure.to_string())
        .chain(without_names(&profile))
    {
        // If standard error is closed, this cannot be reported; the profile is complete.
        let _ = writeln!(std::io::stderr(), "plimsoll: {line}");
    }
    Ok(ExitCode::SUCCESS)
}

/// Adds a file whose build id is that of a mapping.
fn add(files: &mut DebugFiles<'_>, file: &Path, profile: &Profile) -> Result<(), Failure> {
    let fail = |cause: &str| Failure::new(file.display(), cause);
    let build_id = match files.add(file) {
        Ok(build_id) => build_id,
        Err(Unusable::NotElf) => {
            return Err(match fs::metadata(file) {
                Ok(_) => fail("it is not an ELF file of 64 bits"),
                Err(error) => fail(&error.to_string()),
            });
        }
        Err(Unusable::NoBuildId) => {
            return Err(fail(
                "it has no build id, so it cannot be compared with the mappings",
            ));
        }
    };
    let build_id_of = |mapping: &Mapping| profile.string(mapping.build_id).to_owned();
    let mappings = profile.mappings();
    if mappings
        .iter()
        .any(|mapping| build_id_of(mapping) == build_id)
    {
        return Ok(());
    }
    // The mapping for which the file was probably meant: of the same name, or else the program.
    let name = |path: &str| {
        Path::new(path)
            .file_name()
            .map(|name| name.to_string_lossy().into_owned())
    };
    let stem = name(&file.to_string_lossy()).unwrap_or_default();
    let stem = stem.strip_suffix(".debug").unwrap_or(&stem);
    let with_id = || {
        mappings
            .iter()
            .filter(|mapping| !build_id_of(mapping).is_empty())
    };
    let meant =
        with_id().find(|mapping| name(profile.string(mapping.file)).as_deref() == Some(stem));
    Err(match meant.or_else(|| with_id().next()) {
        Some(mapping) => fail(&format!(
            "its build id {build_id} is of no mapping; that of {} is {}",
            profile.string(mapping.file),
            build_id_of(mapping)
        )),
        None => fail(&format!(
            "its build id is {build_id}, but the mappings have no build ids"
        )),
    })
}

/// Describes the addresses without names, by module.
fn without_names(profile: &Profile) -> Option<String> {
    let mut modules: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    for id in profile.location_ids() {
        let location = profile.location(id);
        let Some(mapping) = location.mapping.map(|id| profile.mapping(id)) else {
            continue;
        };
        if profile.is_nameless(id) && location.address != 0 {
            let key = (
                profile.string(mapping.file),
                profile.string(mapping.build_id),
            );
            *modules.entry(key).or_default() += 1;
        }
    }
    let total: usize = modules.values().sum();
    let modules = modules.iter().map(|((file, build_id), count)| {
        let build_id = match *build_id {
            "" => "no build id".to_owned(),
            build_id => format!("build id {build_id}"),
        };
        format!("{count} in {} ({build_id})", plain(file))
    });
    let modules: Vec<String> = modules.collect();
    (total > 0).then(|| format!("addresses without names: {}", modules.join(", ")))
}
