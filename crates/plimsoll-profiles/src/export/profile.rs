//! Writes profiles and snapshots in their formats.

use std::io::{self, Write};
use std::path::Path;

use plimsoll_symbolize::Detail;

use super::{Extent, TextPage, dump, pprof, replace_file, text};
use crate::profile;
use crate::profile::delta::difference;
use crate::profile::reading::Reading;
use crate::profile::snapshot::Snapshot;
use crate::profile::{Format, Profile, cpu, wall};
use plimsoll_core::{internal_heap, internal_scope, overhead, stack};
use plimsoll_stats::stats::space::Unavailable;

impl Profile {
    /// Writes the profile of everything up to now, without stopping the program. Most of the time
    /// is spent on resolving names, on the calling thread: some tenths of a second for a large
    /// program. The memory for this is Plimsoll's own.
    ///
    /// # Errors
    /// The first error of `writer`, unchanged.
    pub fn write_to(&self, writer: &mut dyn Write, format: Format) -> io::Result<()> {
        self.write_with(writer, format, Detail::Full)
    }

    /// Writes the profile like [`Profile::write_to`], with a choice of the detail for each address.
    ///
    /// # Errors
    /// The first error of `writer`, unchanged.
    pub fn write_with(
        &self,
        writer: &mut dyn Write,
        format: Format,
        detail: Detail,
    ) -> io::Result<()> {
        // The writer and its allocations are the program's: it is called outside the scope.
        let bytes = self.bytes(format, detail);
        let result = writer.write_all(&bytes);
        release(bytes);
        result
    }

    /// Writes the profile to a file. It first writes a temporary file beside it, which then
    /// replaces the file, so that the file never holds an incomplete profile.
    ///
    /// # Errors
    /// The system's error, with the path.
    pub fn write_to_file(&self, path: impl AsRef<Path>, format: Format) -> io::Result<()> {
        self.write_to_file_with(path, format, Detail::Full)
    }

    /// Writes the profile like [`Profile::write_to_file`], with a choice of the detail for each
    /// address.
    ///
    /// # Errors
    /// The system's error, with the path.
    pub fn write_to_file_with(
        &self,
        path: impl AsRef<Path>,
        format: Format,
        detail: Detail,
    ) -> io::Result<()> {
        let bytes = self.bytes(format, detail);
        let result = replace_file(path.as_ref(), &bytes);
        release(bytes);
        result
    }

    fn text(&self, detail: Detail) -> TextPage {
        text(self.source.read_text(), self.extent(detail))
    }

    fn dump(&self, detail: Detail) -> TextPage {
        match self.source.read_each() {
            Some(records) => dump(records, detail),
            None => self.text(detail),
        }
    }

    fn extent(&self, detail: Detail) -> Extent {
        Extent {
            detail,
            idle: self.idle,
        }
    }
}

/// The formats of a profile, for the crates of Plimsoll above this one. The methods of [`Profile`] itself are those that
/// programs use.
pub trait Formatted {
    /// Returns the profile of everything up to now.
    fn bytes(&self, format: Format, detail: Detail) -> Vec<u8>;

    /// Returns the profile of everything up to now, to be formatted in parts: [`Format::Dump`] if `each`, else
    /// [`Format::Text`].
    fn page(&self, each: bool) -> TextPage;

    /// Returns the changes since `earlier`, an earlier reading.
    fn bytes_since(&self, earlier: &Reading) -> Vec<u8>;
}

impl Formatted for Profile {
    fn bytes(&self, format: Format, detail: Detail) -> Vec<u8> {
        let (_own, _time) = (internal_scope::scope(), overhead::measure());
        stack::refresh_modules();
        let bytes = match format {
            Format::Pprof => pprof(&self.source.read(), self.extent(detail)),
            Format::Text => self.text(detail).into_bytes(),
            Format::Dump => self.dump(detail).into_bytes(),
        };
        internal_heap::trim();
        bytes
    }

    fn page(&self, each: bool) -> TextPage {
        stack::refresh_modules();
        if each {
            self.dump(Detail::Full)
        } else {
            self.text(Detail::Full)
        }
    }

    fn bytes_since(&self, earlier: &Reading) -> Vec<u8> {
        let (_own, _time) = (internal_scope::scope(), overhead::measure());
        stack::refresh_modules();
        let delta = difference(self.source.read(), earlier);
        let bytes = pprof(&delta, self.extent(Detail::Full));
        internal_heap::trim();
        bytes
    }
}

impl wall::Recording {
    /// Ends the wall-clock profile, and returns it as [`Format::Pprof`].
    pub fn bytes(self) -> Vec<u8> {
        let (_own, _time) = (internal_scope::scope(), overhead::measure());
        bytes_of(&self.finish())
    }
}

impl cpu::Recording {
    /// Ends the CPU profile, and returns it as [`Format::Pprof`].
    pub fn bytes(self) -> Vec<u8> {
        let (_own, _time) = (internal_scope::scope(), overhead::measure());
        bytes_of(&self.finish())
    }
}

/// Writes a recording in full detail.
fn bytes_of(reading: &Reading) -> Vec<u8> {
    stack::refresh_modules();
    let extent = Extent {
        detail: Detail::Full,
        idle: false,
    };
    let bytes = pprof(reading, extent);
    internal_heap::trim();
    bytes
}

impl Snapshot {
    /// Writes the snapshot as [`Format::Pprof`]. Takes as long as [`Profile::write_to`].
    ///
    /// # Errors
    /// The first error of `writer`, unchanged.
    pub fn write_to(&self, writer: &mut dyn Write, detail: Detail) -> io::Result<()> {
        let bytes = {
            let (_own, _time) = (internal_scope::scope(), overhead::measure());
            pprof(&self.reading, self.profile.extent(detail))
        };
        // The writer is the program's: it is called outside the scope.
        let result = writer.write_all(&bytes);
        release(bytes);
        result
    }
}

/// Returns a snapshot as [`Format::Pprof`], in full detail.
pub fn snapshot_bytes(snapshot: &Snapshot) -> Vec<u8> {
    let (_own, _time) = (internal_scope::scope(), overhead::measure());
    stack::refresh_modules();
    bytes_of(&snapshot.reading)
}

/// Frees memory of Plimsoll's own heap, and releases its pages.
fn release(bytes: Vec<u8>) {
    drop(bytes);
    internal_heap::trim();
}

/// Returns all threads and tasks as JSON.
pub fn threads_page() -> Vec<u8> {
    let (_own, _time) = (internal_scope::scope(), overhead::measure());
    stack::refresh_modules();
    let (mut records, locks) = profile::goroutine::each_activity_and_locks();
    let total = super::threads::select(&mut records);
    let symbols = super::symbols(&records, Detail::Full);
    let text = super::threads::write(&records, total, &locks, &symbols);
    drop((records, symbols));
    internal_heap::trim();
    text.into_bytes()
}

/// Returns the page of free space in the allocator's pages: the table, followed by the sites.
///
/// # Errors
/// [`Unavailable`] if the allocator does not report its pages.
pub fn fragmentation_page() -> Result<Vec<u8>, Unavailable> {
    stack::refresh_modules();
    let reading = profile::fragmentation::page()?;
    let extent = Extent {
        detail: Detail::Full,
        idle: false,
    };
    Ok(text(reading, extent).into_bytes())
}
