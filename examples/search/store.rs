//! The current index, its replacement by a newer one, and the cache of recent results.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use plimsoll::sync::{Mutex, MutexGuard};
use tokio::sync::watch;

use crate::index::{Found, Index};
use crate::popular::Popular;

/// The number of results in the cache.
const CACHED_ANSWERS: usize = 256;

/// An index and the results found in it.
///
/// The cache belongs to the index, so no result is stale. A new index starts with an empty cache. A
/// result that is found in the old index while the new one is published enters the old cache.
pub struct Snapshot {
    pub index: Index,
    cache: Mutex<Cache>,
}

impl Snapshot {
    fn new(index: Index) -> Self {
        Self {
            index,
            cache: Mutex::named("search.cache", Cache::default()),
        }
    }

    /// Searches, unless the result is cached. Two requests may find the same result concurrently,
    /// because a search does not lock the cache.
    pub fn search(&self, terms: Vec<String>, limit: usize) -> Arc<Found> {
        let question = Arc::new(Question { terms, limit });
        if let Some(found) = self.cache().answers.get(&*question) {
            return found.clone();
        }
        let found = Arc::new(self.index.search(&question.terms, limit));
        self.cache().insert(question, found.clone());
        found
    }

    fn cache(&self) -> MutexGuard<'_, Cache> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Question {
    terms: Vec<String>,
    limit: usize,
}

/// The last [`CACHED_ANSWERS`] results.
#[derive(Default)]
struct Cache {
    answers: HashMap<Arc<Question>, Arc<Found>>,
    /// The questions of `answers`, the oldest first.
    order: VecDeque<Arc<Question>>,
}

impl Cache {
    fn insert(&mut self, question: Arc<Question>, found: Arc<Found>) {
        if self.answers.insert(question.clone(), found).is_some() {
            return;
        }
        self.order.push_back(question);
        if self.order.len() > CACHED_ANSWERS {
            if let Some(oldest) = self.order.pop_front() {
                self.answers.remove(&oldest);
            }
        }
    }
}

/// The current index. A request takes a reference and keeps it until it has ended. A new index is
/// built separately and replaces the current one. The old index is freed after its last request.
pub struct Store {
    current: RwLock<Arc<Snapshot>>,
    replaced: AtomicU64,
    pub popular: Popular,
}

impl Store {
    pub fn new(index: Index) -> Self {
        Self {
            current: RwLock::new(Arc::new(Snapshot::new(index))),
            replaced: AtomicU64::new(0),
            popular: Popular::default(),
        }
    }

    pub fn current(&self) -> Arc<Snapshot> {
        self.current
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    pub fn replace(&self, index: Index) {
        let next = Arc::new(Snapshot::new(index));
        // An index takes long to drop, which must not happen under the lock.
        let old = {
            let mut current = self.current.write().unwrap_or_else(PoisonError::into_inner);
            std::mem::replace(&mut *current, next)
        };
        self.replaced.fetch_add(1, Relaxed);
        drop(old);
    }

    /// Returns how often the index was replaced.
    pub fn replaced(&self) -> u64 {
        self.replaced.load(Relaxed)
    }
}

/// Rebuilds the index repeatedly, with a pause between builds, until `stop` becomes true. A failed
/// build leaves the index unchanged; a cause that repeats is reported once.
pub async fn keep_fresh(
    store: Arc<Store>,
    root: Arc<Path>,
    pause: Duration,
    mut stop: watch::Receiver<bool>,
) {
    let mut last_failure = None;
    loop {
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            _ = stop.wait_for(|&stop| stop) => return,
        }
        let build = {
            let (store, root, stop) = (store.clone(), root.clone(), stop.clone());
            tokio::task::spawn_blocking(move || refresh(&store, &root, &stop))
        };
        let failure = match build.await {
            Ok(Ok(())) => None,
            Ok(Err(error)) => Some(error.to_string()),
            Err(_) => Some("the build panicked".to_owned()),
        };
        if let Some(cause) = failure.as_ref().filter(|_| failure != last_failure) {
            let what = format!("the directory {root:?} cannot be indexed again");
            crate::complain(&format_args!("{what}, the old index stays in use: {cause}"));
        }
        last_failure = failure;
    }
}

fn refresh(store: &Store, root: &Path, stop: &watch::Receiver<bool>) -> io::Result<()> {
    let index = Index::build(root, || !*stop.borrow())?;
    // An index whose build was stopped is incomplete.
    if !*stop.borrow() {
        store.replace(index);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Directory;
    use crate::words::terms_of;

    fn store(directory: &Directory) -> Store {
        Store::new(Index::build(directory.path(), || true).unwrap())
    }

    #[test]
    fn the_same_question_is_answered_from_the_cache() {
        let directory = Directory::new();
        directory.write("a", "one two");
        let snapshot = store(&directory).current();
        let first = snapshot.search(terms_of("one two"), 10);
        assert!(Arc::ptr_eq(
            &first,
            &snapshot.search(terms_of("TWO one"), 10)
        ));
        assert!(!Arc::ptr_eq(
            &first,
            &snapshot.search(terms_of("one two"), 11)
        ));
    }

    #[test]
    fn the_cache_is_bounded_and_forgets_the_oldest() {
        let directory = Directory::new();
        let snapshot = store(&directory).current();
        let answers: Vec<_> = (0..=CACHED_ANSWERS)
            .map(|n| snapshot.search(vec![n.to_string()], 10))
            .collect();
        assert_eq!(snapshot.cache().answers.len(), CACHED_ANSWERS);
        assert_eq!(snapshot.cache().order.len(), CACHED_ANSWERS);
        assert!(Arc::ptr_eq(
            &answers[1],
            &snapshot.search(vec!["1".to_owned()], 10)
        ));
        assert!(!Arc::ptr_eq(
            &answers[0],
            &snapshot.search(vec!["0".to_owned()], 10)
        ));
    }

    #[test]
    fn a_new_index_sees_new_files_and_no_old_answers() {
        let directory = Directory::new();
        directory.write("a", "one");
        let store = store(&directory);
        assert_eq!(store.current().search(terms_of("one"), 10).total, 1);
        directory.write("b", "one");
        let (_running, stop) = watch::channel(false);
        refresh(&store, directory.path(), &stop).unwrap();
        assert_eq!(store.current().search(terms_of("one"), 10).total, 2);
        assert_eq!(store.replaced(), 1);
    }

    #[test]
    fn an_old_index_lives_until_its_last_request_is_done() {
        let directory = Directory::new();
        directory.write("a", "one");
        let store = store(&directory);
        let request = store.current();
        let old = Arc::downgrade(&request);
        store.replace(Index::build(directory.path(), || true).unwrap());
        assert_eq!(request.search(terms_of("one"), 10).total, 1);
        drop(request);
        assert!(old.upgrade().is_none());
    }

    #[test]
    fn a_failed_or_abandoned_build_leaves_the_index() {
        let directory = Directory::new();
        directory.write("a", "one");
        directory.write("b", "one");
        let store = store(&directory);
        let (stop, stopped) = watch::channel(false);
        assert!(refresh(&store, &directory.path().join("missing"), &stopped).is_err());
        stop.send_replace(true);
        refresh(&store, directory.path(), &stopped).unwrap();
        assert_eq!(store.replaced(), 0);
        assert_eq!(store.current().search(terms_of("one"), 10).total, 2);
    }
}
