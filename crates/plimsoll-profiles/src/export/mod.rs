//! Profiles in the formats that Go's tools read, and metrics in the formats of Prometheus and
//! `expvar`.

pub mod dump;
pub mod json_frames;
mod labels;
mod page;
mod pprof;
pub mod profile;
pub mod prometheus;
mod text;
mod threads;
pub mod vars;

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use plimsoll_leaves::shown::addresses;
use plimsoll_symbolize::{Detail, Symbols};

use crate::profile::activity::Record;
use crate::profile::reading::{Reading, Stack, TextReading};
use crate::symbol;
use plimsoll_core::stack;
use plimsoll_process::file_size;
use plimsoll_sys::os::{filter, process_id};

pub use page::TextPage;
pub use profile::{fragmentation_page, threads_page};

/// The part of a profile to be written.
#[derive(Clone, Copy, Debug)]
pub struct Extent {
    /// The detail for each address.
    pub detail: Detail,
    /// Whether waits of idle threads are included.
    pub idle: bool,
}

/// Returns the binary format, compressed.
pub fn pprof(reading: &Reading, extent: Extent) -> Vec<u8> {
    plimsoll_pprof::compress(&uncompressed_pprof(reading, extent))
}

/// Returns the binary format, not compressed.
pub fn uncompressed_pprof(reading: &Reading, extent: Extent) -> Vec<u8> {
    let stacks = reading.samples.iter().map(|sample| sample.stack.frames());
    let symbols = symbol::resolve(&distinct(stacks), extent.detail);
    pprof::encode(reading, extent.idle, &symbols)
}

/// Returns the binary format of each reading with addresses only, neither compressed nor with a limit on
/// Plimsoll's memory meanwhile: for the end of a process, where both would cost more than they save.
pub fn plain_pprof<'a>(
    readings: impl Iterator<Item = &'a Reading> + Clone,
) -> impl Iterator<Item = Vec<u8>> {
    let symbols = located(readings.clone());
    readings.map(move |reading| pprof::encode(reading, false, &symbols))
}

/// Returns what [`plain_pprof`] returns, without the tables, and the tables, which all share.
pub fn sharing_pprof<'a>(
    readings: impl Iterator<Item = &'a Reading> + Clone,
) -> (Vec<Vec<u8>>, Vec<u8>) {
    let symbols = located(readings.clone());
    pprof::encode_sharing(readings, &symbols)
}

/// Returns the modules of all addresses of the readings.
fn located<'a>(readings: impl Iterator<Item = &'a Reading>) -> Symbols {
    let samples = readings.flat_map(|reading| &reading.samples);
    symbol::locate(&distinct(samples.map(|sample| sample.stack.frames())))
}

/// Returns the text format.
pub(crate) fn text(reading: TextReading, extent: Extent) -> TextPage {
    let stacks = reading.rows.iter().map(|row| row.stack.frames());
    let symbols = symbol::resolve(&distinct(stacks), extent.detail);
    TextPage::new(text::Rows {
        reading,
        idle: extent.idle,
        symbols,
    })
}

/// Returns all records separately, like Go's `debug=2`.
pub(crate) fn dump(records: Vec<Record>, detail: Detail) -> TextPage {
    let symbols = symbols(&records, detail);
    TextPage::new(dump::Records { records, symbols })
}

/// Resolves all addresses in records.
fn symbols(records: &[Record], detail: Detail) -> Symbols {
    let stacks = records.iter().flat_map(|record| &record.stacks);
    let creators = records.iter().filter_map(|record| record.creator?.stack());
    let stacks = stacks.map(Stack::frames).chain(creators);
    symbol::resolve(&distinct(stacks), detail)
}

/// Returns the addresses of stacks.
pub fn distinct<'a>(stacks: impl Iterator<Item = &'a [usize]>) -> Vec<usize> {
    addresses(stacks, stack::depth())
}

/// Replaces the file at `path` with `bytes`, through a temporary file beside it.
///
/// # Errors
/// The system's error, with the path. The previous file is then unchanged, and no temporary file
/// remains.
pub fn replace_file(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let named = |error: io::Error| {
        io::Error::new(
            error.kind(),
            format!("cannot write {}: {error}", path.display()),
        )
    };
    filter::check_writing().map_err(named)?;
    let (beside, mut file) = create_beside(path).map_err(named)?;
    let written = file_size::without_signal(|| file.write_all(bytes))
        .and_then(|()| file.sync_all())
        .and_then(|()| std::fs::rename(&beside, path));
    written.map_err(|error| {
        // If it cannot be removed, it stays: this call has already failed.
        let _ = std::fs::remove_file(&beside);
        named(error)
    })
}

/// Creates a file in the same directory. Existing names are skipped, such as a link planted by
/// another user or a remnant of a process with the same number. No two calls return the same file.
/// Only the user of this process can read it.
fn create_beside(path: &Path) -> io::Result<(PathBuf, File)> {
    static MADE: AtomicU64 = AtomicU64::new(0);
    let name = path
        .file_name()
        .ok_or_else(|| io::Error::other("the path has no file name"))?;
    let mut options = File::options();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    loop {
        let mut name = name.to_os_string();
        let made = MADE.fetch_add(1, Ordering::Relaxed);
        name.push(format!(".{}.{made}.part", process_id()));
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
                .contains("has no file name")
        );
    }
}
