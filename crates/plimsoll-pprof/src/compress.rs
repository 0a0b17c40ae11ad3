//! Compression of profiles.

use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;

/// Compresses an encoded profile with gzip: fast rather than small, since most are read once.
pub fn compress(profile: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    let written = encoder.write_all(profile).and_then(|()| encoder.finish());
    written.expect("writing to memory cannot fail")
}
