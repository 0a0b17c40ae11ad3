//! The token that clients present, if the pages require one.
//!
//! Clients send `Authorization: Bearer TOKEN`, or a password: `Authorization: Basic` with any user
//! name and the token as the password, so that browsers and `http://user:TOKEN@host/` work.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use subtle::ConstantTimeEq;

use super::access::Refused;

/// The prefix of a setting that names a file with the token.
const FILE: &str = "file:";

/// A token that clients must present. Its debug form does not show it.
#[derive(Clone)]
pub(crate) struct Token(String);

impl Token {
    /// Returns a token: the text, or the first line of the file that `file:PATH` names.
    ///
    /// # Errors
    /// The reason, if the token is empty, contains a character that a header cannot have, or its file
    /// cannot be read.
    pub(crate) fn new(text: &str) -> Result<Self, String> {
        let token = match text.strip_prefix(FILE) {
            None => text.to_owned(),
            Some(path) => {
                let content = std::fs::read_to_string(path);
                let content = content.map_err(|error| format!("the file {path}: {error}"))?;
                content.lines().next().unwrap_or_default().trim().to_owned()
            }
        };
        if token.is_empty() || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err("a token has one or more printable ASCII characters, and no spaces".into());
        }
        Ok(Self(token))
    }

    /// Checks the values of the header `Authorization`. The time does not depend on how much of the
    /// token is right.
    ///
    /// # Errors
    /// 401 without the token.
    pub(super) fn check<'a>(
        &self,
        mut values: impl Iterator<Item = &'a str>,
    ) -> Result<(), Refused> {
        if values.any(|value| self.is_in(value)) {
            return Ok(());
        }
        let text =
            "Unauthorized: send the token of the setting http_token, as bearer token or password";
        Err((401, text.into()))
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
            assert_eq!(token.check([value].into_iter()), Ok(()), "{value}");
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
            let refused = token.check([value].into_iter());
            assert_eq!(refused.map_err(|refused| refused.0), Err(401), "{value}");
        }
        assert!(token.check(std::iter::empty()).is_err());
        assert_eq!(format!("{token:?}"), "Token");
    }

    #[test]
    fn tokens_are_printable_or_in_a_file() {
        for text in ["", "a b", "a\nb", "\u{e9}", "file:/nowhere/token"] {
            let error = Token::new(text).unwrap_err();
            assert!(!error.is_empty(), "{text:?}");
        }
        let path = std::env::temp_dir().join(format!("plimsoll-token-{}", std::process::id()));
        std::fs::write(&path, "from-a-file\nrest\n").unwrap();
        let token = Token::new(&format!("file:{}", path.display())).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert_eq!(token.check(["Bearer from-a-file"].into_iter()), Ok(()));
    }
}
