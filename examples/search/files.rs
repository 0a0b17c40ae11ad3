//! The text files of a directory tree.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// Larger files are not indexed.
const MAX_FILE_BYTES: u64 = 4 << 20;

/// A file with a NUL byte in its first bytes, this many, is binary, as for git.
const BINARY_PROBE_BYTES: u64 = 8 << 10;

/// Files that were found but not read.
#[derive(Debug, Default)]
pub struct Skipped {
    /// The number of files with a NUL byte near their beginning.
    pub binary: usize,
    /// The number of files above 4 MiB.
    pub large: usize,
    /// The number of files and directories that could not be read.
    pub unreadable: usize,
    /// The first of those, with the cause.
    pub first_unreadable: Option<(PathBuf, io::Error)>,
}

/// Calls `take` with the path and text of every text file under `root`, until it returns false. The
/// path is relative to `root` and printable.
///
/// The order is the same for the same tree. `.git`, `target` and all but regular files are left
/// out. Symbolic links are not followed, so there are no loops and no files from outside. Bytes
/// that are not UTF-8 become U+FFFD. Unreadable files are counted; an unreadable `root` is an
/// error.
pub fn read_texts(
    root: &Path,
    mut take: impl FnMut(String, String) -> bool,
) -> io::Result<Skipped> {
    let mut skipped = Skipped::default();
    // A list instead of recursion: a tree may be deeper than a stack.
    let mut directories = VecDeque::new();
    let mut entries = sorted_entries(root)?;
    loop {
        for entry in entries {
            let path = entry.path();
            match entry.file_type() {
                Ok(kind) if is_left_out(&entry, kind) => {}
                Ok(kind) if kind.is_dir() => directories.push_back(path),
                Ok(kind) if kind.is_file() => match read_text(&path) {
                    Ok(Content::Text(text)) => {
                        let name = path
                            .strip_prefix(root)
                            .unwrap_or(&path)
                            .to_string_lossy()
                            .into_owned();
                        if !take(name, text) {
                            return Ok(skipped);
                        }
                    }
                    Ok(Content::Binary) => skipped.binary += 1,
                    Ok(Content::Large) => skipped.large += 1,
                    Err(error) => skipped.unreadable(path, error),
                },
                Ok(_) => {}
                Err(error) => skipped.unreadable(path, error),
            }
        }
        entries = loop {
            let Some(directory) = directories.pop_front() else {
                return Ok(skipped);
            };
            match sorted_entries(&directory) {
                Ok(entries) => break entries,
                Err(error) => skipped.unreadable(directory, error),
            }
        };
    }
}

fn is_left_out(entry: &fs::DirEntry, kind: fs::FileType) -> bool {
    let name = entry.file_name();
    name == ".git" || (name == "target" && kind.is_dir())
}

fn sorted_entries(directory: &Path) -> io::Result<Vec<fs::DirEntry>> {
    let mut entries = fs::read_dir(directory)?.collect::<io::Result<Vec<_>>>()?;
    entries.sort_unstable_by_key(fs::DirEntry::file_name);
    Ok(entries)
}

