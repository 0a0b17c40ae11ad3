//! Profiles that the program defines.

use plimsoll_checks::profile::{read_profile, read_with_idle};
use plimsoll_testkit::{child, pprof};
use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use plimsoll::profile::{self, Detail, Entry, Error, Format, MAX_CUSTOM, Profile};
use plimsoll::{heap_stats, http, label};

/// A connection, as in a program.
struct Connection {
    _entry: Entry,
}

#[inline(never)]
fn opens(profile: Profile) -> Connection {
    let _entry = black_box(profile.add(0)).unwrap();
    Connection { _entry }
}

#[inline(never)]
fn accepts(profile: Profile) -> Connection {
    black_box(opens(profile))
}

/// Records its caller's position, as a library that opens connections does.
#[inline(never)]
fn opens_for_its_caller(profile: Profile, skip: usize) -> Entry {
    black_box(profile.add(skip)).unwrap()
}

fn text_of(name: &str) -> String {
    let mut text = Vec::new();
    let profile = profile::lookup(name).unwrap();
    profile.write_to(&mut text, Format::Text).unwrap();
    String::from_utf8(text).unwrap()
}

/// Returns how many entries the profile has, as read from its samples.
fn total(name: &str) -> i64 {
    let profile = read_with_idle(name, Detail::Addresses);
    profile.sample.iter().map(|sample| sample.value[0]).sum()
}

#[test]
fn an_entry_is_there_until_it_is_dropped() {
    const NAME: &str = "tests.connections";
    let connections = Profile::new(NAME).unwrap();
    assert_eq!(connections.name(), NAME);
    assert_eq!(connections.count(), 0);
    assert!(text_of(NAME).starts_with("tests.connections profile: total 0\n"));
    assert_eq!(total(NAME), 0);
    let mut open: Vec<_> = (0..3).map(|_| accepts(connections)).collect();
    open.push(opens(connections));
    assert_eq!(open[0]._entry.profile().name(), NAME);
    assert_eq!(
        format!("{:?}", open[0]._entry),
        "Entry { profile: \"tests.connections\", .. }"
    );
    assert_eq!(connections.count(), 4);

    let profile = read_profile(NAME);
    assert_eq!(profile.sample_types(), [(NAME, "count")]);
    let period = profile.period_type.as_ref().unwrap();
    assert_eq!(
        (profile.text(period.name), profile.text(period.unit)),
        (NAME, "count")
    );
    assert_eq!(profile.period, 1);
    let mut counts: Vec<_> = profile
        .at("opens")
        .iter()
        .map(|sample| sample.value[0])
        .collect();
    counts.sort_unstable();
    assert_eq!(counts, [1, 3], "the function that calls `add` is the leaf");
    let accepted = profile
        .at("opens")
        .into_iter()
        .find(|sample| sample.value[0] == 3)
        .unwrap();
    assert!(profile.names(accepted)[1].ends_with("::accepts"));

    let text = text_of(NAME);
    assert!(
        text.starts_with("tests.connections profile: total 4\n3 @ 0x"),
        "{text}"
    );
    assert!(
        text.contains("\n1 @ 0x") && text.contains("pages::custom_profiles::opens+0x"),
        "{text}"
    );
    assert!(!text.contains("# labels"), "{text}");
    assert_eq!(text, text_of(NAME), "the order is always the same");

    // The last entry ends on another thread.
    let last = open.pop();
    thread::spawn(move || drop(last)).join().unwrap();
    assert_eq!((connections.count(), total(NAME)), (3, 3));
    open.clear();
    assert_eq!((connections.count(), total(NAME)), (0, 0));
    assert!(read_profile(NAME).sample.is_empty());
    // After all entries have ended, new ones can be added.
    drop(accepts(connections));
    assert_eq!(total(NAME), 0);
}

