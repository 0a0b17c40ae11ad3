//! The files that are shown.

use std::path::Path;
use std::sync::Arc;

use super::history;
use plimsoll_command::failure::Failure;
use plimsoll_command::growth::Growth;
use plimsoll_command::input::{Input, Moment};
use plimsoll_command::page::Entry;
use plimsoll_command::profile::{HEAP, read_post_mortem};

/// The ends of the names of profiles. In directories, only these and post-mortem files are read.
const ENDINGS: [&str; 5] = [".pb.gz", ".pb", ".pprof", ".prof", ".heap"];

/// A file.
#[derive(Debug)]
struct File {
    path: String,
    /// The profile at the end, in pprof's format with names.
    profile: Arc<[u8]>,
    /// The history as JSON, for a post-mortem file that has one.
    history: Option<Arc<[u8]>>,
    /// The growth of sites as JSON, for a post-mortem file that has verdicts.
    growth: Option<Arc<[u8]>>,
}

/// All files, by their numbers.
#[derive(Debug)]
pub(super) struct Files(Vec<File>);

impl Files {
    /// Reads the files, and those in the directories.
    pub(super) fn read(paths: &[String]) -> Result<Self, Failure> {
        let mut files = Vec::new();
        for path in paths {
            if !Path::new(path).is_dir() {
                files.push(File::read(path)?);
                continue;
            }
            let inside = inside(path)?;
            if inside.is_empty() {
                let cause = format!(
                    "the directory has no post-mortem file and none of *{}",
                    ENDINGS.join(", *")
                );
                return Err(Failure::new(path, cause));
            }
            for path in &inside {
                files.push(File::read(path)?);
            }
        }
        Ok(Self(files))
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns the list for the page.
    pub(super) fn entries(&self) -> Vec<Entry> {
        let files = self.0.iter().enumerate();
        files
            .map(|(number, file)| Entry {
                name: number.to_string(),
                title: file.path.clone(),
                has_history: file.history.is_some(),
                has_growth: file.growth.is_some(),
                ..Entry::default()
            })
            .collect()
    }

    /// Returns the profile of a file in pprof's format. `None` if the file does not exist.
    pub(super) fn profile(
        &self,
        number: usize,
        moment: Moment,
    ) -> Option<Result<Arc<[u8]>, Failure>> {
        Some(self.0.get(number)?.profile(moment))
    }

    /// Returns the growth of the sites of a file as JSON.
    pub(super) fn growth(&self, number: usize) -> Option<Arc<[u8]>> {
        self.0.get(number)?.growth.clone()
    }

    /// Returns the history of a file as JSON.
    pub(super) fn history(&self, number: usize) -> Option<Arc<[u8]>> {
        self.0.get(number)?.history.clone()
    }
}

impl File {
    fn read(path: &str) -> Result<Self, Failure> {
        let post_mortem = read_post_mortem(path)?;
        let growth = post_mortem.as_ref().and_then(Growth::of_file);
        let growth = growth
            .transpose()
            .map_err(|error| Failure::new(path, error))?;
        let growth = growth.map(|growth| serde_json::to_vec(&growth));
        Ok(Self {
            profile: profile(path, Moment::End)?,
            history: post_mortem
                .as_ref()
                .and_then(history::json)
                .map(|history| history.into_bytes().into()),
            growth: growth
                .transpose()
                .map_err(|error| Failure::new(path, error))?
                .map(Arc::from),
            path: path.to_owned(),
        })
    }

    fn profile(&self, moment: Moment) -> Result<Arc<[u8]>, Failure> {
        match moment {
            Moment::End => Ok(Arc::clone(&self.profile)),
            _ => profile(&self.path, moment),
        }
    }
}

/// Reads the profile of a file.
fn profile(path: &str, moment: Moment) -> Result<Arc<[u8]>, Failure> {
    let input = match moment {
        Moment::End => Input::read(path, None, false, HEAP)?,
        _ => Input::read_at(path, moment, "the time", false)?,
    };
    Ok(input.profile.to_bytes(|_| true).into())
}

/// Returns the profiles and post-mortem files in a directory, by name.
fn inside(directory: &str) -> Result<Vec<String>, Failure> {
    let fail = |error| Failure::new(directory, error);
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(directory).map_err(fail)? {
        let path = entry.map_err(fail)?.path();
        let Some(name) = path.to_str().filter(|_| path.is_file()) else {
            continue;
        };
        let is_profile = ENDINGS.iter().any(|ending| name.ends_with(ending));
        if is_profile || read_post_mortem(name).is_ok_and(|file| file.is_some()) {
            paths.push(name.to_owned());
        }
    }
    paths.sort_unstable();
    Ok(paths)
}
