//! The token that clients present, if the pages require one.
//!
//! Clients send `Authorization: Bearer TOKEN`, or a password: `Authorization: Basic` with any user
//! name and the token as the password, so that browsers and `http://user:TOKEN@host/` work.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use subtle::ConstantTimeEq;

/// The prefix of a setting that names a file with the token.
const FILE: &str = "file:";

/// The length of the first line of that file that is read, in bytes.
const LONGEST_LINE: u64 = 16 << 10;

/// A token that clients must present. Its debug form does not show it.
#[derive(Clone)]
pub struct Token(String);

impl Token {
    /// Returns a token: the text, or the first line of the file that `file:PATH` names.
    ///
    /// # Errors
    /// The reason, if the token is empty, contains a character that a header cannot have, or its file
    /// cannot be read. Also if the text looks like a misspelt `file:PATH`: others can guess a path.
    pub fn new(text: &str) -> Result<Self, String> {
        let token = match text.strip_prefix(FILE) {
            Some(path) => first_line(path).map_err(|error| format!("the file {path}: {error}"))?,
            None if is_path(text) => {
                return Err("a token that looks like a path is not used; write file:PATH for the first line of a file".into());
            }
            None => text.to_owned(),
        };
        if token.is_empty() || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err("a token has one or more printable ASCII characters, and no spaces".into());
        }
        Ok(Self(token))
    }

    /// Reports whether one of the values of the header `Authorization` has the token. The time does
    /// not depend on how much of the token is right.
    pub fn is_among<'a>(&self, mut values: impl Iterator<Item = &'a str>) -> bool {
        values.any(|value| self.is_in(value))
    }

    /// Reports whether a text is the token. The time does not depend on how much of it is right.
    pub fn is(&self, text: &str) -> bool {
        self.0.as_bytes().ct_eq(text.as_bytes()).into()
    }

    /// Returns the token, to send it.
    pub fn reveal(&self) -> &str {
        &self.0
    }

    fn is_in(&self, value: &str) -> bool {
        let (scheme, credentials) = value.trim().split_once(' ').unwrap_or((value, ""));
        let credentials = credentials.trim();
        let presented = if scheme.eq_ignore_ascii_case("bearer") {
            credentials.as_bytes().to_vec()
        } else if scheme.eq_ignore_ascii_case("basic") {
            let decoded = STANDARD.decode(credentials).unwrap_or_default();
            let colon = decoded.iter().position(|&byte| byte == b':');
            colon.map_or_else(Vec::new, |colon| decoded[colon + 1..].to_vec())
        } else {
            return false;
        };
        self.0.as_bytes().ct_eq(&presented).into()
    }
}

/// Returns the first line of a regular file. A named pipe would block the program.
fn first_line(path: &str) -> io::Result<String> {
    let mut line = String::new();
    let mut options = File::options();
    options.read(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::custom_flags(&mut options, libc::O_NONBLOCK);
    let file = options.open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("not a regular file"));
    }
    let file = BufReader::new(file);
    file.take(LONGEST_LINE).read_line(&mut line)?;
    Ok(line.trim().to_owned())
}

/// Reports whether a text is the path of a file, or has a prefix like `file:/`.
fn is_path(text: &str) -> bool {
    let is_file = text.starts_with('/') && std::path::Path::new(text).exists();
    is_file || text.contains(":/")
}

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bearers_and_passwords_have_the_token() {
        let token = Token::new("s3cr3t:x").unwrap();
        for value in [
            "Bearer s3cr3t:x",
            "bearer   s3cr3t:x ",
            "Basic dXNlcjpzM2NyM3Q6eA==",
            "basic OnMzY3IzdDp4",
        ] {
            assert!(token.is_among([value].into_iter()), "{value}");
        }
        for value in [
            "",
            "Bearer",
            "Bearer ",
            "Bearer s3cr3t:",
            "Bearer s3cr3t:xx",
            "Bearer S3CR3T:X",
            "s3cr3t:x",
            "Digest s3cr3t:x",
            "Basic s3cr3t:x",
            "Basic !!!",
            "Basic czNjcjN0Ong=",
            "Basic dXNlcg==",
        ] {
            assert!(!token.is_among([value].into_iter()), "{value}");
        }
        assert!(!token.is_among(std::iter::empty()));
        assert_eq!(format!("{token:?}"), "Token");
    }

    #[test]
    fn tokens_are_printable_or_in_a_file() {
        for text in [
            "",
            "a b",
            "a\nb",
            "\u{e9}",
            "file:",
            "file:/nowhere/token",
            // A misspelt `file:`, which others could guess.
            "fil:/nowhere/token",
            "File:/nowhere/token",
            "file://nowhere/token",
            "/proc/self/status",
        ] {
            let error = Token::new(text).unwrap_err();
            assert!(!error.is_empty(), "{text:?}");
        }
        #[cfg(unix)]
        assert!(
            Token::new("file:/dev/zero")
                .unwrap_err()
                .contains("not a regular file")
        );
        let path = std::env::temp_dir().join(format!("plimsoll-token-{}", std::process::id()));
        std::fs::write(&path, "from-a-file\nrest\n").unwrap();
        let name = path.display();
        assert!(
            Token::new(&format!("{name}")).is_err(),
            "a path without file:"
        );
        let token = Token::new(&format!("file:{name}")).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert!(token.is_among(["Bearer from-a-file"].into_iter()));
    }
}