#[test]
fn frames_are_skipped_and_no_more_than_32_kept() {
    let skipping = Profile::new("tests.skips").unwrap();
    let names = |entry: Entry| {
        let profile = read_profile("tests.skips");
        assert_eq!(profile.sample.len(), 1);
        let sample = &profile.sample[0];
        drop(entry);
        let names = profile.names(sample).into_iter().map(str::to_owned);
        (sample.location_id.len(), names.collect::<Vec<_>>())
    };
    #[inline(never)]
    fn wants_one(profile: Profile, skip: usize) -> Entry {
        black_box(opens_for_its_caller(profile, skip))
    }
    let (_, plainly) = names(wants_one(skipping, 0));
    assert!(plainly[0].ends_with("opens_for_its_caller"), "{plainly:?}");
    let (_, caller) = names(wants_one(skipping, 1));
    assert!(caller[0].ends_with("wants_one"), "{caller:?}");
    assert_eq!(caller[1..], plainly[2..]);

    #[inline(never)]
    fn deep(profile: Profile, skip: usize, depth: usize) -> Entry {
        black_box(match depth {
            0 => profile.add(skip).unwrap(),
            more => deep(profile, skip, more - 1),
        })
    }
    for skip in [0, 1, 7, 60] {
        let (frames, all) = names(deep(skipping, skip, 120));
        assert_eq!(frames, 32);
        let (leaf, outer) = all.split_at(23);
        assert!(leaf.iter().all(|name| name.ends_with("deep")), "{all:?}");
        assert_eq!(outer[0], "[frames left out]");
        assert!(
            outer[1..].iter().all(|name| !name.ends_with("deep")),
            "{all:?}"
        );
    }
    // As in Go, a single frame stands for the missing stack.
    for skip in [200, 2000, usize::MAX] {
        let entry = skipping.add(skip).unwrap();
        let text = text_of("tests.skips");
        assert!(
            text.starts_with("tests.skips profile: total 1\n1 @\n"),
            "{text}"
        );
        let (frames, all) = names(entry);
        assert_eq!(
            (frames, &all[..]),
            (1, &["[no stack, or all of it skipped]".to_owned()][..])
        );
    }
}

#[test]
fn entries_have_the_labels_of_the_adding_thread() {
    const NAME: &str = "tests.labelled";
    let labelled = Profile::new(NAME).unwrap();
    let mut entries = Vec::new();
    for (tenant, count) in [("a", 3), ("b", 5)] {
        let _tenant = label::with([("tenant", tenant)]);
        entries.extend((0..count).map(|_| accepts(labelled)));
    }
    let _other = label::with([("tenant", "ends")]);
    // Removes the entry of the last tenant.
    entries.pop();
    let profile = read_profile(NAME);
    let of = |tenant| -> i64 {
        let samples = profile.sample.iter();
        let samples = samples.filter(|sample| profile.label(sample, "tenant") == Some(tenant));
        samples.map(|sample| sample.value[0]).sum()
    };
    assert_eq!((of("a"), of("b"), of("ends")), (3, 4, 0));
    let text = text_of(NAME);
    assert!(
        text.contains("\n# labels: {\"tenant\":\"b\"}\n#\t0x"),
        "{text}"
    );
}

#[test]
fn wrong_names_are_errors_that_name_them() {
    let in_use = |name: &str| Error::NameInUse(name.into());
    let unusable = |name: &str| Error::UnusableName(name.into());
    let refused = |name: &str| {
        Profile::new(name)
            .map(|profile| profile.name())
            .unwrap_err()
    };
    assert_eq!(refused(""), Error::EmptyName);
    assert_eq!(
        refused("").to_string(),
        "the name of a profile must not be empty"
    );
    let before = profile::profiles().len();
    for source in [
        "allocs",
        "block",
        "fragmentation",
        "goroutine",
        "goroutineleak",
        "heap",
        "lifetimes",
        "longpoll",
        "mutex",
        "peak",
        "profile",
        "threadcreate",
    ] {
        assert_eq!(refused(source), in_use(source));
    }
    for page in ["cmdline", "symbol", "trace", "wall"] {
        assert_eq!(refused(page), in_use(page));
    }
    let long = "n".repeat(129);
    for name in [
        "a b", "a\n", "\r\nX: y", "é", "\"", "'", "\\", "\0", " ", &long,
    ] {
        assert_eq!(refused(name), unusable(name));
        assert!(refused(name).to_string().contains(&format!("{name:?}")));
    }
    Profile::new("tests.twice").unwrap();
    assert_eq!(refused("tests.twice"), in_use("tests.twice"));
    assert_eq!(
        refused("tests.twice").to_string(),
        "the name of a profile is already in use: tests.twice"
    );
    assert!(profile::profiles().len() > before);
    assert!(profile::lookup("").is_none() && profile::lookup("tests.none").is_none());
    // The longest name.
    assert_eq!(Profile::new(&long[1..]).unwrap().name(), &long[1..]);
}

