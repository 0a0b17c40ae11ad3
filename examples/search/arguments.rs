//! The command line.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::path::PathBuf;

pub const USAGE: &str = "\
Serves a search over the text files of a directory, with its profiles.

Usage: search [DIR] [--listen ADDR] [--load N] [--leak N] [--seconds S]

  DIR            the directory to index (default: the current one)
  --listen ADDR  host and port to serve at (default: 127.0.0.1:8080; port 0 takes a free one)
  --load N       clients that send requests all the time, 0 to 1000 (default: 4)
  --leak N       bytes that each request leaks, up to 1000000 (default: 0)
  --seconds S    ends after S seconds (default: with Ctrl-C)
  --help         this text
";

const MAX_LOAD: usize = 1000;
const MAX_LEAK: usize = 1_000_000;

/// The parsed command line.
#[derive(Debug, PartialEq, Eq)]
pub enum Command {
    Search(Arguments),
    Help,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arguments {
    pub root: PathBuf,
    /// `HOST:PORT`; the host is not resolved yet.
    pub listen: String,
    /// The number of clients of the load generator.
    pub load: usize,
    /// The number of bytes that each request leaks, to be found by the profiles.
    pub leak: usize,
    pub seconds: Option<u32>,
}

impl Default for Arguments {
    fn default() -> Self {
        Self {
            root: PathBuf::from("."),
            listen: "127.0.0.1:8080".to_owned(),
            load: 4,
            leak: 0,
            seconds: None,
        }
    }
}

impl Arguments {
    /// Parses the arguments after the program's name. A value may follow its option, or be part of
    /// it after `=`.
    pub fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<Command, Error> {
        let mut parsed = Self::default();
        let mut root = None;
        let mut only_operands = false;
        let mut arguments = arguments.into_iter();
        while let Some(argument) = arguments.next() {
            if only_operands || !argument.as_encoded_bytes().starts_with(b"-") {
                if root.is_some() {
                    return Err(Error::SecondDirectory(argument));
                }
                if argument.is_empty() {
                    return Err(Error::EmptyDirectory);
                }
                root = Some(PathBuf::from(argument));
                continue;
            }
            let Some(text) = argument.to_str() else {
                return Err(Error::Unknown(argument));
            };
            let (option, inline) = match text.split_once('=') {
                Some((option, value)) => (option, Some(value)),
                None => (text, None),
            };
            let mut value = |option| match inline {
                Some(value) => Ok(OsString::from(value)),
                None => arguments.next().ok_or(Error::NoValue(option)),
            };
            match option {
                "--" if inline.is_none() => only_operands = true,
                "--help" | "-h" if inline.is_none() => return Ok(Command::Help),
                "--listen" => parsed.listen = listen(&value("--listen")?)?,
                "--load" => parsed.load = load(&value("--load")?)?,
                "--leak" => parsed.leak = leak(&value("--leak")?)?,
                "--seconds" => parsed.seconds = Some(seconds(&value("--seconds")?)?),
                _ => return Err(Error::Unknown(argument)),
            }
        }
        if let Some(root) = root {
            parsed.root = root;
        }
        Ok(Command::Search(parsed))
    }
}

fn listen(value: &OsStr) -> Result<String, Error> {
    let error = || Error::Listen(value.to_owned());
    let text = value.to_str().ok_or_else(error)?;
    let (host, port) = text.rsplit_once(':').ok_or_else(error)?;
    let bare = host
        .strip_prefix('[')
        .and_then(|host| host.strip_suffix(']'));
    let host_is_one = match bare {
        Some(address) => address.parse::<std::net::Ipv6Addr>().is_ok(),
        None => {
            !host.is_empty()
                && host
                    .bytes()
                    .all(|byte| byte.is_ascii_alphanumeric() || b".-_".contains(&byte))
        }
    };
    let port_is_one = port.bytes().all(|byte| byte.is_ascii_digit()) && port.parse::<u16>().is_ok();
    if host_is_one && port_is_one {
        Ok(text.to_owned())
    } else {
        Err(error())
    }
}

fn load(value: &OsStr) -> Result<usize, Error> {
    let load = value.to_str().and_then(|text| text.parse().ok());
    load.filter(|&load| load <= MAX_LOAD)
        .ok_or_else(|| Error::Load(value.to_owned()))
}

fn leak(value: &OsStr) -> Result<usize, Error> {
    let leak = value.to_str().and_then(|text| text.parse().ok());
    leak.filter(|&leak| leak <= MAX_LEAK)
        .ok_or_else(|| Error::Leak(value.to_owned()))
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
    NoValue(&'static str),
    EmptyDirectory,
    SecondDirectory(OsString),
    Listen(OsString),
    Load(OsString),
    Leak(OsString),
    Seconds(OsString),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown(argument) => {
                write!(f, "there is no option {argument:?}; --help lists them")
            }
            Self::NoValue(option) => write!(f, "{option} needs a value"),
            Self::EmptyDirectory => write!(f, "the directory \"\" has no name"),
            Self::SecondDirectory(argument) => write!(
                f,
                "only one directory can be indexed, {argument:?} is a second"
            ),
            Self::Listen(value) => write!(
                f,
                "--listen {value:?} is not HOST:PORT, as in 127.0.0.1:8080"
            ),
            Self::Load(value) => write!(f, "--load {value:?} is not a number from 0 to {MAX_LOAD}"),
            Self::Leak(value) => write!(f, "--leak {value:?} is not a number from 0 to {MAX_LEAK}"),
            Self::Seconds(value) => write!(f, "--seconds {value:?} is not a whole number above 0"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(arguments: &[&str]) -> Result<Command, Error> {
        Arguments::parse(arguments.iter().map(OsString::from))
    }

    fn arguments(list: &[&str]) -> Arguments {
        match parse(list) {
            Ok(Command::Search(arguments)) => arguments,
            other => panic!("{list:?} gives {other:?}"),
        }
    }

    #[test]
    fn the_current_directory_is_served_under_load_by_default() {
        let expected = Arguments {
            root: ".".into(),
            listen: "127.0.0.1:8080".to_owned(),
            load: 4,
            leak: 0,
            seconds: None,
        };
        assert_eq!(arguments(&[]), expected);
    }

    #[test]
    fn options_and_directory_come_in_any_order_and_either_spelling() {
        let expected = Arguments {
            root: "src".into(),
            listen: "[::1]:0".to_owned(),
            load: 0,
            leak: 9,
            seconds: Some(5),
        };
        assert_eq!(
            arguments(&[
                "src",
                "--listen",
                "[::1]:0",
                "--load",
                "0",
                "--leak",
                "9",
                "--seconds",
                "5"
            ]),
            expected
        );
        assert_eq!(
            arguments(&[
                "--listen=[::1]:0",
                "--load=0",
                "src",
                "--leak=9",
                "--seconds=5"
            ]),
            expected
        );
        assert_eq!(
            arguments(&[
                "--listen=[::1]:0",
                "--load=0",
                "--leak=9",
                "--seconds=5",
                "--",
                "src"
            ]),
            expected
        );
        assert_eq!(arguments(&["--", "--load"]).root, PathBuf::from("--load"));
        assert_eq!(
            arguments(&["--listen", "localhost:80"]).listen,
            "localhost:80"
        );
    }

    #[test]
    fn help_is_found_before_later_mistakes() {
        assert_eq!(parse(&["src", "--help", "--nonsense"]), Ok(Command::Help));
        assert_eq!(parse(&["-h"]), Ok(Command::Help));
    }

    #[test]
    fn every_mistake_names_the_argument() {
        let cases: &[(&[&str], &str)] = &[
            (&["--laod", "3"], "\"--laod\""),
            (&["-x"], "\"-x\""),
            (&["--help=me"], "\"--help=me\""),
            (&["--load"], "--load"),
            (&["--seconds"], "--seconds"),
            (&["a", "second"], "\"second\""),
            (&[""], "\"\""),
            (&["--load", "many"], "--load \"many\""),
            (&["--leak=-1"], "--leak \"-1\""),
            (&["--leak", "1000001"], "--leak \"1000001\""),
            (&["--load=-1"], "--load \"-1\""),
            (&["--load=1001"], "--load \"1001\""),
            (&["--seconds", "0"], "--seconds \"0\""),
            (&["--seconds", "1.5"], "--seconds \"1.5\""),
            (&["--seconds", "99999999999"], "--seconds \"99999999999\""),
            (&["--listen", "8080"], "--listen \"8080\""),
            (&["--listen", ":8080"], "--listen \":8080\""),
            (
                &["--listen", "127.0.0.1:65536"],
                "--listen \"127.0.0.1:65536\"",
            ),
            (&["--listen", "127.0.0.1:+80"], "--listen \"127.0.0.1:+80\""),
            (&["--listen", "127.0.0.1:"], "--listen \"127.0.0.1:\""),
            (&["--listen", "::1:80"], "--listen \"::1:80\""),
            (&["--listen", "[nonsense]:80"], "--listen \"[nonsense]:80\""),
            (&["--listen="], "--listen \"\""),
        ];
        for (list, named) in cases {
            let message = parse(list)
                .expect_err(&format!("{list:?} is a mistake"))
                .to_string();
            assert!(message.contains(named), "{list:?}: {message}");
            assert_eq!(message.lines().count(), 1, "{message}");
        }
    }

    #[test]
    #[cfg(unix)]
    fn a_directory_need_not_be_utf_8_but_a_value_must() {
        use std::os::unix::ffi::OsStringExt;
        let odd = OsString::from_vec(b"caf\xe9".to_vec());
        let parsed = Arguments::parse([odd.clone()]);
        assert_eq!(
            parsed,
            Ok(Command::Search(Arguments {
                root: odd.clone().into(),
                ..Arguments::default()
            }))
        );
        assert_eq!(
            Arguments::parse(["--load".into(), odd.clone()]),
            Err(Error::Load(odd))
        );
    }
}
