//! The output of `plimsoll report` and `plimsoll diff`.

use std::io::{Read, Write};
use std::process::{Command, Stdio};

use crate::command::{Directory, failure_of, plimsoll, stdout_of};
use crate::proto::{Message, Writer, gzip};

const KB: i64 = 1024;

fn heap() -> Writer {
    let mut writer = Writer::new(&[("inuse_objects", "count"), ("inuse_space", "bytes")]);
    writer.labelled(
        &["leaf@3", "inlined@7|outer@9", "main@1"],
        &[2, 600 * KB],
        &[("tenant", "acme")],
        &[("bytes", 300 * KB, "bytes")],
    );
    writer.labelled(
        &["outer@9", "main@2"],
        &[1, 300 * KB],
        &[("tenant", "acme; b")],
        &[("bytes", 100, "")],
    );
    writer.labelled(
        &["leaf@4", "other=src/other.rs@5", "main@2"],
        &[1, 100 * KB],
        &[],
        &[("wait", 3_000_000, "nanoseconds")],
    );
    writer
}

/// Returns the rows of `--top`: name, flat and cumulative value.
fn rows(text: &str) -> Vec<(String, String, String)> {
    text.lines()
        .skip_while(|line| !line.contains("flat%"))
        .skip(1)
        .map(|line| {
            let parts: Vec<&str> = line.split_whitespace().collect();
            let name = parts[5..].join(" ").replace(" (inline)", "");
            (name, parts[0].to_owned(), parts[3].to_owned())
        })
        .collect()
}

fn names(text: &str) -> Vec<String> {
    rows(text).into_iter().map(|(name, ..)| name).collect()
}

#[test]
fn values_of_a_label_are_listed_the_largest_first() {
    let directory = Directory::new("by");
    let mut writer = Writer::new(&[("inuse_space", "bytes")]);
    for (of, kb) in [("Vec<Node>", 30), ("Box<Node>", 50), ("Vec<Node>", 40)] {
        writer.labelled(&["f", "main"], &[kb * KB], &[("type", of)], &[]);
    }
    writer.sample(&["malloc", "main"], &[80 * KB]);
    let file = directory.file("heap", &gzip(&writer.finish()));
    let text = stdout_of(&["report", "--by", "type", &file]);
    assert_eq!(
        text,
        "        flat  flat% type
        80kB 40.00% [none]
        70kB 35.00% Vec<Node>
        50kB 25.00% Box<Node>
"
    );
    let text = stdout_of(&["report", "--by", "type", "-n", "1", "--focus", "^f$", &file]);
    assert!(
        text.ends_with("type\n        70kB 35.00% Vec<Node>\n"),
        "{text}"
    );
    let (line, code) = failure_of(&["report", "--by", "tenant", &file]);
    assert!(
        code == 1 && line.contains("no sample has a label tenant"),
        "{line}"
    );
}

#[test]
fn top_has_the_columns_of_gos_tool() {
    let directory = Directory::new("top");
    let file = directory.file("heap", &gzip(&heap().finish()));
    let text = stdout_of(&["report", &file]);
    assert_eq!(
        text,
        "File: program\nBuild ID: abcdef\nType: inuse_space\n\
         Showing nodes accounting for 1000kB, 100% of 1000kB total\n\
         \x20     flat  flat%   sum%        cum   cum%\n\
         \x20    700kB 70.00% 70.00%      700kB 70.00%  leaf\n\
         \x20    300kB 30.00%   100%      900kB 90.00%  outer\n\
         \x20        0     0%   100%     1000kB   100%  main\n\
         \x20        0     0%   100%      600kB 60.00%  inlined (inline)\n\
         \x20        0     0%   100%      100kB 10.00%  other\n"
    );
    assert_eq!(
        names(&stdout_of(&["report", "--cum", &file])),
        ["main", "outer", "leaf", "inlined", "other"]
    );
    let text = stdout_of(&["report", "-n", "2", "-t", "inuse_objects", &file]);
    assert!(text.contains("Type: inuse_objects\n"), "{text}");
    assert!(text.contains("Showing top 2 nodes out of 5\n"), "{text}");
    assert_eq!(names(&text), ["leaf", "outer"]);
    let text = stdout_of(&["report", "--sample-index=0", "--nodefraction", "0.5", &file]);
    assert!(text.contains("Dropped 1 nodes (cum <= 2)\n"), "{text}");
    let text = stdout_of(&["report", "--unit", "mb", &file]);
    assert_eq!(rows(&text)[0].1, "0.68MB");
}

