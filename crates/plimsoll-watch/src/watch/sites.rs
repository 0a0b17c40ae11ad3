//! Profiles summed by site.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use super::clean::clean;
use super::tree::{Growing, Node};
use plimsoll_command::growth;

/// The maximum number of sites that are kept of a profile: those with the largest values.
const MAX_SITES: usize = 1000;

/// The maximum number of frames that are kept of a stack.
const MAX_FRAMES: usize = 100;

/// The kinds of profiles that are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Allocations of memory.
    Heap,
    /// Releases of locks for which others waited.
    Mutex,
    /// Waits of threads and tasks.
    Block,
    /// Current stacks of threads and tasks.
    Goroutine,
    /// CPU time.
    Cpu,
    /// Growth of the memory in use. Not a profile, but a page of its own.
    Growth,
}

/// The seconds for which a CPU profile is recorded.
pub const CPU_SECONDS: u64 = 2;

impl Kind {
    /// Returns the name of the profile.
    pub fn name(self) -> &'static str {
        match self {
            Self::Heap => "heap",
            Self::Mutex => "mutex",
            Self::Block => "block",
            Self::Goroutine => "goroutine",
            Self::Cpu => "profile",
            Self::Growth => "growth",
        }
    }

    /// Returns the path of the page, with its parameters.
    pub fn page(self) -> String {
        match self {
            Self::Cpu => format!("/debug/pprof/profile?seconds={CPU_SECONDS}"),
            Self::Growth => growth::PATH.into(),
            _ => format!("/debug/pprof/{}", self.name()),
        }
    }

    /// Returns the values that are kept, the most important first. An empty name selects the only
    /// value of a profile, whatever its name.
    pub fn values(self) -> &'static [&'static str] {
        match self {
            Self::Heap => &[
                "inuse_space",
                "inuse_objects",
                "alloc_space",
                "alloc_objects",
            ],
            Self::Mutex | Self::Block => &["delay", "contentions"],
            Self::Goroutine => &[""],
            Self::Cpu => &["cpu", "samples"],
            Self::Growth => &["bytes/minute", "error", "bytes"],
        }
    }

    /// Returns the label that distinguishes sites in addition to their functions.
    fn label(self) -> Option<&'static str> {
        match self {
            Self::Goroutine => Some("state"),
            Self::Growth => Some("verdict"),
            _ => None,
        }
    }
}

/// A function in a stack. `file` is empty and `line` is 0 if they are unknown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// The name of the function.
    pub function: &'a str,
    /// The source file; empty if unknown.
    pub file: &'a str,
    /// The line; 0 if unknown.
    pub line: i64,
}

/// A sample of a profile: its stack, innermost function first, its labels, and the values of
/// [`Kind::values`].
pub struct Sample<'a> {
    /// The frames, leaf first.
    pub stack: Vec<Frame<'a>>,
    /// The labels, by name.
    pub labels: Vec<(&'a str, &'a str)>,
    /// The values, one for each sample type.
    pub values: Vec<i64>,
}

/// A profile summed by site.
#[derive(Clone, Debug, Default)]
pub struct Sites {
    sites: Vec<Site>,
    /// The tree of calls by the first value, for the heap.
    tree: Vec<Node>,
    /// The time of the request since watching began. `took` is the duration of the request.
    pub at: Duration,
    /// The time that the reading took.
    pub took: Duration,
    /// The time that the profile covers; 0 for an instant, or since the program began.
    pub covered: Duration,
}

/// A site: the innermost function that is not a helper. The caller that pushes to a vector or locks
/// a mutex is of interest, not the vector or the mutex.
#[derive(Clone, Debug, PartialEq)]
pub struct Site {
    /// The function that is shown.
    pub function: String,
    /// The file and line, such as `file.rs:12`; empty if unknown.
    pub place: String,
    /// The text of the label [`Kind::label`] in the samples; empty without one.
    pub label: String,
    /// The values in the order of [`Kind::values`].
    pub values: Vec<f64>,
    /// The increase of each value per second since the previous profile.
    pub rates: Vec<Option<f64>>,
    /// The stack with the largest first value, one line per function, innermost first.
    pub stack: Arc<[String]>,
}

