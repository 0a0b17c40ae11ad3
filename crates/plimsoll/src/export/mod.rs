//! Profiles in the formats that Go's tools read, and numbers in those of Prometheus and of
//! `expvar`.

mod dump;
pub(crate) mod json;
mod labels;
mod page;
mod pprof;
pub(crate) mod prometheus;
mod proto;
mod shown;
mod text;
pub(crate) mod vars;

use std::collections::HashSet;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use flate2::Compression;
use flate2::write::GzEncoder;

use crate::profile::activity::Record;
use crate::profile::reading::{Reading, Stack, TextReading};
use crate::symbol::{self, Detail};

pub(crate) use page::TextPage;

/// What of a profile is written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Extent {
    /// How much about each address.
    pub(crate) detail: Detail,
    /// Whether waits of threads that have nothing to do are in it.
    pub(crate) idle: bool,
}

/// The binary format, compressed.
pub(crate) fn pprof(reading: &Reading, extent: Extent) -> Vec<u8> {
    let stacks = reading.samples.iter().map(|sample| sample.stack.frames());
    let symbols = symbol::resolve(&distinct(stacks), extent.detail);
    gzip(&pprof::encode(reading, extent.idle, &symbols))
}

/// The binary format, not compressed, of a reading of another process with its names.
#[cfg(feature = "offline")]
pub(crate) fn pprof_of_other(reading: &Reading, symbols: &symbol::Symbols) -> Vec<u8> {
    pprof::encode(reading, true, symbols)
}

/// The text format.
pub(crate) fn text(reading: TextReading, extent: Extent) -> TextPage {
    let stacks = reading.rows.iter().map(|row| row.stack.frames());
    let symbols = symbol::resolve(&distinct(stacks), extent.detail);
    TextPage::new(text::Rows {
        reading,
        idle: extent.idle,
        symbols,
    })
}

/// Every record by itself, as Go's `debug=2` has it.
pub(crate) fn dump(records: Vec<Record>, detail: Detail) -> TextPage {
    let stacks = records.iter().flat_map(|record| &record.stacks);
    let creators = records.iter().filter_map(|record| record.creator?.stack());
    let stacks = stacks.map(Stack::frames).chain(creators);
    let symbols = symbol::resolve(&distinct(stacks), detail);
    TextPage::new(dump::Records { records, symbols })
}

/// Each address of the stacks once: stacks have most of theirs in common.
fn distinct<'a>(stacks: impl Iterator<Item = &'a [usize]>) -> Vec<usize> {
    let addresses: HashSet<usize> = stacks.flatten().copied().collect();
    addresses.into_iter().collect()
}

/// Fast rather than small: profiles are mostly read once.
fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    let written = encoder.write_all(bytes).and_then(|()| encoder.finish());
    written.expect("writing to memory cannot fail")
}

/// Puts `bytes` in the place of the file at `path`, through a file beside it.
///
/// # Errors
/// What the system says, with the path. What was there before is then still there, and nothing is
/// left beside it.
pub(crate) fn replace_file(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let named = |error: io::Error| {
        io::Error::new(
            error.kind(),
            format!("cannot write {}: {error}", path.display()),
        )
    };
    let (beside, mut file) = create_beside(path).map_err(named)?;
    let written = file
        .write_all(bytes)
        .and_then(|()| file.sync_all())
        .and_then(|()| std::fs::rename(&beside, path));
    written.map_err(|error| {
        // There is nothing to be done about it if it stays.
        let _ = std::fs::remove_file(&beside);
        named(error)
    })
}

/// A new file in the same directory. What has its name already, be it a link that somebody else
/// made or a rest of a process with the same number, is passed over; and no two calls get the same.
/// Only the user of this process can read it.
fn create_beside(path: &Path) -> io::Result<(PathBuf, File)> {
    static MADE: AtomicU64 = AtomicU64::new(0);
    let name = path
        .file_name()
        .ok_or_else(|| io::Error::other("it names no file"))?;
    let mut options = File::options();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    loop {
        let mut name = name.to_os_string();
        let made = MADE.fetch_add(1, Ordering::Relaxed);
        name.push(format!(".{}.{made}.part", std::process::id()));
        let beside = path.with_file_name(name);
        match options.open(&beside) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            result => return result.map(|file| (beside, file)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_whole_or_not_at_all() {
        let dir = std::env::temp_dir().join(format!("plimsoll-replace-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let path = dir.join("heap.pb.gz");
        replace_file(&path, b"first").unwrap();
        replace_file(&path, b"second").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"second");
        assert_eq!(
            std::fs::read_dir(&dir).unwrap().count(),
            1,
            "nothing is left beside it"
        );
        std::fs::remove_dir_all(&dir).unwrap();
    }

    #[cfg(unix)]
    #[test]
    fn a_file_is_private_and_a_planted_link_is_not_followed() {
        use std::os::unix::fs::{PermissionsExt, symlink};
        let dir = std::env::temp_dir().join(format!("plimsoll-planted-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let (path, victim) = (dir.join("heap.pb.gz"), dir.join("victim"));
        std::fs::write(&victim, "precious").unwrap();
        symlink(&victim, &path).unwrap();
        replace_file(&path, b"profile").unwrap();
        assert_eq!(std::fs::read(&victim).unwrap(), b"precious");
        let written = std::fs::symlink_metadata(&path).unwrap();
        assert!(written.is_file());
        assert_eq!(written.permissions().mode() & 0o777, 0o600);
        std::fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn errors_name_the_file_and_the_cause() {
        let error = replace_file(Path::new("/no/such/dir/heap.pb.gz"), b"").unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
        assert!(
            error
                .to_string()
                .starts_with("cannot write /no/such/dir/heap.pb.gz: No such file"),
            "{error}"
        );
        assert!(
            replace_file(Path::new("/"), b"")
                .unwrap_err()
                .to_string()
                .contains("names no file")
        );
    }
}