#[test]
fn a_tree_has_callers_above_and_callees_below() {
    let directory = Directory::new("tree");
    let file = directory.file("heap", &heap().finish());
    for arguments in [
        &["report", "--tree", &file][..],
        &["report", "--peek", "^outer$", &file],
    ] {
        let text = stdout_of(arguments);
        let parts: Vec<&str> = text.split("+-------------\n").collect();
        let outer: Vec<String> = parts
            .iter()
            .find(|part| part.contains("90.00%                  | outer"))
            .unwrap_or_else(|| panic!("{text}"))
            .lines()
            .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
            .filter(|line| line.contains('|'))
            .collect();
        assert_eq!(
            outer,
            [
                "900kB 100% | main",
                "300kB 30.00% 30.00% 900kB 90.00% | outer"
                    .replace("30.00% 30.00%", outer_sum(arguments))
                    .as_str(),
                "600kB 66.67% | inlined (inline)",
            ],
            "{text}"
        );
    }
    // Functions that are not shown are skipped between those that are.
    let text = stdout_of(&[
        "report", "--tree", "-n", "2", "--cum", "--ignore", "other", &file,
    ]);
    let text = stdout_of(&["report", "--tree", "-n", "3", "--cum", &file]) + &text;
    assert!(text.contains("leaf ..."), "{text}");
    let (line, code) = failure_of(&["report", "--peek", "nothing", &file]);
    assert!(
        code == 1 && line.ends_with("no function matches nothing"),
        "{line}"
    );
}

/// Returns the share of `outer`, and the sum of shares down to it.
fn outer_sum(arguments: &[&str]) -> &'static str {
    match arguments[1] {
        "--tree" => "30.00% 100%",
        _ => "30.00% 30.00%",
    }
}

#[test]
fn a_list_has_the_source() {
    let directory = Directory::new("list");
    std::fs::create_dir_all(directory.path("below/src")).unwrap();
    let source: String = (1..=60)
        .map(|line| format!("    line {line}();\n"))
        .collect();
    directory.file("below/src/program.rs", source.as_bytes());
    let file = directory.file("heap", &heap().finish());
    let below = directory.path("below");
    let text = stdout_of(&[
        "report",
        "--list",
        "^leaf$|other",
        "--source-path",
        &below,
        &file,
    ]);
    assert!(
        text.contains("ROUTINE ======================== leaf in src/program.rs\n     700kB      700kB (flat, cum) 70.00% of Total\n"),
        "{text}"
    );
    for line in [
        "         .          .      2:     line 2();",
        "     600kB      600kB      3:     line 3();",
        "     100kB      100kB      4:     line 4();",
        "         .          .      9:     line 9();",
        "         .      100kB      5:",
    ] {
        assert!(text.lines().any(|other| other == line), "{line}\n{text}");
    }
    assert!(!text.contains("line 10();"), "{text}");
    assert!(text.contains("(the source is not below"), "{text}");
}

/// Functions that differ only in their types have one name, and may occur several times in a stack.
#[test]
fn a_list_counts_a_sample_once_for_all_functions_of_a_name() {
    let directory = Directory::new("list-once");
    let message = Message::default;
    let mut profile = message().message(1, &message().number(1, 1).number(2, 2));
    let sample = message().packed(1, [1, 2, 3]).packed(2, [100]);
    profile = profile.message(2, &sample);
    for (id, (name, system_name, line)) in [(3, 3, 1), (4, 5, 250), (4, 6, 250)]
        .into_iter()
        .enumerate()
    {
        let id = id as i64 + 1;
        let line = message().number(1, id).number(2, line);
        let location = message().number(1, id).message(4, &line);
        let function = message()
            .number(1, id)
            .number(2, name)
            .number(3, system_name);
        profile = profile
            .message(4, &location)
            .message(5, &function.number(5, 260 - id));
    }
    for text in ["", "space", "bytes", "leaf", "call_once", "h1", "h2"] {
        profile = profile.bytes(6, text.as_bytes());
    }
    let file = directory.file("profile", &profile.0);
    let text = stdout_of(&["report", "--list", "call_once", &file]);
    let line = text
        .lines()
        .find(|line| line.contains("(flat, cum)"))
        .unwrap();
    assert!(line.contains("100B (flat, cum) 100%"), "{text}");
    let line = text.lines().find(|line| line.contains(" 250")).unwrap();
    assert!(line.contains("100B"), "{text}");
    // Filters do not match names that are not shown.
    assert!(names(&stdout_of(&["report", "--focus", "^h1$", &file])).is_empty());
    assert!(!names(&stdout_of(&["report", "--focus", "^call_once$", &file])).is_empty());
}

