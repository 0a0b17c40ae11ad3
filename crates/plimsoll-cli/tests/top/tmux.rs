//! `plimsoll top` on a terminal: tests press keys and compare the screen.

use std::time::{Duration, Instant};

use crate::fake::{Answer, Fake, TOO_LONG};
use crate::pane::Pane;
use crate::port::Port;

/// Returns the sites on the screen, from the top.
fn places(screen: &str) -> Vec<&str> {
    let lines = screen.lines();
    let places = lines.filter_map(|line| line.find("own::").map(|at| &line[at..]));
    places.collect()
}

/// Records the terminal's modes, runs `plimsoll top`, prints its exit code, and records the modes
/// again.
fn watch(pane: &Pane, environment: &str, arguments: &str) {
    let (before, after) = (pane.file("before"), pane.file("after"));
    let top = pane.top(arguments);
    pane.command("clear; echo what was there before");
    // Waits for the clear screen, because the terminal echoes typed text at once.
    pane.wait("a clear screen", |screen| {
        screen.starts_with("what was there before\nREADY>")
    });
    pane.command(&format!(
        "stty -a > {before}; {environment} {top}; echo code $?; stty -a > {after}"
    ));
}

/// Asserts that the terminal is as it was before `plimsoll top`; returns the screen.
fn assert_given_back(pane: &Pane, code: u32) -> String {
    let screen = pane.wait_for(&format!("code {code}\n"));
    let first = screen.lines().next();
    assert_eq!(first, Some("what was there before"), "{screen}");
    assert_eq!(pane.read_file("after"), pane.read_file("before"));
    assert_eq!(pane.property("alternate_on"), "0");
    assert_eq!(pane.property("cursor_flag"), "1");
    screen
}

#[test]
fn keys_change_the_view() {
    let fake = Fake::start();
    let Some(pane) = Pane::open(80, 24) else {
        return;
    };
    watch(
        &pane,
        "",
        &format!("{} --interval 0.2 --profile-interval 0.2", fake.url()),
    );
    // Waits for related texts together, because a screen may be read while it is drawn.
    let by_size = [
        "own::large own.rs:1",
        "own::many own.rs:2",
        "own::rare own.rs:3",
    ];
    pane.wait("a table by size", |screen| {
        screen.contains("heap       12.0 MiB") && places(screen) == by_size
    });
    assert_eq!(pane.property("alternate_on"), "1");
    // Sorts the table.
    pane.type_letters("2");
    pane.wait_for("in the profile 12.0 MiB");
    pane.type_letters("s");
    let by_objects = [
        "own::many own.rs:2",
        "own::large own.rs:1",
        "own::rare own.rs:3",
    ];
    pane.wait("a table by objects", |screen| {
        screen.contains("OBJECTS▼") && places(screen) == by_objects
    });
    pane.type_letters("r");
    let reversed = [
        "own::rare own.rs:3",
        "own::large own.rs:1",
        "own::many own.rs:2",
    ];
    pane.wait("the table reversed", |screen| {
        screen.contains("OBJECTS▲") && places(screen) == reversed
    });
    // Filters the table.
    pane.type_letters("/larg");
    let filtered = pane.wait_for("filter: larg_");
    assert_eq!(places(&filtered), ["own::large own.rs:1"]);
    pane.press("Enter");
    pane.wait_for("reading  filter: larg  ");
    pane.press("Escape");
    pane.wait("all rows", |screen| {
        places(screen).len() == 3 && !screen.contains("filter:")
    });
    // Opens a stack.
    pane.press("End");
    pane.press("Enter");
    pane.wait("a stack", |screen| {
        screen.contains("  own::many  /x/own.rs:2") && places(screen).len() == 2
    });
    pane.press("Escape");
    pane.wait("a table", |screen| places(screen).len() == 3);
    // Opens the help.
    pane.type_letters("?");
    pane.wait_for("Press any key to return.");
    pane.press("Space");
    pane.wait("the page", |screen| screen.contains("OBJECTS▲"));
    // Changes the interval.
    pane.type_letters("+");
    pane.wait_for("every 400 ms");
    pane.type_letters("--");
    pane.wait_for("every 100 ms");
    for (key, text) in [
        ("3", "300  23.1 %"),
        ("4", "waiter   3.00 s"),
        ("5", "own::run own.rs:7"),
        ("6", "No collector is attached"),
        ("7", "own::computes own.rs"),
        ("8", "leaking         own::remembers own.rs:8"),
        ("9", "## own::rare"),
    ] {
        pane.type_letters(key);
        pane.wait_for(text);
    }
    pane.press("Tab");
    pane.wait_for("peak seen");
    pane.type_letters("q");
    assert_given_back(&pane, 0);
}

