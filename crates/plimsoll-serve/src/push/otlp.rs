//! OTLP over HTTP: `POST /v1development/profiles`.

use plimsoll_pprof::{Limits, compress, parse, varint};

use super::settings::{Content, Program, Protocol, Push};
use super::worker::Interval;

/// Returns a push to a collector of OpenTelemetry, as the service `name`: its `service.name`. `url` is
/// the address of the collector's receiver for OTLP over HTTP, such as `http://collector:4318`.
///
/// Requests have the form of version 1.10.0 of the protocol, in which profiles are in development:
/// another version may not be compatible.
pub fn otlp(url: impl Into<String>, name: impl Into<String>) -> Push {
    Push::new(Otlp, url.into(), name.into())
}

#[derive(Debug)]
struct Otlp;

impl Protocol for Otlp {
    fn check(&self, program: &Program) -> Result<(), String> {
        let names = program.labels.iter().map(|(name, _)| name);
        match [&program.name]
            .into_iter()
            .chain(names)
            .any(String::is_empty)
        {
            true => Err("it is empty".into()),
            false => Ok(()),
        }
    }

    fn request(&self, program: &Program, interval: &Interval) -> Result<Content, String> {
        let labels = program.labels.iter();
        let labels = labels.map(|(name, value)| (name.as_str(), value.as_str()));
        // A label of the program replaces an attribute of the same name: the first counts.
        let attributes = labels.chain([
            ("service.name", program.name.as_str()),
            ("telemetry.sdk.name", "plimsoll"),
            ("telemetry.sdk.language", "rust"),
            ("telemetry.sdk.version", env!("CARGO_PKG_VERSION")),
        ]);
        let mut request = plimsoll_otlp::Request::new(attributes);
        let profile = parse(&interval.uncompressed_pprof(), Limits::default());
        request.add(&profile.map_err(|error| error.to_string())?);
        Ok(Content {
            path: "/v1development/profiles".into(),
            headers: vec![
                ("Content-Type", "application/x-protobuf".into()),
                ("Content-Encoding", "gzip".into()),
            ],
            body: compress(&request.finish()),
        })
    }

    fn refusal(&self, body: &[u8]) -> Option<String> {
        let partial_success = field(body, 1)?.1;
        match field(partial_success, 1) {
            Some((rejected, _)) if rejected > 0 => {
                let reason = field(partial_success, 2).map_or(&[][..], |(_, text)| text);
                Some(format!(
                    "{rejected} rejected: {}",
                    String::from_utf8_lossy(reason)
                ))
            }
            _ => None,
        }
    }
}

/// Returns the last field with that number of a message: its number, or 0, and its bytes. `None` if the
/// message has no such field, or is malformed before it.
fn field(mut message: &[u8], wanted: u64) -> Option<(u64, &[u8])> {
    let mut found = None;
    while let Some(key) = varint::take(&mut message) {
        let value = match key & 7 {
            0 => (varint::take(&mut message)?, &[][..]),
            2 => {
                let length = varint::take(&mut message)?;
                let (bytes, rest) = message.split_at_checked(usize::try_from(length).ok()?)?;
                message = rest;
                (0, bytes)
            }
            _ => return found,
        };
        if key >> 3 == wanted {
            found = Some(value);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_partial_success_is_a_refusal_if_profiles_were_rejected() {
        let refused = b"\x0a\x09\x08\x02\x12\x05no..\n";
        assert_eq!(Otlp.refusal(refused).as_deref(), Some("2 rejected: no..\n"));
        // Only a warning, an empty answer, and answers that are none.
        for accepted in [
            &b"\x0a\x04\x12\x02no"[..],
            b"",
            b"\x0a\0",
            b"{}",
            b"\x0a\xff",
            b"\xff\xff\xff",
        ] {
            assert_eq!(Otlp.refusal(accepted), None, "{accepted:?}");
        }
    }
}
