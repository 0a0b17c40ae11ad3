//! ELF notes, in files and in memory.

use super::elf::u32_at;

/// Returns the GNU build id among `notes`, whose fields are padded to `align` bytes.
pub(super) fn build_id_in(notes: &[u8], align: u64) -> Option<&[u8]> {
    const BUILD_ID: u32 = 3;
    let align = if align == 8 { 8 } else { 4 };
    let mut notes = notes;
    loop {
        let name_size = u32_at(notes, 0)? as usize;
        let size = u32_at(notes, 4)? as usize;
        let kind = u32_at(notes, 8)?;
        let name = notes.get(12..)?.get(..name_size)?;
        let start = (12 + name_size).next_multiple_of(align);
        let description = notes.get(start..)?.get(..size)?;
        if kind == BUILD_ID && name == b"GNU\0" && !description.is_empty() {
            return Some(description);
        }
        notes = notes.get((start + size).next_multiple_of(align)..)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(name: &[u8], kind: u32, description: &[u8], align: usize) -> Vec<u8> {
        let mut note = Vec::new();
        note.extend((name.len() as u32).to_ne_bytes());
        note.extend((description.len() as u32).to_ne_bytes());
        note.extend(kind.to_ne_bytes());
        for field in [name, description] {
            note.extend(field);
            note.resize(note.len().next_multiple_of(align), 0);
        }
        note
    }

    #[test]
    fn the_build_id_is_found_among_other_notes() {
        for align in [4, 8] {
            let property = note(b"GNU\0", 5, &[1; 12], align);
            let foreign = note(b"Go\0\0", 3, b"not this", align);
            let build_id = note(b"GNU\0", 3, &[0xab; 20], align);
            let notes = [property, foreign, build_id].concat();
            assert_eq!(build_id_in(&notes, align as u64), Some(&[0xab; 20][..]));
            for length in 0..notes.len() - 20 {
                assert_eq!(build_id_in(&notes[..length], align as u64), None);
            }
        }
        assert_eq!(
            build_id_in(&note(b"GNU\0", 3, &[], 4), 4),
            None,
            "an empty one is none"
        );
        assert_eq!(build_id_in(&[0xff; 64], 4), None, "sizes beyond the notes");
    }
}