#[test]
fn a_view_that_stands_still_does_not_change() {
    let fake = Fake::start();
    let Some(pane) = Pane::open(80, 24) else {
        return;
    };
    watch(
        &pane,
        "",
        &format!("{} --interval 0.1 --profile-interval 0.1", fake.url()),
    );
    pane.wait("a table", |screen| places(screen).len() == 3);
    // Before the pause, the figures change.
    fake.change(|figures| figures.heap_mib = 13);
    pane.wait_for("heap       13.0 MiB");
    pane.type_letters("p");
    pane.wait_for("PAUSED");
    let figures = |screen: &str| {
        let lines: Vec<_> = screen.lines().collect();
        lines[..lines.len() - 1].join("\n")
    };
    let stopped = figures(&pane.screen());
    fake.change(|figures| figures.heap_mib = 77);
    fake.wait_for_requests("/metrics", 5);
    // The last line shows that the view was redrawn since.
    pane.wait("time goes by", |screen| {
        screen.contains("PAUSED") && !screen.contains("PAUSED 0 s")
    });
    let profiles = fake.asked("/debug/pprof/heap");
    assert_eq!(figures(&pane.screen()), stopped);
    fake.wait_for_requests("/metrics", 5);
    assert_eq!(
        fake.asked("/debug/pprof/heap"),
        profiles,
        "no page shows them"
    );
    pane.press("Space");
    pane.wait_for("heap       77.0 MiB");
    pane.wait("going on", |screen| !screen.contains("PAUSED"));
    pane.press("C-c");
    assert_given_back(&pane, 0);
}

#[test]
fn signals_leave_the_terminal_as_it_was() {
    let fake = Fake::start();
    for (signal, code) in [("TERM", 143), ("INT", 130), ("HUP", 129), ("QUIT", 131)] {
        let Some(pane) = Pane::open(80, 24) else {
            return;
        };
        // Prevents the core dump of SIGQUIT.
        pane.command("ulimit -c 0");
        // Without the trap, the interrupted shell drops the rest of the line.
        watch(&pane, "trap : INT;", &fake.url());
        pane.wait("a table", |screen| places(screen).len() == 3);
        pane.signal(signal);
        assert_given_back(&pane, code);
    }
}

