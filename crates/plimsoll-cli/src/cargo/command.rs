//! The command line and the environment of cargo.

use std::ffi::{OsStr, OsString};
use std::io;
use std::path::Path;
use std::process::Command;

use super::session::Session;
use plimsoll_args::args::{BuildArguments, CargoCommand, ProgramArguments, TargetArguments};
use plimsoll_command::failure::Failure;
use plimsoll_launch::run::FAILED;

/// Returns the failure of a cargo that cannot be executed.
pub(super) fn not_executed(cargo: &OsStr, error: &io::Error) -> Failure {
    let code = match error.kind() {
        io::ErrorKind::NotFound => 127,
        _ => 126,
    };
    Failure::new(Path::new(cargo).display(), error).with_code(code)
}

/// Returns the triple of the machine for which cargo builds by default.
pub(super) fn host(cargo: &OsStr) -> Result<String, Failure> {
    let output = Command::new(cargo)
        .arg("-vV")
        .output()
        .map_err(|error| not_executed(cargo, &error))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let host = text.lines().find_map(|line| line.strip_prefix("host: "));
    host.map(str::to_owned).ok_or_else(|| {
        let cause = "it does not print the line `host:` with -vV";
        Failure::new(Path::new(cargo).display(), cause).with_code(FAILED)
    })
}

/// Returns the profiles that cargo builds with.
pub(super) fn profiles(parsed: &CargoCommand) -> Vec<&str> {
    let build = parsed.build();
    match (&build.profile, parsed) {
        (Some(profile), _) => vec![profile],
        (None, _) if build.release => vec!["release"],
        (None, CargoCommand::Test(_)) => vec!["dev", "test"],
        // A bench's binaries are those of the profile `release`.
        (None, CargoCommand::Bench(_)) => vec!["release", "bench"],
        (None, CargoCommand::Run(_) | CargoCommand::Flame(_)) => vec!["release"],
    }
}

/// Returns the environment variables that set the debug information and the runner.
pub(super) fn variables(
    build: &BuildArguments,
    profiles: &[&str],
    host: &str,
    session: &Session,
) -> Vec<(String, OsString)> {
    let upper = |name: &str| name.to_uppercase().replace(['-', '.'], "_");
    let mut all = Vec::new();
    for profile in profiles {
        let profile = upper(profile);
        all.push((
            format!("CARGO_PROFILE_{profile}_DEBUG"),
            "line-tables-only".into(),
        ));
        all.push((format!("CARGO_PROFILE_{profile}_STRIP"), "none".into()));
    }
    let configured = std::env::var("CARGO_BUILD_TARGET").ok();
    let mut targets: Vec<&str> = build.target.iter().map(String::as_str).collect();
    targets.extend([host].into_iter().chain(configured.as_deref()));
    for target in targets {
        // A target may be the file of a specification.
        let target = Path::new(target)
            .file_name()
            .and_then(OsStr::to_str)
            .unwrap_or(target);
        let target = upper(target.strip_suffix(".json").unwrap_or(target));
        let name = format!("CARGO_TARGET_{target}_RUNNER");
        // Names that the environment cannot have are invalid targets, which cargo reports.
        if !name.contains(['=', '\0']) {
            all.push((name, session.runner()));
        }
    }
    all
}

/// Returns the arguments of cargo.
pub(super) fn words(parsed: &CargoCommand) -> Vec<OsString> {
    let mut words = Words(Vec::new());
    match parsed {
        CargoCommand::Run(arguments) => words.program(parsed, &arguments.program),
        CargoCommand::Flame(arguments) => words.program(parsed, &arguments.program),
        CargoCommand::Test(arguments) => words.targets("test", &arguments.targets),
        CargoCommand::Bench(arguments) => words.targets("bench", &arguments.targets),
    }
    words.build(parsed.build());
    words.0.push("--".into());
    words.0.extend_from_slice(parsed.arguments());
    words.0
}

/// Arguments of cargo.
struct Words(Vec<OsString>);

impl Words {
    /// Adds an option with its value. One word holds both, because the value may begin with a hyphen.
    fn value(&mut self, option: &str, value: impl AsRef<OsStr>) {
        let mut word = OsString::from(format!("{option}="));
        word.push(value);
        self.0.push(word);
    }

    fn values<T: AsRef<OsStr>>(&mut self, option: &str, values: impl IntoIterator<Item = T>) {
        for value in values {
            self.value(option, value);
        }
    }

    fn flag(&mut self, option: &str, is_set: bool) {
        if is_set {
            self.0.push(option.into());
        }
    }

    fn program(&mut self, parsed: &CargoCommand, program: &ProgramArguments) {
        self.0.push("run".into());
        let build = parsed.build();
        self.flag("--release", build.profile.is_none() && !build.release);
        self.values("--bin", &program.bin);
        self.values("--example", &program.example);
    }

    fn targets(&mut self, command: &str, targets: &TargetArguments) {
        self.0.push(command.into());
        for (option, is_set) in [
            ("--workspace", targets.workspace),
            ("--lib", targets.lib),
            ("--bins", targets.bins),
            ("--examples", targets.examples),
            ("--tests", targets.tests),
            ("--benches", targets.benches),
            ("--all-targets", targets.all_targets),
            ("--no-fail-fast", targets.no_fail_fast),
        ] {
            self.flag(option, is_set);
        }
        for (option, values) in [
            ("--exclude", &targets.exclude),
            ("--bin", &targets.bin),
            ("--example", &targets.example),
            ("--test", &targets.test),
            ("--bench", &targets.bench),
        ] {
            self.values(option, values);
        }
        self.0.extend(targets.name.iter().map(OsString::from));
    }

    fn build(&mut self, build: &BuildArguments) {
        for (option, is_set) in [
            ("--all-features", build.all_features),
            ("--no-default-features", build.no_default_features),
            // `cargo bench` refuses `--release`.
            ("--profile=release", build.release),
            ("--locked", build.locked),
            ("--offline", build.offline),
            ("--frozen", build.frozen),
        ] {
            self.flag(option, is_set);
        }
        for (option, values) in [
            ("--package", &build.package),
            ("--features", &build.features),
            ("--target", &build.target),
            ("--config", &build.config),
        ] {
            self.values(option, values);
        }
        self.values("--profile", &build.profile);
        self.values("--jobs", &build.jobs);
        self.values("--target-dir", &build.target_dir);
        self.values("--manifest-path", &build.manifest_path);
        for _ in 0..build.verbose {
            self.flag("--verbose", true);
        }
    }
}
