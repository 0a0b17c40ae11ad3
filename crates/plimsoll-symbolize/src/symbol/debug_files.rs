//! The paths of files with separate debug information.

use std::path::{Path, PathBuf};

use super::{hexadecimal, os};

/// The directory in which distributions install debug information.
const DEBUG_ROOT: &str = "/usr/lib/debug";

/// Returns the path of separate debug information in distributions, by the object's build id. `None` if the build id has
/// fewer than two bytes.
pub fn build_id_path(build_id: &[u8]) -> Option<PathBuf> {
    let (first, rest) = build_id
        .split_first()
        .filter(|(_, rest)| !rest.is_empty())?;
    let (first, rest) = (hexadecimal(&[*first]), hexadecimal(rest));
    Some(format!("{DEBUG_ROOT}/.build-id/{first}/{rest}.debug").into())
}

/// Returns the paths that debuggers search for the file of that `name` in `.gnu_debuglink` of an object at `path`.
pub fn link_paths(name: &[u8], path: &Path) -> Vec<PathBuf> {
    let name = os::path_of_bytes(name);
    let (Some(name), Some(directory)) = (name.file_name(), path.parent()) else {
        return Vec::new();
    };
    let below_root = Path::new(DEBUG_ROOT).join(directory.strip_prefix("/").unwrap_or(directory));
    [directory.to_owned(), directory.join(".debug"), below_root]
        .map(|directory| directory.join(name))
        .into_iter()
        // The link may name the object's own file.
        .filter(|candidate| candidate != path)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_files_are_looked_for_where_distributions_put_them() {
        assert_eq!(
            build_id_path(&[0xab, 0xcd, 0x01]).unwrap(),
            Path::new("/usr/lib/debug/.build-id/ab/cd01.debug")
        );
        assert_eq!(build_id_path(&[]), None);
        assert_eq!(build_id_path(&[0xab]), None);
        assert_eq!(
            link_paths(b"app.debug", Path::new("/opt/bin/app")),
            [
                "/opt/bin/app.debug",
                "/opt/bin/.debug/app.debug",
                "/usr/lib/debug/opt/bin/app.debug"
            ]
            .map(PathBuf::from)
        );
        assert_eq!(
            link_paths(b"app", Path::new("/opt/bin/app")).len(),
            2,
            "not the file itself"
        );
        assert_eq!(
            link_paths(b"../../app", Path::new("/opt/bin/x"))[0],
            Path::new("/opt/bin/app")
        );
        assert!(link_paths(b"..", Path::new("/opt/bin/app")).is_empty());
    }
}