#[test]
fn folded_stacks_are_lines_with_a_value() {
    let directory = Directory::new("folded");
    let mut writer = heap();
    writer.sample(&["<[u8; 4]>::f"], &[1, 5]);
    writer.sample(&["leaf@4", "outer@9", "main@7"], &[1, 1]);
    writer.sample(&["leaf@4", "outer@9", "main@8"], &[1, 2]);
    let file = directory.file("heap", &writer.finish());
    let mut lines: Vec<String> = stdout_of(&["report", "--folded", &file])
        .lines()
        .map(str::to_owned)
        .collect();
    lines.sort();
    assert_eq!(
        lines,
        [
            "<[u8: 4]>::f 5",
            "main;other;leaf 102400",
            "main;outer 307200",
            "main;outer;inlined;leaf 614400",
            "main;outer;leaf 3",
        ]
    );
}

#[test]
fn filters_choose_samples_and_shares_stay_of_all() {
    let directory = Directory::new("filters");
    let file = directory.file("heap", &heap().finish());
    let leaf = |arguments: &[&str]| {
        let text = stdout_of(&[&["report", "--unit", "kb", &file], arguments].concat());
        let row = rows(&text).into_iter().find(|row| row.0 == "main");
        row.map(|row| row.2)
    };
    let all = Some("1000kB".to_owned());
    let value = |value: &str| Some(value.to_owned());
    assert_eq!(leaf(&[]), all);
    assert_eq!(leaf(&["--focus", "^outer$"]), value("900kB"));
    assert_eq!(leaf(&["--focus", "other.rs"]), value("100kB"));
    assert_eq!(leaf(&["--ignore", "inlined|other"]), value("300kB"));
    assert_eq!(
        leaf(&["--focus", "outer", "--ignore", "inlined"]),
        value("300kB")
    );
    assert_eq!(leaf(&["--tag", "tenant=acme"]), value("600kB"));
    assert_eq!(leaf(&["--tag", "tenant=acme.*"]), value("900kB"));
    assert_eq!(leaf(&["--tag", "tenant=acme; b"]), value("300kB"));
    assert_eq!(leaf(&["--tag", "nant.ac"]), value("900kB"));
    assert_eq!(leaf(&["--tag", "bytes=1k:"]), value("600kB"));
    assert_eq!(leaf(&["--tag", "bytes=:1kb"]), value("300kB"));
    assert_eq!(leaf(&["--tag", "bytes=100"]), value("300kB"));
    assert_eq!(leaf(&["--tag", "bytes=100:400k"]), value("900kB"));
    assert_eq!(leaf(&["--tag", "wait=2ms:4ms"]), value("100kB"));
    assert_eq!(leaf(&["--tag", "wait=4ms:"]), None);
    assert_eq!(leaf(&["--tag", "tenant=acme", "--tag", "bytes=100"]), None);
    let text = stdout_of(&["report", "--focus", "other", &file]);
    assert!(
        text.contains("accounting for 100kB, 10.00% of 1000kB total"),
        "{text}"
    );
}