impl Skipped {
    fn unreadable(&mut self, path: PathBuf, error: io::Error) {
        self.unreadable += 1;
        self.first_unreadable.get_or_insert((path, error));
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Content {
    Text(String),
    Binary,
    Large,
}

fn read_text(path: &Path) -> io::Result<Content> {
    let mut file = File::open(path)?;
    if file.metadata()?.len() > MAX_FILE_BYTES {
        return Ok(Content::Large);
    }
    let mut bytes = Vec::new();
    file.by_ref()
        .take(BINARY_PROBE_BYTES)
        .read_to_end(&mut bytes)?;
    if bytes.contains(&0) {
        return Ok(Content::Binary);
    }
    // The length is only a hint: a file may grow meanwhile, and some files report no length.
    file.take(MAX_FILE_BYTES + 1 - bytes.len() as u64)
        .read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MAX_FILE_BYTES {
        return Ok(Content::Large);
    }
    let text = String::from_utf8(bytes)
        .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned());
    Ok(Content::Text(text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Directory;

    fn read(root: &Path) -> (Vec<(String, String)>, Skipped) {
        let mut texts = Vec::new();
        let skipped = read_texts(root, |name, text| {
            texts.push((name, text));
            true
        })
        .unwrap();
        (texts, skipped)
    }

    fn names(root: &Path) -> Vec<String> {
        read(root).0.into_iter().map(|(name, _)| name).collect()
    }

    #[test]
    fn texts_come_in_order_without_git_and_target() {
        let directory = Directory::new();
        for name in [
            "b.txt",
            "a.txt",
            "sub/deeper/c.txt",
            "sub/target/no.txt",
            ".git/config",
            "target/no.txt",
        ] {
            directory.write(name, "text");
        }
        directory.write("sub/.git", "gitdir: elsewhere");
        directory.write("deep/target", "a file of that name is a file");
        assert_eq!(
            names(directory.path()),
            ["a.txt", "b.txt", "deep/target", "sub/deeper/c.txt"]
        );
    }

    #[test]
    fn binary_and_large_files_are_counted() {
        let directory = Directory::new();
        directory.write("binary", b"text\0text");
        directory.write("late_nul", [vec![b'x'; 8 << 10], vec![0]].concat());
        directory.write("full", vec![b'x'; 4 << 20]);
        directory.write("large", vec![b'x'; (4 << 20) + 1]);
        directory.write("empty", "");
        let (texts, skipped) = read(directory.path());
        let lengths: Vec<_> = texts
            .iter()
            .map(|(name, text)| (name.as_str(), text.len()))
            .collect();
        assert_eq!(
            lengths,
            [("empty", 0), ("full", 4 << 20), ("late_nul", (8 << 10) + 1)]
        );
        assert_eq!(
            (skipped.binary, skipped.large, skipped.unreadable),
            (1, 1, 0)
        );
    }

    #[test]
    fn text_that_is_not_utf_8_is_read_as_far_as_it_is() {
        let directory = Directory::new();
        directory.write("latin1", b"caf\xe9 noir");
        assert_eq!(
            read(directory.path()).0,
            [("latin1".to_owned(), "caf\u{fffd} noir".to_owned())]
        );
    }

    #[test]
    #[cfg(unix)]
    fn file_names_need_not_be_utf_8() {
        use std::os::unix::ffi::OsStrExt;
        let directory = Directory::new();
        directory.write(std::ffi::OsStr::from_bytes(b"caf\xe9.txt"), "text");
        assert_eq!(names(directory.path()), ["caf\u{fffd}.txt"]);
    }

    #[test]
    #[cfg(unix)]
    fn links_are_not_followed_except_the_root() {
        use std::os::unix::fs::symlink;
        let directory = Directory::new();
        directory.write("tree/a.txt", "text");
        directory.write("outside.txt", "text");
        let tree = directory.path().join("tree");
        symlink(".", tree.join("loop")).unwrap();
        symlink("../outside.txt", tree.join("outside.txt")).unwrap();
        symlink("nowhere", tree.join("dangling")).unwrap();
        symlink("tree", directory.path().join("link")).unwrap();
        for root in [tree, directory.path().join("link")] {
            let (texts, skipped) = read(&root);
            assert_eq!(texts, [("a.txt".to_owned(), "text".to_owned())]);
            assert_eq!(skipped.unreadable, 0);
        }
    }

    #[test]
    #[cfg(unix)]
    fn only_regular_files_are_opened() {
        let directory = Directory::new();
        let _socket =
            std::os::unix::net::UnixListener::bind(directory.path().join("socket")).unwrap();
        let (texts, skipped) = read(directory.path());
        assert_eq!((texts.len(), skipped.unreadable), (0, 0));
    }

    #[test]
    fn an_unreadable_root_is_an_error_and_an_empty_one_is_not() {
        let directory = Directory::new();
        assert!(names(directory.path()).is_empty());
        directory.write("file", "text");
        for root in ["missing", "file"] {
            assert!(read_texts(&directory.path().join(root), |_, _| true).is_err());
        }
    }

    #[test]
    fn the_first_unreadable_file_is_kept_with_its_cause() {
        let directory = Directory::new();
        let mut skipped = Skipped::default();
        for name in ["first", "second"] {
            let path = directory.path().join(name);
            let error = read_text(&path).expect_err("no such file exists");
            skipped.unreadable(path, error);
        }
        assert_eq!(skipped.unreadable, 2);
        let (path, error) = skipped.first_unreadable.unwrap();
        assert!(path.ends_with("first"));
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn reading_ends_when_the_receiver_is_dropped() {
        let directory = Directory::new();
        for name in ["a", "b", "c"] {
            directory.write(name, "text");
        }
        let mut taken = Vec::new();
        read_texts(directory.path(), |name, _| {
            taken.push(name);
            taken.len() < 2
        })
        .unwrap();
        assert_eq!(taken, ["a", "b"]);
    }
}
