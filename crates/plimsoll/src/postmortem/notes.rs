//! What the file says besides counts: the program, the code that is mapped, the labels that there
//! are. A note is complete before the header says that it is there.

use std::path::Path;

use super::layout::{note, word};
use super::{header, part_of};
use crate::os::region::{COMMIT_STEP, Region};
use crate::primitives::{AtomicU64, Mutex, Ordering};
use crate::symbol::{self, Detail, Mapping};

/// The room for notes.
static REGION: Region = Region::new();

/// The modules that were noted.
static NOTED: Mutex<Vec<Mapping>> = Mutex::new(Vec::new());

/// Held while a note is added.
static ADDING: Mutex<()> = Mutex::new(());

pub(super) fn open(header: &[AtomicU64]) {
    REGION.adopt_in_file(part_of(header, word::NOTES));
}

/// Bytes that the file has room for.
pub(super) fn bytes() -> usize {
    // The first of them were had with the file.
    REGION.committed().max(COMMIT_STEP)
}

/// Notes the program. Allocates: not for hooks.
pub(super) fn program(path: &Path) {
    add(note::PROGRAM, path.as_os_str().as_encoded_bytes());
}

/// Notes code that was mapped since the last time. Takes the loader's lock and allocates: not for
/// hooks.
pub(super) fn modules() {
    let mapped = symbol::resolve(&[], Detail::Addresses).mappings;
    let mut noted = NOTED
        .lock()
        .unwrap_or_else(|poisoned| poisoned.into_inner());
    for module in mapped {
        if module.limit == 0 || noted.contains(&module) {
            continue;
        }
        let mut bytes = Vec::new();
        for number in [module.start, module.limit, module.offset] {
            bytes.extend(number.to_ne_bytes());
        }
        let texts = [&module.build_id, &module.file];
        for text in texts {
            bytes.extend((text.len() as u32).to_ne_bytes());
        }
        for text in texts {
            bytes.extend(text.as_bytes());
        }
        add(note::MODULE, &bytes);
        noted.push(module);
    }
}

/// Notes a set of labels. Not for hooks.
pub(super) fn labels(number: u32, set: &[(&str, &str)]) {
    let mut bytes = number.to_ne_bytes().to_vec();
    for text in set.iter().flat_map(|&(key, value)| [key, value]) {
        bytes.extend((text.len() as u32).to_ne_bytes());
        bytes.extend(text.as_bytes());
    }
    add(note::LABELS, &bytes);
}

fn add(kind: u32, bytes: &[u8]) {
    let Some(header) = header() else { return };
    let _alone = ADDING
        .lock()
        .unwrap_or_else(|poisoned| poisoned.into_inner());
    let at = header[word::NOTES_USED].load(Ordering::Relaxed) as usize;
    let end = at + 8 + bytes.len().next_multiple_of(8);
    if end > REGION.length() || !REGION.commit(end) {
        header[word::NOTES_LOST].fetch_add(1, Ordering::Relaxed);
        return;
    }
    let first = (bytes.len() as u64) << 32 | u64::from(kind);
    // SAFETY: committed above, nobody else writes there while the lock is held, and nobody reads
    // it while the process lives.
    unsafe {
        let to = (REGION.base() + at) as *mut u8;
        to.cast::<u64>().write(first);
        to.add(8)
            .copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
    }
    header[word::NOTES_USED].store(end as u64, Ordering::Release);
}
