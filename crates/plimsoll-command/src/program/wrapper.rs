//! Shell scripts that end by executing a program in their place.

use std::ffi::OsString;
use std::io::Read;
use std::os::unix::ffi::OsStringExt;
use std::path::Path;

use super::find;

const SHELLS: [&str; 7] = ["sh", "ash", "bash", "busybox", "dash", "ksh", "zsh"];

/// The maximum number of bytes of a script that are read.
const MAX_SCRIPT: u64 = 64 << 10;

/// Returns whether the file is a shell, by its name.
pub(super) fn is_shell(file: &Path) -> bool {
    let resolved = file.canonicalize();
    let names = [Some(file), resolved.as_deref().ok()];
    names.into_iter().flatten().any(|file| {
        let name = file.file_name().unwrap_or_default();
        SHELLS.iter().any(|shell| name == *shell)
    })
}

/// Returns the command of the last `exec` in a shell script; `None` without one, or if the command
/// depends on expansions of the shell.
pub(super) fn executed_by(script: &Path) -> Option<OsString> {
    let mut text = Vec::new();
    let file = find::open(script).ok()?;
    if !file.metadata().ok()?.is_file() {
        return None;
    }
    file.take(MAX_SCRIPT).read_to_end(&mut text).ok()?;
    let lines = text.split(|&byte| byte == b'\n');
    let last = lines.filter_map(command_of_exec).next_back()?;
    plain(last).map(OsString::from_vec)
}

/// Returns the first word after `exec` if it is a command and not a redirection.
fn command_of_exec(line: &[u8]) -> Option<&[u8]> {
    let rest = line.trim_ascii().strip_prefix(b"exec")?;
    if !rest.first()?.is_ascii_whitespace() {
        return None;
    }
    let rest = rest.trim_ascii_start();
    let (quote, rest) = match rest.split_first()? {
        (quote @ (b'"' | b'\''), rest) => (Some(quote), rest),
        _ => (None, rest),
    };
    let ends = |byte: &u8| match quote {
        Some(quote) => byte == quote,
        None => byte.is_ascii_whitespace() || *byte == b';',
    };
    let word = rest.split(ends).next()?;
    let is_redirection = quote.is_none() && word.iter().any(|byte| b"<>".contains(byte));
    (!word.is_empty() && !is_redirection).then_some(word)
}

/// Returns a word if the shell expands nothing in it.
fn plain(word: &[u8]) -> Option<Vec<u8>> {
    let is_special = |byte: &u8| b"$`\\\"'*?[~(){}&|=".contains(byte);
    (word[0] != b'-' && !word.iter().any(is_special)).then(|| word.to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_those_that_are_written_out() {
        let command = |line: &str| {
            let command = command_of_exec(line.as_bytes())?;
            Some(String::from_utf8(plain(command)?).unwrap())
        };
        for (line, expected) in [
            ("exec /bin/cat \"$@\"", Some("/bin/cat")),
            ("\texec  cat;", Some("cat")),
            ("exec '/a b/c' x", Some("/a b/c")),
            ("exec \"/a/b\"", Some("/a/b")),
            ("exec 3>&1", None),
            ("exec >log", None),
            ("exec \"$0.real\"", None),
            ("exec -a name cat", None),
            ("exec A=b cat", None),
            ("exec", None),
            ("exec ", None),
            ("executes it", None),
            ("# exec cat", None),
        ] {
            assert_eq!(command(line).as_deref(), expected, "{line}");
        }
    }
}
