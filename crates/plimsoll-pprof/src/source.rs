//! Recognizes the format of the input and limits its size.

use std::io::{self, BufReader, Read};

use crate::error::Error;
use crate::limits::Limits;
use crate::profile::Profile;
use crate::{gunzip, jemalloc, proto};

/// Reads a profile from bytes: compressed or not, in pprof's or jemalloc's format.
///
/// # Errors
/// If the bytes are not a profile, are malformed, or exceed the limits.
pub fn parse(bytes: &[u8], limits: Limits) -> Result<Profile, Error> {
    read(bytes, limits)
}

/// Reads a profile from a reader, as [`parse`] does. A second thread decompresses compressed input.
///
/// # Errors
/// If reading fails, or if the input is not a profile, is malformed, or exceeds the limits.
pub fn read(from: impl Read + Send, limits: Limits) -> Result<Profile, Error> {
    let (head, from) = peek(from)?;
    if !head.starts_with(GZIP) {
        return read_plain(&head, from, limits);
    }
    let from = BufReader::with_capacity(256 << 10, from);
    gunzip::while_reading(from, |from| {
        let (head, from) = peek(from)?;
        read_plain(&head, from, limits)
    })
}

/// The first bytes of gzip's format.
const GZIP: &[u8] = &[0x1f, 0x8b];

fn read_plain(head: &[u8], from: impl Read, limits: Limits) -> Result<Profile, Error> {
    if head.is_empty() {
        return Err(Error::NotAProfile("the input is empty".to_owned()));
    }
    let from = Bounded {
        from,
        left: limits.read_bytes,
    };
    if head.starts_with(jemalloc::BEGINNING) {
        return jemalloc::read(BufReader::with_capacity(64 << 10, from), limits);
    }
    for (beginning, what) in OTHERS {
        if head.starts_with(beginning) {
            return Err(Error::NotAProfile((*what).to_owned()));
        }
    }
    proto::read(from, limits)
}

/// Reads the first 32 bytes, which identify the format. Returns them, and a reader of the whole
/// input.
fn peek<R: Read>(mut from: R) -> io::Result<(Vec<u8>, impl Read + use<R>)> {
    let mut head = Vec::new();
    (&mut from).take(32).read_to_end(&mut head)?;
    Ok((head.clone(), io::Cursor::new(head).chain(from)))
}

/// Beginnings of files that are often mistaken for profiles. No profile begins in this way.
const OTHERS: &[(&[u8], &str)] = &[
    (GZIP, "the input is compressed twice"),
    (
        b"heap profile:",
        "a profile in text form; fetch it without debug=1",
    ),
    (
        b"goroutine profile:",
        "a profile in text form; fetch it without debug=1",
    ),
    (
        b"plimpost",
        "a post-mortem file; give the file by its name, because it is sparse",
    ),
    (b"<", "a web page"),
    (b"\x7fELF", "a program or a library"),
    (b"PK", "a zip archive"),
    (
        b"\x28\xb5\x2f\xfd",
        "compressed by zstd; decompress it first",
    ),
];

/// A reader that fails after a number of bytes.
struct Bounded<R> {
    from: R,
    left: u64,
}

impl<R: Read> Read for Bounded<R> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let read = self.from.read(to)?;
        self.left = self
            .left
            .checked_sub(read as u64)
            .ok_or_else(|| io::Error::other("the profile is too large when decompressed"))?;
        Ok(read)
    }
}