#[test]
fn a_terminal_that_is_hung_up_is_the_end() {
    let fake = Fake::start();
    let Some(pane) = Pane::open(80, 24) else {
        return;
    };
    watch(&pane, "", &fake.url());
    pane.wait("a table", |screen| places(screen).len() == 3);
    let process = format!("/proc/{}/stat", pane.read_file("pid").trim());
    pane.hang_up();
    let start = Instant::now();
    // The ended process may remain a zombie of its parent.
    while std::fs::read_to_string(&process).is_ok_and(|stat| !stat.contains(") Z ")) {
        assert!(start.elapsed() < TOO_LONG, "plimsoll top continues");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
#[cfg(debug_assertions)]
fn panics_leave_the_terminal_as_it_was() {
    let fake = Fake::start();
    for (place, code) in [("view", 101), ("source", 1)] {
        let Some(pane) = Pane::open(200, 24) else {
            return;
        };
        let environment = format!("RUST_BACKTRACE=0 PLIMSOLL_TOP_PANICS_IN={place}");
        watch(&pane, &environment, &fake.url());
        let screen = assert_given_back(&pane, code);
        let said = format!("a panic in the {place} was requested");
        assert!(screen.contains(&said), "{screen}");
    }
}

#[test]
fn a_stopped_view_gives_the_terminal_back() {
    let fake = Fake::start();
    let Some(pane) = Pane::open(80, 24) else {
        return;
    };
    pane.command("clear; set -m; echo what was there before");
    pane.wait_for("\nREADY>");
    let (before, stopped, after) = (
        pane.file("before"),
        pane.file("stopped"),
        pane.file("after"),
    );
    pane.command(&format!("stty -a > {before}; {}", pane.top(&fake.url())));
    pane.wait("a table", |screen| places(screen).len() == 3);
    // By the key, by the key's signal, and by SIGSTOP, which no process can handle.
    for how in ["key", "TSTP", "STOP"] {
        match how {
            "key" => pane.press("C-z"),
            signal => pane.signal(signal),
        }
        if how == "STOP" {
            // The program could not restore the screen, so the shell draws over it. In its terminal modes a line feed
            // does not return to the margin, so the prompt may be at the end of a line.
            pane.wait(how, |screen| screen.replace('\n', "").contains("READY>"));
        } else {
            let screen = pane.wait(how, |screen| {
                screen.contains("what was there before") && screen.trim_end().ends_with("READY>")
            });
            assert!(!screen.contains("peak seen"), "{screen}");
            let _ = std::fs::remove_file(&stopped);
            pane.command(&format!("stty -a > {stopped}"));
            assert_eq!(pane.read_file("stopped"), pane.read_file("before"));
        }
        // In the terminal modes that the program left, a line feed ends a line.
        pane.type_letters("fg");
        pane.press("C-j");
        let again = |screen: &str| places(screen).len() == 3 && !screen.contains("READY");
        pane.wait("a table again", again);
        // Keys reach the program immediately, one by one.
        pane.type_letters("3");
        pane.wait_for("300  23.1 %");
        pane.type_letters("1");
        pane.wait("a table again", again);
    }
    pane.type_letters("q");
    pane.wait("an end", |screen| screen.trim_end().ends_with("READY>"));
    pane.command(&format!("stty -a > {after}"));
    assert_eq!(pane.read_file("after"), pane.read_file("before"));
}

/// Returns the parameters of all escape sequences that set the appearance of text.
fn looks(screen: &str) -> Vec<u32> {
    let sequences = screen.split("\u{1b}[").skip(1);
    let sequences = sequences.filter_map(|text| text.split_once('m').map(|(numbers, _)| numbers));
    let numbers = sequences.flat_map(|numbers| numbers.split([';', ':']));
    numbers.filter_map(|number| number.parse().ok()).collect()
}

#[test]
fn output_without_colour_and_unicode_has_neither() {
    let fake = Fake::start();
    let is_colour = |number: &u32| matches!(number, 30..=38 | 40..=48 | 90..=107);
    for (environment, coloured, unicode) in [
        ("LC_ALL=C.UTF-8", true, true),
        ("NO_COLOR=1", false, true),
        ("LC_ALL=C", true, false),
        ("NO_COLOR=1 LC_ALL=C", false, false),
    ] {
        let Some(pane) = Pane::open(80, 24) else {
            return;
        };
        watch(
            &pane,
            environment,
            &format!("{} --interval 0.1", fake.url()),
        );
        // Waits for a graph, too.
        pane.wait("a table", |screen| {
            places(screen).len() == 3 && screen.contains("heap  ")
        });
        fake.wait_for_requests("/metrics", 3);
        for (page, text) in [("1", "peak seen"), ("2", "in the profile"), ("4", "waiter")] {
            pane.type_letters(page);
            pane.wait_for(text);
            let looks = looks(&pane.coloured_screen());
            assert_eq!(
                looks.iter().any(is_colour),
                coloured,
                "{environment} {looks:?}"
            );
            pane.wait(environment, |screen| {
                screen.contains(text) && screen.is_ascii() != unicode
            });
        }
        pane.type_letters("q");
        assert_given_back(&pane, 0);
    }
}

#[test]
fn terminals_may_change_their_size() {
    let fake = Fake::start();
    let Some(pane) = Pane::open(120, 40) else {
        return;
    };
    watch(&pane, "", &fake.url());
    let columns = |screen: &str| screen.lines().nth(2).map(|line| line.contains("trend"));
    pane.wait("three columns", |screen| columns(screen) == Some(true));
    pane.resize(80, 24);
    // Nothing of the larger screen remains, either.
    pane.wait("two columns", |screen| {
        columns(screen) == Some(false) && screen.contains("?: help  q: quit")
    });
    pane.resize(30, 8);
    pane.wait("a status on the last line", |screen| {
        screen.lines().count() == 8
            && screen
                .lines()
                .last()
                .is_some_and(|line| line.contains("reading"))
    });
    pane.resize(1, 1);
    // Keys still reach the program.
    pane.type_letters("2");
    pane.resize(200, 60);
    pane.wait_for("in the profile 12.0 MiB");
    pane.type_letters("q");
    pane.wait_for("code 0");
    // Except for its size, the terminal is as it was.
    let modes = |name| {
        pane.read_file(name)
            .split_once('\n')
            .map(|(_, modes)| modes.to_owned())
    };
    assert_eq!(modes("after"), modes("before"));
}

#[test]
fn an_ended_program_is_shown_as_gone_until_it_returns() {
    let port = Port::new();
    let fake = Fake::start_at(port.address());
    let Some(pane) = Pane::open(80, 24) else {
        return;
    };
    watch(&pane, "", &format!("{} --interval 0.1", fake.url()));
    pane.wait("a table", |screen| places(screen).len() == 3);
    fake.answer("/metrics", Answer::Status(500));
    let screen = pane.wait("a complaint", |screen| {
        screen.contains("NO FIGURES ") && screen.contains(" s, retrying: ")
    });
    assert!(
        screen.contains("heap       12.0 MiB"),
        "the last figures stay visible: {screen}"
    );
    fake.answer("/metrics", Answer::Fine);
    pane.wait_for(" reading  ");
    drop(fake);
    // At first, a request in progress may have had half a response.
    let screen = pane.wait_for("retrying: no server listens");
    assert!(screen.contains(" GONE "), "{screen}");
    // The next program at this address has allocated less.
    let fake = Fake::start_at(port.address());
    fake.change(|figures| (figures.heap_mib, figures.allocated_mib) = (3, 5));
    let screen = pane.wait_for("restarted 1x");
    assert!(screen.contains("heap       3.00 MiB"), "{screen}");
    pane.type_letters("q");
    assert_given_back(&pane, 0);
}

#[test]
fn a_hanging_program_does_not_block_the_view() {
    let fake = Fake::start();
    for page in ["/debug/pprof/heap", "/debug/pprof/cmdline"] {
        fake.answer(page, Answer::Silence);
    }
    let Some(pane) = Pane::open(80, 24) else {
        return;
    };
    watch(&pane, "", &format!("{} --interval 0.1", fake.url()));
    pane.wait_for("Waiting for the profile.");
    fake.answer("/metrics", Answer::Drip);
    fake.wait_for_requests("/metrics", 1);
    pane.type_letters("?");
    pane.wait_for("Press any key to return.");
    pane.type_letters(" 3");
    pane.wait_for("300  23.1 %");
    pane.type_letters("q");
    assert_given_back(&pane, 0);
}

#[test]
fn hostile_names_do_not_steer_the_terminal() {
    let fake = Fake::start();
    let hostile = "own::\u{1b}]2;PWNED\u{7}\u{1b}[2J\u{1b}[5;5H\u{9b}31mx\u{202e}検索\r\nend";
    fake.change(|figures| {
        let stack = vec![(hostile.to_owned(), "own.rs".to_owned(), 1); 3];
        figures.heap = vec![(stack, [1 << 20, 1, 1, 1])];
    });
    let mut line = b"fake\0".to_vec();
    line.extend(hostile.as_bytes());
    fake.answer("/debug/pprof/cmdline", Answer::Body(line));
    let Some(pane) = Pane::open(120, 24) else {
        return;
    };
    watch(&pane, "", &fake.url());
    let named = pane.property("pane_title");
    // The reader of profiles replaces control characters by U+FFFD.
    let row = "own::?]2;PWNED??[2J?[5;5H?31mx検索??end".replace('?', "\u{fffd}");
    let title = "own::?]2;PWNED??[2J?[5;5H?31mx検索  end";
    // Two threads request them, in either order.
    pane.wait("the row and the title", |screen| {
        let mut lines = screen.lines();
        lines.next().is_some_and(|line| line.contains(title))
            && lines.any(|line| line.starts_with(" 1.00 MiB") && line.contains(&row))
    });
    pane.press("Enter");
    pane.wait("its stack", |screen| screen.matches(&row).count() == 4);
    assert_eq!(pane.property("pane_title"), named);
    pane.type_letters("q");
    assert_given_back(&pane, 0);
}
