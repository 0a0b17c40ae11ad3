//! The command line.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::path::PathBuf;

pub const USAGE: &str = "\
Runs programs in a small Lisp.

Usage: lisp [PROGRAM.lisp ...] [--seconds S]

  PROGRAM.lisp   programs to run; without any, those that come with it are run round and
                 round, and profiles are served at 127.0.0.1:6060
  --seconds S    ends running them after S seconds (default: with Ctrl-C)
  --help         this text
";

/// The parsed command line.
#[derive(Debug, PartialEq, Eq)]
pub enum Command {
    Run(Arguments),
    Help,
}

#[derive(Debug, Default, PartialEq, Eq)]
pub struct Arguments {
    pub programs: Vec<PathBuf>,
    pub seconds: Option<u32>,
}

impl Arguments {
    /// Parses the arguments after the program's name.
    pub fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<Command, Error> {
        let mut parsed = Self::default();
        let mut only_operands = false;
        let mut arguments = arguments.into_iter();
        while let Some(argument) = arguments.next() {
            if only_operands || !argument.as_encoded_bytes().starts_with(b"-") {
                parsed.programs.push(argument.into());
                continue;
            }
            match argument.to_str() {
                Some("--") => only_operands = true,
                Some("--help" | "-h") => return Ok(Command::Help),
                Some("--seconds") => {
                    let value = arguments.next().ok_or(Error::NoSeconds)?;
                    parsed.seconds = Some(seconds(&value)?);
                }
                _ => return Err(Error::Unknown(argument)),
            }
        }
        if parsed.seconds.is_some() && !parsed.programs.is_empty() {
            return Err(Error::SecondsOfPrograms);
        }
        Ok(Command::Run(parsed))
    }
}

fn seconds(value: &OsStr) -> Result<u32, Error> {
    let seconds = value.to_str().and_then(|text| text.parse().ok());
    seconds
        .filter(|&seconds| seconds > 0)
        .ok_or_else(|| Error::Seconds(value.to_owned()))
}

/// An invalid argument. Each is a mistake of the caller: exit code 2.
#[derive(Debug, PartialEq, Eq)]
pub enum Error {
    Unknown(OsString),
    NoSeconds,
    Seconds(OsString),
    SecondsOfPrograms,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown(argument) => {
                write!(f, "there is no option {argument:?}; --help lists them")
            }
            Self::NoSeconds => write!(f, "--seconds needs a value"),
            Self::Seconds(value) => write!(f, "--seconds {value:?} is not a whole number above 0"),
            Self::SecondsOfPrograms => write!(f, "--seconds is for running without programs"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(arguments: &[&str]) -> Result<Command, Error> {
        Arguments::parse(arguments.iter().map(OsString::from))
    }

    #[test]
    fn programs_are_taken_in_order() {
        let expected = Arguments {
            programs: vec!["a.lisp".into(), "--b".into()],
            seconds: None,
        };
        assert_eq!(parse(&["a.lisp", "--", "--b"]), Ok(Command::Run(expected)));
        assert_eq!(parse(&["a.lisp", "--help"]), Ok(Command::Help));
    }

    #[test]
    fn every_mistake_names_the_argument() {
        for (list, named) in [
            (&["--secnods", "3"][..], "\"--secnods\""),
            (&["--seconds"], "--seconds"),
            (&["--seconds", "0"], "--seconds \"0\""),
            (&["--seconds", "1.5"], "--seconds \"1.5\""),
            (&["--seconds", "3", "a.lisp"], "without programs"),
        ] {
            let message = parse(list).expect_err("a mistake").to_string();
            assert!(message.contains(named), "{list:?}: {message}");
        }
    }
}