impl Sites {
    /// Adds up samples by site.
    pub fn new<'a>(kind: Kind, samples: impl Iterator<Item = Sample<'a>>) -> Self {
        struct Sum<'a> {
            values: Vec<f64>,
            largest: i64,
            stack: Vec<Frame<'a>>,
        }
        let mut sums: HashMap<(&str, &str, i64, &str), Sum<'a>> = HashMap::new();
        let mut tree = Growing::default();
        for sample in samples {
            let first = sample.values.first().copied().unwrap_or(0);
            if kind == Kind::Heap && first > 0 {
                let has_own = sample.stack.iter().any(|frame| !is_a_tool(frame));
                let shown = sample.stack.iter();
                let shown = shown.filter(|frame| !has_own || !is_a_tool(frame));
                tree.add(shown, first as f64);
            }
            let unknown = Frame {
                function: "(unknown)",
                file: "",
                line: 0,
            };
            let own = sample.stack.iter().find(|frame| !is_a_tool(frame));
            let mut frame = own.or(sample.stack.first()).unwrap_or(&unknown).clone();
            if kind == Kind::Cpu {
                // A function uses CPU time in many lines.
                frame.line = 0;
            }
            let label = kind.label().and_then(|wanted| {
                let mut labels = sample.labels.iter();
                labels.find(|(key, _)| *key == wanted)
            });
            let label = label.map_or("", |(_, text)| text);
            let sum = sums
                .entry((frame.function, frame.file, frame.line, label))
                .or_insert_with(|| Sum {
                    values: vec![0.0; kind.values().len()],
                    largest: i64::MIN,
                    stack: Vec::new(),
                });
            for (sum, &value) in sum.values.iter_mut().zip(&sample.values) {
                *sum += value as f64;
            }
            if first > sum.largest {
                sum.largest = first;
                sum.stack = sample.stack;
            }
        }
        let mut sums: Vec<_> = sums.into_iter().collect();
        sums.sort_by(|(one_key, one), (other_key, other)| {
            let by_value = other.values[0].total_cmp(&one.values[0]);
            by_value.then_with(|| one_key.cmp(other_key))
        });
        sums.truncate(MAX_SITES);
        let sites = sums
            .into_iter()
            .map(|((function, file, line, label), sum)| Site {
                function: clean(function),
                place: clean(&place(file, line)),
                label: clean(label),
                rates: vec![None; sum.values.len()],
                values: sum.values,
                stack: sum.stack.iter().take(MAX_FRAMES).map(line_of).collect(),
            });
        Self {
            sites: sites.collect(),
            tree: tree.nodes(),
            ..Self::default()
        }
    }

    /// Returns the sites, those with the largest first value first.
    pub fn sites(&self) -> &[Site] {
        &self.sites
    }

    /// Returns the tree of calls: each function before its callees.
    pub fn tree(&self) -> &[Node] {
        &self.tree
    }

    /// Computes the rates since the previous profile. The values of a site that is missing there
    /// count as 0. The rate of a value that has fallen is unknown.
    pub fn compare(&mut self, before: &Self) {
        let seconds = self.at.saturating_sub(before.at).as_secs_f64();
        if seconds <= 0.0 {
            return;
        }
        let earlier: HashMap<_, _> = before.sites.iter().map(|site| (site.key(), site)).collect();
        for site in &mut self.sites {
            let earlier = earlier.get(&site.key());
            for at in 0..site.values.len() {
                let risen = site.values[at] - earlier.map_or(0.0, |site| site.values[at]);
                site.rates[at] = (risen >= 0.0).then(|| risen / seconds);
            }
        }
    }
}

