//! The files that hold the symbols and debug information of a loaded object.
//!
//! A file is used only if it is the one that is loaded. An upgrade replaces files under running
//! programs, and names from the wrong file would look as plausible as the right ones.

use std::path::Path;

use super::Detail;
use super::debug_files::{build_id_path, link_paths};
use super::elf::{Elf, PT_LOAD};
use super::file::PartialFile;
use super::maps::Mapped;
use super::objects::Object;

/// The bytes of an object, and of the file with its separate debug information.
pub(super) struct Source {
    image: Image,
    debug: Option<Box<PartialFile>>,
}

enum Image {
    File(Box<PartialFile>),
    /// The kernel's own object (vDSO), which is completely in memory and has no file.
    Memory(&'static [u8]),
}

impl Image {
    fn elf(&self) -> Option<Elf<'_>> {
        match self {
            Image::File(file) => Elf::parse(&**file),
            Image::Memory(bytes) => Elf::parse(bytes),
        }
    }
}

impl Source {
    /// Opens the files of `object`. If its file is missing, or is not the loaded one, a file with its
    /// debug information takes its place. Returns `None` without either. `mapped` is the mapping that
    /// holds the object's code.
    pub(super) fn open(object: &Object, mapped: Option<&Mapped>, detail: Detail) -> Option<Self> {
        if let Some(vdso) = mapped.filter(|mapped| mapped.file == "[vdso]") {
            let (start, length) = (vdso.start as *const u8, vdso.limit - vdso.start);
            // SAFETY: the kernel maps all of the vDSO readable, for the life of the process.
            let bytes = unsafe { std::slice::from_raw_parts(start, length as usize) };
            return Some(Self {
                image: Image::Memory(bytes),
                debug: None,
            });
        }
        let path = match mapped {
            Some(mapped) if mapped.file.starts_with('/') => Path::new(&mapped.file),
            _ => &object.path,
        };
        let deleted = mapped.is_some_and(|mapped| mapped.deleted);
        // The link works even if the file was removed from its path. If the program was started
        // through the loader, the link leads to the loader.
        let link = object
            .is_program
            .then(|| (Path::new("/proc/self/exe"), true));
        let by_build_id = build_id_path(&object.build_id);
        let elsewhere = object.supplied.iter().chain(&by_build_id);
        let image = link
            .into_iter()
            .chain([(path, !deleted)])
            .chain(elsewhere.map(|path| (&**path, false)))
            .find_map(|(path, in_place)| {
                let file = Box::new(PartialFile::open(path)?);
                is_loaded(Elf::parse(&*file)?, object, in_place).then_some(file)
            })?;
        let image = Image::File(image);
        let debug = image
            .elf()
            .and_then(|elf| split_off(elf, object, path, detail));
        Some(Self { image, debug })
    }

    pub(super) fn image(&self) -> Option<Elf<'_>> {
        self.image.elf()
    }

    /// Returns the separate file with debug information, if one was found.
    pub(super) fn debug(&self) -> Option<Elf<'_>> {
        self.debug.as_ref().and_then(|file| Elf::parse(&**file))
    }
}

/// Returns whether a file is the loaded one: both have the same build id. If neither has a build
/// id, the file must still be `in_place` and have the same layout.
fn is_loaded(file: Elf<'_>, object: &Object, in_place: bool) -> bool {
    let build_id = file.build_id();
    if !build_id.is_empty() || !object.build_id.is_empty() {
        return build_id == object.build_id;
    }
    let loaded = file.segments().filter(|segment| segment.kind == PT_LOAD);
    in_place && loaded.eq(object.loaded.iter().copied())
}

/// Finds the separate file with symbols or debug information that the object's own file lacks.
fn split_off(
    elf: Elf<'_>,
    object: &Object,
    path: &Path,
    detail: Detail,
) -> Option<Box<PartialFile>> {
    if is_complete(elf, detail) {
        return None;
    }
    let link = elf.debug_link();
    let by_build_id = build_id_path(&object.build_id).into_iter();
    let by_link = link
        .into_iter()
        .flat_map(|(name, _)| link_paths(name, path));
    let supplied = object.supplied.iter().cloned();
    let candidates = supplied.chain(by_build_id).chain(by_link);
    let mut files = candidates.filter_map(|candidate| {
        let file = Box::new(PartialFile::open(&candidate)?);
        let build_id = Elf::parse(&*file)?.build_id();
        let is_its = if object.build_id.is_empty() {
            link.is_some_and(|(_, sum)| crc32(&file) == Some(sum))
        } else {
            build_id == object.build_id
        };
        is_its.then_some(file)
    });
    // Of several, one may be the stripped file itself.
    let first = files.next()?;
    let suffices =
        |file: &PartialFile| Elf::parse(file).is_some_and(|elf| is_complete(elf, detail));
    if suffices(&first) {
        return Some(first);
    }
    files.find(|file| suffices(file)).or(Some(first))
}

/// Returns whether a file has all of the symbols and debug information that `detail` needs.
fn is_complete(elf: Elf<'_>, detail: Detail) -> bool {
    let needs_lines = matches!(detail, Detail::Full | Detail::Lines);
    let has_lines = !needs_lines || elf.section(".debug_info").is_some();
    elf.has_symbols() && has_lines
}

/// Returns whether the files of an object on this machine have all that `detail` needs.
pub(super) fn has_all(object: &Object, detail: Detail) -> bool {
    Source::open(object, None, detail).is_some_and(|source| {
        let files = [source.image(), source.debug()];
        files
            .into_iter()
            .flatten()
            .any(|elf| is_complete(elf, detail))
    })
}

fn crc32(file: &PartialFile) -> Option<u32> {
    let mut crc = flate2::Crc::new();
    file.read_all(|piece| crc.update(piece))?;
    Some(crc.sum())
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    #[test]
    fn a_file_is_the_loaded_one_by_its_build_id_or_else_by_layout_and_place() {
        let objects = crate::symbol::objects::loaded();
        let program = &objects[0];
        let file = PartialFile::open(Path::new("/proc/self/exe")).unwrap();
        let elf = Elf::parse(&file).unwrap();
        let with = |build_id: &[u8]| Object {
            path: PathBuf::new(),
            is_program: false,
            base: program.base,
            loaded: program.loaded.clone(),
            build_id: build_id.to_vec(),
            supplied: Vec::new(),
        };
        assert_eq!(elf.build_id(), program.build_id);
        assert!(is_loaded(elf, program, true));
        assert!(!is_loaded(elf, &with(b"other"), true));
        let mut changed = with(elf.build_id());
        changed.loaded.pop();
        let by_layout = elf.build_id().is_empty();
        assert_eq!(is_loaded(elf, &changed, true), !by_layout);
        assert_eq!(is_loaded(elf, program, false), !by_layout);
    }
}
