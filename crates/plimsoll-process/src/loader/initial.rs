//! Determines which objects the loader loaded before the program began. These are never unloaded.
//!
//! They are the program, the libraries that were preloaded into it, and the libraries that one of these needs.
//! Libraries that were loaded later may need the same, which changes nothing. The loader lists objects in the
//! order of loading, so that the first object of a name is the one that was found by it at the start.

use std::hash::BuildHasher;

use plimsoll_sys::hash::{HashMap, Seeded};

use super::{Name, Object};

/// The names in an object, by their hashes.
#[derive(Debug, Default)]
pub struct Names {
    /// The name in its dynamic section, the path of its file, and that without directories.
    own: [Option<u64>; 3],
    needed: Vec<u64>,
}

impl Names {
    /// Reads the names in an object.
    pub fn from_object(object: &Object<'_>) -> Self {
        let path = object.name.to_bytes();
        let file = path.rsplit(|&byte| byte == b'/').next().unwrap_or(path);
        let hash = |name: &[u8]| Seeded.hash_one(name);
        let mut names = Self::default();
        if !path.is_empty() {
            names.own = [None, Some(hash(path)), Some(hash(file))];
        }
        object.names(|name| match name {
            Name::Own(name) => names.own[0] = Some(hash(name.to_bytes())),
            Name::Needed(name) => names.needed.push(hash(name.to_bytes())),
        });
        names
    }
}

/// Reports for each object whether it was loaded before the program began. False where that is uncertain.
pub fn are_initial(objects: &[Names]) -> Vec<bool> {
    let mut first_of = HashMap::default();
    for (at, object) in objects.iter().enumerate() {
        for name in object.own.into_iter().flatten() {
            first_of.entry(name).or_insert(at);
        }
    }
    let needed_by = |at: usize| {
        objects[at]
            .needed
            .iter()
            .filter_map(|name| first_of.get(name))
    };
    let mut are_initial = vec![false; objects.len()];
    // The loader loads what is preloaded before what the program needs.
    let preloaded = match objects.first() {
        Some(_) => needed_by(0).copied().min().unwrap_or(1),
        None => 0,
    };
    let mut unread: Vec<usize> = (0..preloaded).collect();
    while let Some(at) = unread.pop() {
        if !std::mem::replace(&mut are_initial[at], true) {
            unread.extend(needed_by(at));
        }
    }
    are_initial
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(own: u64, needed: &[u64]) -> Names {
        Names {
            own: [Some(own), None, None],
            needed: needed.to_vec(),
        }
    }

    #[test]
    fn the_program_what_is_preloaded_and_what_they_need_are_initial() {
        let [program, vdso, preloaded, a, c, loader, of_preloaded] = [1, 2, 3, 4, 5, 6, 7];
        let objects = [
            object(program, &[a, c]),
            object(vdso, &[]),
            object(preloaded, &[of_preloaded, c]),
            object(a, &[c]),
            object(c, &[loader]),
            object(of_preloaded, &[c]),
            object(loader, &[]),
            // Loaded later: a library, another that only this one needs, and one of a known name.
            object(20, &[21, c, a]),
            object(21, &[]),
            object(a, &[]),
        ];
        let initial = [
            true, true, true, true, true, true, true, false, false, false,
        ];
        assert_eq!(are_initial(&objects), initial);
        // A library that the program needs is not found: nothing is known about those before it.
        assert_eq!(
            are_initial(&[object(program, &[a]), object(20, &[])]),
            [true, false]
        );
        assert_eq!(are_initial(&[object(program, &[])]), [true]);
        assert_eq!(are_initial(&[]), []);
    }

    #[test]
    fn libraries_of_this_process_are_known_by_the_names_that_need_them() {
        let mut objects = Vec::new();
        super::super::each_object(|object| {
            objects.push(Names::from_object(object));
            true
        });
        let initial = are_initial(&objects);
        let count = initial.iter().take_while(|&&initial| initial).count();
        assert!(count >= 3, "the program, the vDSO and the C library");
        // Other tests may have loaded libraries.
        let later = initial[count..].iter().all(|initial| !initial);
        assert!(later, "{initial:?}");
    }
}
