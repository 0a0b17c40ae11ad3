//! Functions that a process generated in memory, by the file with its code that it wrote for perf: node
//! with `--perf-prof`, and other runtimes by an agent. The process maps the file as code, which marks it
//! in the profiles.

use std::collections::HashMap;
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};
use std::path::Path;

use super::perf_map::{Generated, PerfMap};
use plimsoll_command::files;
use plimsoll_command::profile::Profile;

/// The maximum length of a file that is read, in bytes.
const MAX_BYTES: u64 = 1 << 30;

/// The maximum length of a name in bytes, with its final zero.
const MAX_NAME: u64 = 1 << 16;

/// `JiTD` in the order of the writer's bytes.
const MAGIC: u32 = 0x4a69_5444;

/// The kinds of records that are read.
mod kind {
    pub const LOAD: u32 = 0;
    pub const MOVE: u32 = 1;
    pub const LINES: u32 = 2;
}

/// The lengths of the fixed parts of the file and of its records, in bytes.
const FILE_HEAD: u64 = 40;
const RECORD_HEAD: u64 = 16;

/// Adds the functions of the files that the profile shows as code of a process. Files of other users are
/// left out, and so is the rest of a file that is damaged.
pub fn add_from_files(profile: &Profile, process: u32, to: &mut PerfMap) {
    let name = format!("/jit-{process}.dump");
    for mapping in profile.mappings() {
        let path = profile.string(mapping.file);
        if path.ends_with(&name) {
            let _ = files::open_trusted(Path::new(path)).and_then(|file| add(file, to));
        }
    }
}

/// Adds all functions of a file. Stops at the first damaged record.
fn add(file: impl Read + Seek, to: &mut PerfMap) -> io::Result<()> {
    let mut file = Reader(BufReader::new(file));
    if file.half()? != MAGIC {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let _version = file.half()?;
    let mut at = u64::from(file.half()?).max(FILE_HEAD);
    // The file and the first line of the code at an address. This record precedes the code's.
    let mut lines: HashMap<u64, (String, u64)> = HashMap::new();
    while at < MAX_BYTES {
        file.0.seek(SeekFrom::Start(at))?;
        let (kind, length, _time) = (file.half()?, u64::from(file.half()?), file.word()?);
        if length < RECORD_HEAD {
            return Err(io::ErrorKind::InvalidData.into());
        }
        match kind {
            kind::LOAD => {
                let (_process, _thread, _address) = (file.half()?, file.half()?, file.word()?);
                let (address, size, _index) = (file.word()?, file.word()?, file.word()?);
                let mut function = Generated::named(&file.text()?);
                if let Some((path, line)) = lines.remove(&address) {
                    function = function.with_source(&path, line);
                }
                to.put(address, size, function);
            }
            kind::MOVE => {
                let (_process, _thread, _address) = (file.half()?, file.half()?, file.word()?);
                let (old, new, size) = (file.word()?, file.word()?, file.word()?);
                if let Some(function) = to.find(old).cloned() {
                    to.put(new, size, function);
                }
            }
            kind::LINES => {
                let (address, count) = (file.word()?, file.word()?);
                if count > 0 {
                    let (_address, line, _column) = (file.word()?, file.half()?, file.half()?);
                    lines.insert(address, (file.text()?, u64::from(line)));
                }
            }
            _ => {}
        }
        at += length;
    }
    Ok(())
}

/// Reads numbers in the byte order of this machine. The process ran here, too.
struct Reader<R>(BufReader<R>);

impl<R: Read> Reader<R> {
    fn half(&mut self) -> io::Result<u32> {
        let mut bytes = [0; 4];
        self.0.read_exact(&mut bytes)?;
        Ok(u32::from_ne_bytes(bytes))
    }

    fn word(&mut self) -> io::Result<u64> {
        let mut bytes = [0; 8];
        self.0.read_exact(&mut bytes)?;
        Ok(u64::from_ne_bytes(bytes))
    }

    /// Reads a text up to its final zero.
    fn text(&mut self) -> io::Result<String> {
        let mut bytes = Vec::new();
        self.0.by_ref().take(MAX_NAME).read_until(0, &mut bytes)?;
        match bytes.pop() {
            Some(0) => Ok(String::from_utf8_lossy(&bytes).into_owned()),
            _ => Err(io::ErrorKind::InvalidData.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;

    fn record(kind: u32, numbers: &[u64], tail: &[u8]) -> Vec<u8> {
        let length = RECORD_HEAD as usize + 8 * numbers.len() + tail.len();
        let mut bytes = [kind.to_ne_bytes(), (length as u32).to_ne_bytes()].concat();
        bytes.extend([0; 8]);
        bytes.extend(numbers.iter().flat_map(|number| number.to_ne_bytes()));
        bytes.extend(tail);
        bytes
    }

    fn file(records: &[Vec<u8>]) -> Vec<u8> {
        let head = [MAGIC, 1, FILE_HEAD as u32, 62, 0, 7, 0, 0, 0, 0];
        let mut bytes: Vec<u8> = head.iter().flat_map(|half| half.to_ne_bytes()).collect();
        bytes.extend(records.concat());
        bytes
    }

    fn read(bytes: &[u8]) -> (PerfMap, io::Result<()>) {
        let mut map = PerfMap::default();
        let result = add(Cursor::new(bytes), &mut map);
        (map, result)
    }

    #[test]
    fn functions_are_found_with_their_sources_also_after_a_move() {
        let line_of = |address: u64, line: u64| [address, 1, address, line];
        let bytes = file(&[
            record(kind::LINES, &line_of(0x2000, 12), b"/srv/Main.java\0"),
            record(
                kind::LOAD,
                &[7, 0x1000, 0x1000, 4, 1],
                b"JS:*work /srv/b.js:2:14\0code",
            ),
            record(9, &[1, 2, 3], b""),
            record(kind::LOAD, &[7, 0x2000, 0x2000, 0x100, 2], b"LMain;::run\0"),
            record(kind::MOVE, &[7, 0, 0x2000, 0x5000, 0x100, 2], b""),
        ]);
        let (map, _) = read(&bytes);
        let find = |address| map.find(address).map(|found| (&*found.name, found.line));
        assert_eq!(find(0x1003), Some(("work (b.js:2)", 2)));
        assert_eq!(find(0x1004), None);
        for address in [0x2000, 0x20ff, 0x5080] {
            assert_eq!(find(address), Some(("LMain;::run (Main.java:12)", 12)));
        }
    }

    #[test]
    fn damaged_files_have_the_functions_before_the_damage() {
        let load = record(kind::LOAD, &[7, 0x1000, 0x1000, 4, 1], b"first\0");
        let without_end = record(kind::LOAD, &[7, 0x3000, 0x3000, 4, 3], b"second");
        let mut short = record(9, &[], b"");
        short[4..8].copy_from_slice(&3_u32.to_ne_bytes());
        for damaged in [without_end, short, vec![0; 7]] {
            let (map, result) = read(&file(&[load.clone(), damaged]));
            assert!(result.is_err());
            assert_eq!(map.find(0x1000).map(|found| &*found.name), Some("first"));
            assert_eq!(map.find(0x3000), None);
        }
        for bytes in [&b""[..], b"JiTD", &[0xff; 4096]] {
            assert!(read(bytes).1.is_err());
        }
    }
}
