//! Functions that allocate at many sites, for any number of types: each type has its own copies of
//! them and of the standard library's collections.

use std::collections::{BTreeMap, BTreeSet, BinaryHeap, HashMap, HashSet, LinkedList, VecDeque};
use std::fmt::Debug;
use std::hash::Hash;
use std::hint::black_box;
use std::rc::Rc;
use std::sync::Arc;

/// The common traits of the types.
pub(crate) trait Record: Clone + Debug + Ord + Hash {
    fn from_seed(seed: u64) -> Self;
}

/// Defines a type that implements [`Record`], in a separate module.
#[macro_export]
macro_rules! record {
    ($module:ident, $number:literal) => {
        mod $module {
            #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
            pub(crate) struct Record {
                key: u64,
                name: String,
                bytes: [u8; $number + 1],
                kind: Kind,
            }

            #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
            enum Kind {
                Plain,
                Named { name: String, at: usize },
                Several(Vec<u32>),
            }

            impl $crate::records::Record for Record {
                fn from_seed(seed: u64) -> Self {
                    let kind = match seed % 3 {
                        0 => Kind::Plain,
                        1 => Kind::Named {
                            name: seed.to_string(),
                            at: $number,
                        },
                        _ => Kind::Several(vec![seed as u32; 3]),
                    };
                    Self {
                        key: seed ^ $number,
                        name: format!("record {seed}"),
                        bytes: [seed as u8; $number + 1],
                        kind,
                    }
                }
            }
        }
    };
}

fn keep<T>(value: T) {
    std::mem::forget(black_box(value));
}

fn some<T: Record>() -> impl DoubleEndedIterator<Item = T> {
    (0..9).map(T::from_seed)
}

/// Allocates in many different ways, and frees little of it.
pub(crate) fn exercise<T: Record>() {
    keep(some::<T>().collect::<Vec<_>>());
    keep(some::<T>().collect::<VecDeque<_>>());
    keep(some::<T>().collect::<LinkedList<_>>());
    keep(some::<T>().collect::<BTreeSet<_>>());
    keep(some::<T>().collect::<HashSet<_>>());
    keep(some::<T>().collect::<BinaryHeap<_>>());
    keep(
        some::<T>()
            .map(|record| (record.clone(), record))
            .collect::<BTreeMap<_, _>>(),
    );
    keep(
        some::<T>()
            .map(|record| (record.clone(), record))
            .collect::<HashMap<_, _>>(),
    );
    keep(some::<T>().map(Box::new).collect::<Box<[_]>>());
    keep(some::<T>().map(Rc::new).collect::<Rc<[_]>>());
    keep(some::<T>().map(Arc::new).collect::<Arc<[_]>>());
    keep(
        some::<T>()
            .map(|record| format!("{record:?}"))
            .collect::<String>(),
    );
    sorted::<T>();
    grown::<T>();
    mapped::<T>();
    queued::<T>();
}

fn sorted<T: Record>() {
    let mut sorted: Vec<T> = some().rev().collect();
    sorted.sort();
    sorted.dedup();
    sorted.retain(|record| *record != T::from_seed(5));
    keep(sorted);
}

fn grown<T: Record>() {
    let mut grown = Vec::new();
    for record in some::<T>() {
        grown.push(record.clone());
        grown.insert(0, record);
    }
    keep(grown.split_off(3));
    keep(grown.clone());
    keep(grown);
}

fn mapped<T: Record>() {
    let mut map = BTreeMap::new();
    for (at, record) in some::<T>().enumerate() {
        map.entry(record).or_insert_with(Vec::new).push(at);
    }
    keep(map.clone());
    keep(map.split_off(&T::from_seed(4)));
    keep(map);
}

fn queued<T: Record>() {
    let mut queue = VecDeque::new();
    for record in some::<T>() {
        queue.push_front(record.clone());
        queue.push_back(record);
    }
    keep(queue.iter().cloned().collect::<Vec<_>>());
    keep(queue);
}