#[test]
fn built_in_profiles_refuse_entries() {
    for profile in profile::profiles() {
        let name = profile.name();
        if name.starts_with("tests.") || name.starts_with('n') {
            continue;
        }
        let refused = profile.add(0).unwrap_err();
        assert_eq!(refused, Error::BuiltIn(name));
        assert_eq!(
            refused.to_string(),
            format!("cannot add an entry to {name}: the profile is built in")
        );
    }
}

#[test]
fn they_are_listed_and_have_pages() {
    let listed = Profile::new("tests.listed<&>:/%?#").unwrap();
    let _entries = [opens(listed), opens(listed)];
    let found = profile::lookup("tests.listed<&>:/%?#").unwrap();
    assert_eq!(found.count(), 2);
    let _third = found.add(0).unwrap();
    let profiles = profile::profiles();
    let names: Vec<_> = profiles.iter().map(Profile::name).collect();
    assert!(names.is_sorted());
    assert!(names.contains(&listed.name()) && names.contains(&"heap"));

    let get = |page: &str, query: &str| http::handle("GET", &format!("/debug/pprof/{page}"), query);
    let index = String::from_utf8(get("", "").body).unwrap();
    let link = "tests.listed%3C%26%3E%3A%2F%25%3F%23";
    let row = format!(
        "<tr><td>3</td><td><a href='{link}?debug=1'>tests.listed&lt;&amp;&gt;:/%?#</a></td></tr>"
    );
    assert!(index.contains(&row), "{index}");
    let page = get(link, "");
    assert_eq!(page.status, 200);
    let disposition = "attachment; filename=\"tests.listed<&>:/%?#\"";
    let headers = [("Content-Disposition", disposition.to_owned())];
    assert!(
        headers.iter().all(|header| page.headers.contains(header)),
        "{:?}",
        page.headers
    );
    let profile = pprof::Profile::read(&page.body);
    assert_eq!(
        profile
            .sample
            .iter()
            .map(|sample| sample.value[0])
            .sum::<i64>(),
        3
    );
    for debug in ["debug=1", "debug=2"] {
        let text = String::from_utf8(get(link, debug).body).unwrap();
        assert!(
            text.starts_with("tests.listed<&>:/%?# profile: total 3\n"),
            "{text}"
        );
    }
    // The difference over a second is empty here.
    let delta = get(link, "seconds=1");
    assert_eq!(delta.status, 200);
    assert!(pprof::Profile::read(&delta.body).sample.is_empty());
    assert_eq!(get("tests.unlisted", "").status, 404);
}

#[test]
fn one_of_many_concurrent_creators_succeeds() {
    for round in 0..5 {
        let name = format!("tests.race{round}");
        let start = std::sync::Barrier::new(8);
        let made = thread::scope(|scope| {
            let threads: Vec<_> = (0..8)
                .map(|_| {
                    scope.spawn(|| {
                        start.wait();
                        Profile::new(&name)
                    })
                })
                .collect();
            let made = threads.into_iter().map(|thread| thread.join().unwrap());
            let (made, refused): (Vec<_>, Vec<_>) = made.partition(Result::is_ok);
            for refused in refused {
                assert_eq!(refused.unwrap_err(), Error::NameInUse(name.clone()));
            }
            made.len()
        });
        assert_eq!(made, 1);
        let all = profile::profiles();
        assert_eq!(
            all.iter().filter(|profile| profile.name() == name).count(),
            1
        );
    }
}

/// Entries move between threads, and each ends only once.
#[test]
fn entries_come_and_go_while_it_is_read() {
    const NAME: &str = "tests.churn";
    const EACH: usize = 20_000;
    let churn = Profile::new(NAME).unwrap();
    let (over, met) = (AtomicBool::new(false), AtomicBool::new(false));
    let begin = Instant::now();
    thread::scope(|scope| {
        // Continues, if necessary, until the reader has seen an entry.
        let go_on = |number| {
            let met = met.load(Ordering::Relaxed);
            number < EACH || !met && begin.elapsed() < Duration::from_secs(60)
        };
        let works: Vec<_> = (0..3)
            .map(|_| {
                let (send, receive) = mpsc::sync_channel(16);
                scope.spawn(move || receive.iter().for_each(drop::<Connection>));
                scope.spawn(move || {
                    for number in (0..).take_while(|&number| go_on(number)) {
                        let made = if number % 2 == 0 {
                            opens(churn)
                        } else {
                            accepts(churn)
                        };
                        send.send(made).unwrap();
                    }
                })
            })
            .collect();
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                let total = total(NAME);
                // At most the entries in the channels, and those that either end holds.
                assert!((0..=3 * (16 + 2)).contains(&total), "{total}");
                met.fetch_or(total > 0, Ordering::Relaxed);
            }
        });
        for work in works {
            work.join().unwrap();
        }
        over.store(true, Ordering::Relaxed);
    });
    assert!(met.into_inner(), "some reading met some");
    assert_eq!((churn.count(), total(NAME)), (0, 0));
}