impl Site {
    fn key(&self) -> (String, String, String) {
        (
            self.function.clone(),
            self.place.clone(),
            self.label.clone(),
        )
    }
}

/// Returns whether a function is a helper of its callers: a function of the standard library, of C,
/// or of a lock library.
fn is_a_tool(frame: &Frame<'_>) -> bool {
    const TOOLS: [&str; 9] = [
        "__rustc::",
        "core::",
        "alloc::",
        "std::",
        "lock_api::",
        "parking_lot::",
        "parking_lot_core::",
        "plimsoll::",
        "plimsoll_",
    ];
    // The C library's functions that call `main` or the function of a thread, without a file where it has no symbols.
    const STARTS: [&str; 6] = [
        "_start",
        "start_thread",
        "clone",
        "clone3",
        "__clone",
        "__clone3",
    ];
    // The paths of the standard library's sources contain the compiler's version.
    let of_std = frame.file.starts_with("/rustc/") || frame.file.contains("/rustlib/src/");
    let of_c = [".c", ".S", ".h"]
        .iter()
        .any(|end| frame.file.ends_with(end));
    let name = frame.function.trim_start_matches(['<', '&']);
    let is_start = STARTS.contains(&name) || name.starts_with("__libc_start_");
    of_std || of_c || is_start || TOOLS.iter().any(|tool| name.starts_with(tool))
}

fn place(file: &str, line: i64) -> String {
    let name = file.rsplit('/').next().unwrap_or(file);
    match (name, line) {
        ("", _) => String::new(),
        (_, ..=0) => name.into(),
        _ => format!("{name}:{line}"),
    }
}

