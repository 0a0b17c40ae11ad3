//! Pyroscope's protocol: `POST /ingest`.
//!
//! The body is a form with the profile, without the parameter `format`: with `format=pprof`, the server
//! takes the whole body for a profile. The server names a series by the types of its first profile; for
//! block and mutex profiles, which have the same types, the form has names in `sample_type_config`.

use std::fmt::Write;

use super::multipart::{self, File};
use super::settings::{Content, Program, Protocol, Push};
use super::worker::Interval;
use plimsoll_profiles::cpu;

/// Returns a push to a Pyroscope server, as the application `name`: its `service_name`. `url` is the
/// address of the server, such as `http://pyroscope:4040`.
///
/// Names have the characters `a-z`, `A-Z`, `0-9`, `_`, `-`, `.` and `/`; names of labels only letters,
/// digits, `_` and `.`. Values of labels have neither commas nor braces that close.
pub fn pyroscope(url: impl Into<String>, name: impl Into<String>) -> Push {
    Push::new(Pyroscope, url.into(), name.into())
}

#[derive(Debug)]
struct Pyroscope;

impl Protocol for Pyroscope {
    fn check(&self, program: &Program) -> Result<(), String> {
        let all = |text: &str, others: &[u8]| {
            let mut bytes = text.bytes();
            !text.is_empty()
                && bytes.all(|byte| byte.is_ascii_alphanumeric() || others.contains(&byte))
        };
        if !all(&program.name, b"_.-/") {
            return Err(
                "the name is empty, or has a character other than a-z, A-Z, 0-9, _, -, ., /".into(),
            );
        }
        for (name, value) in &program.labels {
            if !all(name, b"_.") || name == "__name__" {
                return Err(format!("{name:?} is not the name of a label"));
            }
            if value.contains([',', '}']) || value.trim() != value || value.is_empty() {
                return Err(format!(
                    "the value {value:?} of the label {name} is empty, has a comma or a brace, or space around it"
                ));
            }
        }
        Ok(())
    }

    fn request(&self, program: &Program, interval: &Interval) -> Result<Content, String> {
        let profile = interval.pprof();
        let mut files = vec![File {
            field: "profile",
            name: "profile.pprof",
            content: &profile,
        }];
        let config = sample_type_config(interval.name);
        if let Some(config) = &config {
            files.push(File {
                field: "sample_type_config",
                name: "sample_type_config.json",
                content: config.as_bytes(),
            });
        }
        let (boundary, body) = multipart::encode(&files);
        let (from, until) = interval.nanoseconds();
        let rate = match cpu::rate() {
            0 => cpu::DEFAULT_RATE,
            rate => rate,
        };
        let mut path = String::from("/ingest?name=");
        escape(&mut path, &series(program));
        let rest = format!("&from={from}&until={until}&spyName=plimsoll&sampleRate={rate}");
        path.push_str(&rest);
        Ok(Content {
            path,
            headers: vec![(
                "Content-Type",
                format!("multipart/form-data; boundary={boundary}"),
            )],
            body,
        })
    }

    fn refusal(&self, _body: &[u8]) -> Option<String> {
        None
    }
}

/// Returns the name with its labels: `shop{region=eu}`. Of several values of a label, the last counts.
fn series(program: &Program) -> String {
    let labels = program.labels.iter();
    let labels: Vec<_> = labels
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    format!("{}{{{}}}", program.name, labels.join(","))
}

/// Returns the names of the types of a profile where the server would confuse them.
fn sample_type_config(profile: &str) -> Option<String> {
    let kind = match profile {
        "block" | "mutex" => profile,
        "goroutine" => {
            return Some(
                r#"{"goroutine":{"units":"goroutines","display-name":"goroutines","aggregation":"average"}}"#
                    .to_owned(),
            );
        }
        _ => return None,
    };
    Some(format!(
        r#"{{"contentions":{{"units":"lock_samples","display-name":"{kind}_count"}},"delay":{{"units":"lock_nanoseconds","display-name":"{kind}_duration"}}}}"#
    ))
}

/// Appends a value of a query.
fn escape(to: &mut String, value: &str) {
    for byte in value.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            to.push(char::from(byte));
        } else {
            // Writing to text cannot fail.
            let _ = write!(to, "%{byte:02X}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program(name: &str, labels: &[(&str, &str)]) -> Program {
        let labels = labels.iter();
        Program {
            name: name.into(),
            labels: labels
                .map(|(name, value)| ((*name).into(), (*value).into()))
                .collect(),
        }
    }

    #[test]
    fn names_that_the_server_refuses_are_refused() {
        let good = [("region", "eu west=1{"), ("a.b_C9", "\u{e9}")];
        Pyroscope.check(&program("shop/a-b.c_D9", &good)).unwrap();
        for name in ["", "a b", "a{b}", "\u{e9}", "a,b"] {
            assert!(Pyroscope.check(&program(name, &[])).is_err(), "{name}");
        }
        for label in [
            ("", "v"),
            ("a-b", "v"),
            ("__name__", "v"),
            ("a", "x,y"),
            ("a", "}"),
            ("a", ""),
            ("a", " v"),
        ] {
            assert!(
                Pyroscope.check(&program("shop", &[label])).is_err(),
                "{label:?}"
            );
        }
    }

    #[test]
    fn series_are_escaped() {
        let mut escaped = String::new();
        escape(
            &mut escaped,
            &series(&program("a/b", &[("region", "\u{e9} &"), ("x", "1")])),
        );
        assert_eq!(escaped, "a%2Fb%7Bregion%3D%C3%A9%20%26%2Cx%3D1%7D");
    }
}
