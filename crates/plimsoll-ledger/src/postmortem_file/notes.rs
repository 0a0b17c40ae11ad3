//! The file's notes: the program, the mapped code, the sets of labels. A note is complete before
//! the header contains its end.

use std::path::Path;
use std::sync::TryLockError;

use plimsoll_postmortem::layout::{note, word};
use plimsoll_sys::os::region::{COMMIT_STEP, Region};
use plimsoll_sys::primitives::{AtomicU64, Mutex, Ordering};

use super::{header, part_of};

/// The memory for notes.
static REGION: Region = Region::new();

/// The lock for adding a note.
static ADDING: Mutex<()> = Mutex::new(());

/// Takes the part of the file for notes.
pub fn open(header: &[AtomicU64]) {
    REGION.adopt_in_file(part_of(header, word::NOTES));
}

/// Returns the bytes of disk space that the notes occupy.
pub fn bytes() -> usize {
    // The first of them were allocated with the file.
    REGION.committed().max(COMMIT_STEP)
}

/// Notes the program. Allocates: not for hooks.
pub fn program(path: &Path) {
    add(note::PROGRAM, path.as_os_str().as_encoded_bytes());
}

/// Notes the allocator, and why its functions are not redirected. Allocates: not for hooks.
pub fn allocator(name: &str, obstacle: &str) {
    let mut bytes = (name.len() as u32).to_ne_bytes().to_vec();
    bytes.extend(name.bytes().chain(obstacle.bytes()));
    add(note::ALLOCATOR, &bytes);
}

/// Notes a set of labels. Not for hooks.
pub fn labels(number: u32, set: &[(&str, &str)]) {
    let mut bytes = number.to_ne_bytes().to_vec();
    for text in set.iter().flat_map(|&(key, value)| [key, value]) {
        bytes.extend((text.len() as u32).to_ne_bytes());
        bytes.extend(text.as_bytes());
    }
    add(note::LABELS, &bytes);
}

/// Adds a note of a kind of [`note`]. Without a file, and where its part is full, the note is lost. Not for hooks.
pub fn add(kind: u32, bytes: &[u8]) {
    let Some(header) = header() else { return };
    let _alone = ADDING
        .lock()
        .unwrap_or_else(|poisoned| poisoned.into_inner());
    put(header, kind, &[bytes]);
}

/// Adds a note that consists of parts, for the frames of interpreters. Returns `false` if another note
/// is being added: repeat this later. For hooks.
pub fn try_add(kind: u32, parts: &[&[u8]]) -> bool {
    let Some(header) = header() else { return true };
    let _alone = match ADDING.try_lock() {
        Ok(alone) => alone,
        Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
        Err(TryLockError::WouldBlock) => return false,
    };
    put(header, kind, parts);
    true
}

/// Appends a note. The caller holds the lock.
fn put(header: &[AtomicU64], kind: u32, parts: &[&[u8]]) {
    let length: usize = parts.iter().map(|part| part.len()).sum();
    let at = header[word::NOTES_USED].load(Ordering::Relaxed) as usize;
    let end = at + 8 + length.next_multiple_of(8);
    if end > REGION.length() || !REGION.commit(end) {
        header[word::NOTES_LOST].fetch_add(1, Ordering::Relaxed);
        return;
    }
    let first = (length as u64) << 32 | u64::from(kind);
    // SAFETY: the memory was committed above, the lock keeps other writers out, and no thread reads
    // it while the process lives.
    unsafe {
        let to = (REGION.base() + at) as *mut u8;
        to.cast::<u64>().write(first);
        let mut to = to.add(8);
        for part in parts {
            to.copy_from_nonoverlapping(part.as_ptr(), part.len());
            to = to.add(part.len());
        }
    }
    header[word::NOTES_USED].store(end as u64, Ordering::Release);
}