fn line_of(frame: &Frame<'_>) -> String {
    let place = match (frame.file, frame.line) {
        ("", _) => String::new(),
        (file, ..=0) => format!("  {file}"),
        (file, line) => format!("  {file}:{line}"),
    };
    clean(&format!("{}{place}", frame.function))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame<'a>(function: &'a str, file: &'a str, line: i64) -> Frame<'a> {
        Frame {
            function,
            file,
            line,
        }
    }

    fn sample<'a>(stack: &[Frame<'a>], values: &[i64]) -> Sample<'a> {
        Sample {
            stack: stack.to_vec(),
            labels: vec![("state", "running"), ("thread", "\u{1b}")],
            values: values.to_vec(),
        }
    }

    #[test]
    fn places_are_the_innermost_functions_that_are_no_tools() {
        let push = frame(
            "alloc::vec::Vec<T>::push",
            "/rustc/abc/library/alloc/src/vec.rs",
            5,
        );
        let own = frame("own::keep", "/home/x/src/own.rs", 7);
        let main = frame("own::main", "/home/x/src/main.rs", 1);
        let samples = [
            sample(&[push.clone(), own.clone(), main.clone()], &[10, 1, 20, 2]),
            sample(&[own.clone(), main.clone()], &[30, 1, 40, 2]),
            sample(std::slice::from_ref(&push), &[5, 1, 5, 1]),
            sample(&[], &[1, 1, 1, 1]),
            sample(
                &[
                    frame(
                        "<lock_api::mutex::MutexGuard<R,T> as Drop>::drop",
                        "m.rs",
                        2,
                    ),
                    frame("read", "/x/read.c", 1),
                    own.clone(),
                ],
                &[3, 0, 0, 0],
            ),
            sample(
                &[
                    frame("plimsoll_sys::arch::x86_64::system_call", "a.rs", 1),
                    frame("<std::thread::Thread>::new", "", 0),
                    main,
                ],
                &[2, 1, 1, 1],
            ),
        ];
        let sites = Sites::new(Kind::Heap, samples.into_iter());
        let shown: Vec<_> = sites
            .sites()
            .iter()
            .map(|site| (&*site.function, &*site.place, site.values[0]))
            .collect();
        assert_eq!(
            shown,
            [
                ("own::keep", "own.rs:7", 43.0),
                ("alloc::vec::Vec<T>::push", "vec.rs:5", 5.0),
                ("own::main", "main.rs:1", 2.0),
                ("(unknown)", "", 1.0),
            ]
        );
        assert_eq!(sites.sites()[0].values, [43.0, 2.0, 60.0, 4.0]);
        let stack = [
            "own::keep  /home/x/src/own.rs:7",
            "own::main  /home/x/src/main.rs:1",
        ];
        assert_eq!(*sites.sites()[0].stack, stack, "that of the larger sample");
        assert_eq!(
            sites.sites()[0].label,
            "",
            "states are of threads and tasks"
        );
    }

    #[test]
    fn the_place_in_a_program_in_c_is_its_innermost_function() {
        let stack = [
            frame("keep", "/home/x/keep.c", 3),
            frame("main", "/home/x/main.c", 9),
            frame("__libc_start_main_impl", "./csu/../csu/libc-start.c", 360),
            frame("_start", "", 0),
        ];
        let of_thread = [frame("work", "/home/x/work.c", 5), frame("clone3", "", 0)];
        let samples = [sample(&stack, &[2]), sample(&of_thread, &[1])];
        let sites = Sites::new(Kind::Heap, samples.into_iter());
        let shown: Vec<_> = sites.sites().iter().map(|site| &*site.function).collect();
        assert_eq!(shown, ["keep", "work"]);
    }

    #[test]
    fn threads_differ_by_their_activity() {
        let own = frame("own::work", "own.rs", 7);
        let mut waiting = sample(std::slice::from_ref(&own), &[1]);
        waiting.labels = vec![("state", "wai\u{7}ting")];
        let samples = [sample(&[own], &[2]), waiting];
        let sites = Sites::new(Kind::Goroutine, samples.into_iter());
        let shown: Vec<_> = sites
            .sites()
            .iter()
            .map(|site| (&*site.label, site.values[0]))
            .collect();
        assert_eq!(shown, [("running", 2.0), ("wai?ting", 1.0)]);
    }

    #[test]
    fn rates_are_since_the_profile_before() {
        let profile = |at: u64, values: &[(&'static str, i64)]| {
            let samples = values
                .iter()
                .map(|&(name, value)| sample(&[frame(name, "", 0)], &[value, 1]));
            let mut sites = Sites::new(Kind::Mutex, samples);
            sites.at = Duration::from_secs(at);
            sites
        };
        let before = profile(10, &[("a", 100), ("b", 100)]);
        let mut after = profile(15, &[("a", 200), ("b", 50), ("c", 10)]);
        after.compare(&before);
        let rates: HashMap<_, _> = after
            .sites()
            .iter()
            .map(|site| (&*site.function, site.rates[0]))
            .collect();
        assert_eq!(rates["a"], Some(20.0));
        assert_eq!(rates["b"], None);
        assert_eq!(rates["c"], Some(2.0));
        let mut at_once = profile(10, &[("a", 200)]);
        at_once.compare(&before);
        assert_eq!(at_once.sites()[0].rates[0], None);
    }

    #[test]
    fn profiles_of_any_size_are_cut_to_the_view() {
        let names: Vec<String> = (0..MAX_SITES + 5)
            .map(|number| format!("f{number}"))
            .collect();
        let deep = vec![frame("deep", "", 0); 10 * MAX_FRAMES];
        let samples = names
            .iter()
            .map(|name| sample(&[frame(name, "", 0)], &[1]))
            .chain([sample(&deep, &[i64::MAX]), sample(&deep, &[i64::MAX])]);
        let sites = Sites::new(Kind::Mutex, samples);
        assert_eq!(sites.sites().len(), MAX_SITES);
        assert_eq!(sites.sites()[0].function, "deep");
        assert_eq!(sites.sites()[0].stack.len(), MAX_FRAMES);
    }
}