#[test]
fn entries_take_no_memory_of_the_programs() {
    fn no_memory() {
        // Other threads may allocate once or twice meanwhile, so the test tries again.
        let takes_none = |round: u64| {
            let name = format!("tests.silent{round}");
            thread::sleep(Duration::from_millis(round));
            let before = heap_stats();
            let silent = Profile::new(&name).unwrap();
            let entries: [_; 8] = std::array::from_fn(|_| silent.add(0).unwrap());
            drop(entries);
            heap_stats().mallocs == before.mallocs
        };
        assert!((0..40).any(takes_none));
    }
    child::run("entries_take_no_memory_of_the_programs", "", no_memory);
}

#[test]
fn the_number_of_profiles_is_limited() {
    fn too_many() {
        let name = |number| format!("tests.{number}");
        for number in 0..MAX_CUSTOM {
            drop(Profile::new(&name(number)).unwrap().add(0).unwrap());
        }
        let refused = Profile::new(&name(MAX_CUSTOM)).unwrap_err();
        assert_eq!(refused, Error::TooManyProfiles(name(MAX_CUSTOM)));
        assert!(refused.to_string().contains("tests.64"), "{refused}");
        // For a name in use, that error takes precedence.
        assert_eq!(
            Profile::new(&name(3)).unwrap_err(),
            Error::NameInUse(name(3))
        );
        let last = profile::lookup(&name(MAX_CUSTOM - 1)).unwrap();
        let _entry = last.add(0).unwrap();
        for profile in profile::profiles() {
            let expected = if profile.name() == last.name() { 1 } else { 0 };
            if profile.name().starts_with("tests.") {
                assert_eq!(total(profile.name()), expected, "{}", profile.name());
            }
        }
    }
    child::run("the_number_of_profiles_is_limited", "", too_many);
}

#[test]
fn the_number_of_sites_is_limited() {
    fn too_many() {
        let full = Profile::new("tests.full").unwrap();
        let mut entries = Vec::new();
        let refused = (0..60_000).find_map(|number| {
            let number: i32 = number;
            let _each = label::with([("number", number.to_string())]);
            match full.add(0) {
                Ok(entry) => {
                    entries.push(entry);
                    None
                }
                Err(refused) => Some((number, refused)),
            }
        });
        let (number, refused) = refused.expect("a MiB is not for so many");
        assert_eq!(refused, Error::NoRoom("tests.full"));
        assert!(refused.to_string().contains("tests.full"), "{refused}");
        assert!(number > 1000);
        assert_eq!(
            (full.count(), total("tests.full")),
            (entries.len(), i64::from(number))
        );
        assert_eq!(
            profile::lost_events().table_full,
            0,
            "nothing is lost unnoticed"
        );
        entries.truncate(10);
        assert_eq!((full.count(), total("tests.full")), (10, 10));
    }
    child::run(
        "the_number_of_sites_is_limited",
        "heap_rate=0,table=1m",
        too_many,
    );
}

/// The child of a fork continues with its parent's entries.
#[test]
fn a_fork_has_the_entries_too() {
    fn forks() {
        let forked = Profile::new("tests.forked").unwrap();
        let first = forked.add(0).unwrap();
        // SAFETY: the child reads a profile and exits.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let _second = forked.add(0).unwrap();
            drop(first);
            let another = Profile::new("tests.of_the_child").unwrap();
            let right = (forked.count(), total("tests.forked"), another.count()) == (1, 1, 0);
            // SAFETY: exits without unwinding the parent's frames.
            unsafe { libc::_exit(if right { 0 } else { 1 }) };
        }
        let status = plimsoll_testkit::child::wait(child);
        assert_eq!(status, 0);
        assert_eq!((forked.count(), total("tests.forked")), (1, 1));
        assert!(profile::lookup("tests.of_the_child").is_none());
    }
    child::run("a_fork_has_the_entries_too", "", forks);
}