#[test]
fn a_difference_has_signs_and_shares_of_the_base() {
    let directory = Directory::new("difference");
    let types = [("inuse_space", "bytes"), ("only_here", "count")];
    let mut base = Writer::new(&[("inuse_space", "bytes")]);
    base.sample(&["gone", "main"], &[100]);
    base.sample(&["same", "main"], &[50]);
    base.sample(&["less", "main"], &[50]);
    // Ids and order differ from the base.
    let mut new = Writer::new(&types);
    new.ids = (1000, 7);
    new.sample(&["more", "main"], &[60, 1]);
    new.sample(&["less", "main"], &[20, 1]);
    new.sample(&["same", "main"], &[50, 1]);
    let (base, new) = (
        directory.file("base", &base.finish()),
        directory.file("new", &gzip(&new.finish())),
    );
    let text = stdout_of(&["diff", "--nodefraction", "0", &base, &new]);
    assert_eq!(
        text,
        stdout_of(&["report", "--nodefraction=0", "--base", &base, &new])
    );
    assert!(
        text.contains("Showing nodes accounting for -70B, -35.00% of the base's 200B\n"),
        "{text}"
    );
    let row =
        |name: &str, flat: &str, cum: &str| (name.to_owned(), flat.to_owned(), cum.to_owned());
    assert_eq!(
        rows(&text),
        [
            row("gone", "-100B", "-100B"),
            row("more", "+60B", "+60B"),
            row("less", "-30B", "-30B"),
            row("main", "0", "-70B"),
        ]
    );
    assert!(text.contains("  +60B +30.00% -20.00%"), "{text}");
    // Scales the profile as if its total were 200, too.
    let text = stdout_of(&["diff", "--normalize", "--nodefraction=0", &base, &new]);
    assert_eq!(rows(&text)[1], row("more", "+92B", "+92B"));
    let folded = stdout_of(&["diff", "--folded", &base, &new]);
    let mut folded: Vec<&str> = folded.lines().collect();
    folded.sort_unstable();
    assert_eq!(folded, ["main;gone -100", "main;less -30", "main;more 60"]);
    let json: serde_json::Value =
        serde_json::from_str(&stdout_of(&["diff", "--json", &base, &new])).unwrap();
    assert_eq!(json["functions"][0]["name"], "gone");
    assert_eq!(json["functions"][0]["flat"], -100);
    assert_eq!(json["total"], 200);

    let mut other = Writer::new(&[("delay", "nanoseconds")]);
    other.sample(&["main"], &[1]);
    let other = directory.file("other", &other.finish());
    let (line, _) = failure_of(&["diff", &base, &other]);
    assert!(
        line.contains("no sample type in common with the base: delay, and inuse_space"),
        "{line}"
    );
}

#[test]
fn invalid_arguments_end_with_status_2() {
    let directory = Directory::new("arguments");
    let file = directory.file("heap", &heap().finish());
    for (arguments, why) in [
        (&["--focus", "("][..], "--focus (: unclosed group"),
        (&["--tag", "a=("], "--tag"),
        (&["--peek", "["], "--peek ["),
        (
            &["-t", "nothing"],
            "no sample type nothing; available: inuse_objects, inuse_space",
        ),
        (&["-t", "2"], "no sample type 2"),
        (&["--unit", "ms"], "bytes cannot be shown in ms"),
        (&["--nodefraction", "2"], "2 is not between 0 and 1"),
    ] {
        let (line, code) = failure_of(&[&["report", &file], arguments].concat());
        assert!(code == 2 && line.contains(why), "{line}");
    }
    for arguments in [
        &["report", &file, "--top", "--tree"][..],
        &["report"],
        &["diff", &file],
    ] {
        assert_eq!(plimsoll(arguments).status.code(), Some(2), "{arguments:?}");
    }
    let missing = directory.path("missing/flame.svg");
    let (line, code) = failure_of(&["report", "--svg", &missing, &file]);
    assert!(code == 1 && line.contains(&missing), "{line}");
}

#[test]
fn a_closed_pipe_ends_the_report_quietly() {
    let directory = Directory::new("pipe");
    let mut writer = Writer::new(&[("inuse_space", "bytes")]);
    for number in 0..20_000 {
        writer.sample(&[&format!("function{}", number % 500), "main"], &[number]);
    }
    let file = directory.file("heap", &writer.finish());
    // The output exceeds a pipe's capacity.
    for view in ["--svg=-", "--tree", "--folded"] {
        let mut child = Command::new(env!("CARGO_BIN_EXE_plimsoll"))
            .args(["report", view, "-n", "0", "--nodefraction", "0", &file])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut first = [0; 10];
        child.stdout.take().unwrap().read_exact(&mut first).unwrap();
        let output = child.wait_with_output().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stderr), "", "{view}");
        assert!(output.status.success(), "{view}");
    }
}

