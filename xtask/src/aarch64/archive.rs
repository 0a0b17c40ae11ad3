//! Writes archives of cpio's format `newc`, which the kernel unpacks as its first file system.

use std::io::{self, Write};

const FOLDER: u32 = 0o040_000;
const FILE: u32 = 0o100_000;
const CHARACTER_DEVICE: u32 = 0o020_000;

/// An archive under construction. Folders must precede their files.
pub struct Archive<W> {
    writer: W,
    entries: u32,
    length: u64,
}

impl<W: Write> Archive<W> {
    /// An empty archive.
    pub fn new(writer: W) -> Self {
        Self {
            writer,
            entries: 0,
            length: 0,
        }
    }

    /// Adds a folder.
    pub fn folder(&mut self, path: &str) -> io::Result<()> {
        self.entry(path, FOLDER | 0o755, (0, 0), b"")
    }

    /// Adds a file.
    pub fn file(&mut self, path: &str, permissions: u32, contents: &[u8]) -> io::Result<()> {
        self.entry(path, FILE | permissions, (0, 0), contents)
    }

    /// Adds a device of characters.
    pub fn device(&mut self, path: &str, major: u32, minor: u32) -> io::Result<()> {
        self.entry(path, CHARACTER_DEVICE | 0o600, (major, minor), b"")
    }

    /// Ends the archive and returns its writer.
    pub fn finish(mut self) -> io::Result<W> {
        self.entry("TRAILER!!!", 0, (0, 0), b"")?;
        self.writer.flush()?;
        Ok(self.writer)
    }

    /// The bytes written.
    pub fn length(&self) -> u64 {
        self.length
    }

    fn entry(
        &mut self,
        path: &str,
        mode: u32,
        device: (u32, u32),
        contents: &[u8],
    ) -> io::Result<()> {
        let size = u32::try_from(contents.len()).map_err(io::Error::other)?;
        self.entries += 1;
        let name_size = path.len() as u32 + 1;
        let fields = [
            self.entries,
            mode,
            // User, group, links, time of the last change.
            0,
            0,
            1,
            0,
            size,
            // The device of the file, then the device that the file is.
            0,
            0,
            device.0,
            device.1,
            name_size,
            // The checksum, which this format does not use.
            0,
        ];
        let mut header = String::from("070701");
        for field in fields {
            header.push_str(&format!("{field:08x}"));
        }
        self.write(header.as_bytes())?;
        self.write(path.as_bytes())?;
        self.write(&[0])?;
        self.align()?;
        self.write(contents)?;
        self.align()
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.length += bytes.len() as u64;
        self.writer.write_all(bytes)
    }

    fn align(&mut self) -> io::Result<()> {
        let padding = self.length.wrapping_neg() % 4;
        self.write(&[0; 3][..padding as usize])
    }
}