#[test]
fn a_profile_comes_from_standard_input() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_plimsoll"))
        .args(["report", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    // The input arrives in pieces; the first is too short to identify the format.
    let bytes = gzip(&heap().finish());
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(&bytes[..1]).unwrap();
    stdin.flush().unwrap();
    stdin.write_all(&bytes[1..]).unwrap();
    drop(stdin);
    let output = child.wait_with_output().unwrap();
    assert!(String::from_utf8_lossy(&output.stdout).contains("1000kB total"));
}

#[test]
fn comments_of_a_profile_are_shown() {
    let directory = Directory::new("comments");
    let mut writer = heap();
    let comment = writer.string("estimated \u{1b}[31m");
    writer.number(13, comment);
    writer.number(9, 1_700_000_000_000_000_000);
    writer.number(10, 2_500_000_000);
    let file = directory.file("heap", &writer.finish());
    // Control characters do not reach the terminal.
    assert_eq!(
        stdout_of(&["report", "--comments", &file]),
        "estimated \u{fffd}[31m\n"
    );
    let text = stdout_of(&["report", &file]);
    assert!(
        text.contains("Time: 2023-11-14 22:13:20 UTC\nDuration: 2.50s\n"),
        "{text}"
    );
}

#[test]
fn characters_that_a_terminal_obeys_are_shown_by_their_numbers() {
    let directory = Directory::new("obeyed");
    let mut writer = Writer::new(&[("inuse\u{202e}_space", "bytes")]);
    let leaf = "leaf\u{202e}txt=src/\u{2066}a.rs@1";
    let value = ("tenant", "acme\u{2067}");
    writer.labelled(&[leaf, "main\u{feff}@2"], &[100], &[value], &[]);
    let comment = writer.string("comment\u{200f}");
    writer.number(13, comment);
    let file = directory.file("heap", &writer.finish());
    for view in [
        &["--top"][..],
        &["--tree"],
        &["--peek", "leaf"],
        &["--list", "leaf"],
        &["--folded"],
        &["--comments"],
        &["--svg"],
        &["--base", &file],
    ] {
        let text = stdout_of(&[&["report", &file], view].concat());
        let obeyed = |letter| {
            matches!(
                letter,
                '\u{200f}' | '\u{202e}' | '\u{2066}' | '\u{2067}' | '\u{feff}'
            )
        };
        assert!(!text.contains(obeyed), "{view:?}: {text}");
        let escaped = if view == ["--comments"] {
            "200f"
        } else {
            "202e"
        };
        assert!(
            text.contains(&format!("\\u{{{escaped}}}")),
            "{view:?}: {text}"
        );
    }
}

#[test]
fn a_list_opens_only_regular_files_below_the_source_path() {
    let directory = Directory::new("list-outside");
    std::fs::create_dir_all(directory.path("below/src")).unwrap();
    let secret = directory.file("secret", b"the secret\n");
    for (name, to) in [("link", &secret), ("device", &"/dev/tty".to_owned())] {
        std::os::unix::fs::symlink(to, directory.path(&format!("below/src/{name}"))).unwrap();
    }
    let pipe = directory.path("below/src/pipe");
    let made = Command::new("mkfifo").arg(&pipe).status().unwrap();
    assert!(made.success());
    let above = format!("{}/../secret", directory.path("below"));
    let below = directory.path("below");
    for file in [
        &secret,
        &above,
        "src/link",
        "src/device",
        &pipe,
        "/dev/zero",
    ] {
        let mut writer = Writer::new(&[("inuse_space", "bytes")]);
        writer.sample(&[&format!("leaf={file}@1")], &[100]);
        let profile = directory.file("heap", &writer.finish());
        let list = [
            "report",
            &profile,
            "--list",
            "leaf",
            "--source-path",
            &below,
        ];
        let text = stdout_of(&list);
        assert!(text.contains("(the source is not below"), "{file}: {text}");
        assert!(!text.contains("the secret"), "{file}: {text}");
        if file == secret {
            let text = stdout_of(&["report", &profile, "--list", "leaf", "--source-path", "/"]);
            assert!(text.contains("1: the secret"), "{text}");
        }
    }
}
