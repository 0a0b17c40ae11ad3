//! Flame graphs and reports for browsers are single files, and their interactive functions work.
//! `PLIMSOLL_CHROMIUM` names the Chromium program; without that variable, the browser is not tried.

use std::path::Path;
use std::process::{Command, Stdio};

use base64::Engine;
use plimsoll_pprof::{Limits, Profile};
use plimsoll_testkit::tools::chromium;
use serde_json::Value;

use crate::command::{Directory, failure_of, stdout_of};
use crate::proto::Writer;

fn profile() -> Vec<u8> {
    let mut writer = Writer::new(&[("inuse_space", "bytes")]);
    writer.sample(&["leaf", "work<T>", "main"], &[600]);
    writer.sample(&["alloc & \"free\"", "work<T>", "main"], &[200]);
    writer.sample(&["leaf", "other", "main"], &[100]);
    writer.sample(&["idle"], &[100]);
    writer.finish()
}

/// Asserts that the file loads nothing: its only address is SVG's own namespace.
fn check_self_contained(text: &str) {
    let text = text.replace("http://www.w3.org/2000/svg", "");
    for outside in [
        "http:",
        "https:",
        "//cdn",
        "@import",
        "url(",
        "src=",
        "<link rel=\"style",
    ] {
        assert!(!text.contains(outside), "{outside}");
    }
}

/// Returns the titles of the frames.
fn titles(text: &str) -> Vec<&str> {
    text.split("<title>")
        .skip(1)
        .filter_map(|rest| rest.split("</title>").next())
        .filter(|title| title.contains('\n'))
        .collect()
}

#[test]
fn a_picture_is_written_to_where_people_want_it() {
    let directory = Directory::new("flame-output");
    let (file, other) = ("heap.pb", "other.pb");
    let [file, other] = [file, other].map(|name| directory.file(name, &profile()));
    let out = directory.path("out.html");
    for (view, end) in [("--html", "</html>\n"), ("--svg", "</svg>\n")] {
        let expected = stdout_of(&["report", &file, view, "-"]);
        assert!(expected.ends_with(end));
        for arguments in [
            &["report", view, &file][..],
            &["report", &file, view],
            &["report", &file, view, "-o", "-"],
        ] {
            assert_eq!(stdout_of(arguments), expected, "{arguments:?}");
        }
        for arguments in [
            &["report", view, &file, "-o", &out][..],
            &["report", &file, view, "--output", &out],
            &["report", "-o", &out, view, &file],
            &["report", &file, view, &out],
            &["report", view, &out, &file],
        ] {
            assert_eq!(stdout_of(arguments), "", "{arguments:?}");
            let written = std::fs::read_to_string(&out).unwrap();
            assert_eq!(written, expected, "{arguments:?}");
            std::fs::remove_file(&out).unwrap();
        }
        let difference = stdout_of(&["diff", &file, &other, view, "-"]);
        assert_eq!(stdout_of(&["diff", view, &file, &other]), difference);
        assert_eq!(stdout_of(&["diff", &file, &other, view]), difference);
    }
    // Other views can be written to files, too.
    let top = stdout_of(&["report", &file]);
    assert_eq!(stdout_of(&["report", &file, "-o", &out]), "");
    assert_eq!(std::fs::read_to_string(&out).unwrap(), top);
    for arguments in [&["report"][..], &["report", "--html"], &["diff", &file]] {
        let (line, code) = failure_of(arguments);
        assert!(line.contains("missing"), "{line}");
        assert_eq!(code, 2);
    }
}

#[test]
fn a_flame_graph_is_one_file() {
    let directory = Directory::new("flame-file");
    let file = directory.file("heap", &profile());
    let text = stdout_of(&["report", "--svg", "-", &file]);
    check_self_contained(&text);
    assert_eq!(
        titles(&text),
        [
            "all\n1000B, 100%",
            "idle\n100B, 10.00%",
            "main\n900B, 90.00%",
            "other\n100B, 10.00%",
            "leaf\n100B, 10.00%",
            "work&lt;T&gt;\n800B, 80.00%",
            "alloc &amp; &quot;free&quot;\n200B, 20.00%",
            "leaf\n600B, 60.00%",
        ]
    );
    assert!(
        text.contains(r#"data-x="20" data-w="80" data-d="2"><title>work"#),
        "{text}"
    );
    // The same text in a file.
    let path = directory.path("flame");
    assert_eq!(stdout_of(&["report", "--svg", &path, &file]), "");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
}

/// Returns the list of files in an HTML page.
fn list_of(page: &str) -> Value {
    let list = page.split("id=\"files\">").nth(1).unwrap();
    serde_json::from_str(list.split("</script>").next().unwrap()).unwrap()
}

/// Returns the profile in an HTML page.
fn profile_of(page: &str) -> Profile {
    let list = list_of(page);
    let data = list["profiles"][0]["data"].as_str().unwrap();
    let bytes = base64::engine::general_purpose::STANDARD.decode(data);
    plimsoll_pprof::parse(&bytes.unwrap(), Limits::default()).unwrap()
}

#[test]
fn a_page_has_the_selected_samples() {
    let directory = Directory::new("flame-page");
    let file = directory.file("<script>.pb", &profile());
    let sum = |arguments: &[&str]| -> i64 {
        let page = stdout_of(&[&["report", &file, "--html=-"], arguments].concat());
        assert!(page.starts_with("<!doctype html>"), "{page}");
        assert_eq!(list_of(&page)["profiles"][0]["title"], file);
        let profile = profile_of(&page);
        profile.samples().map(|sample| sample.value(0)).sum()
    };
    assert_eq!(sum(&[]), 1000);
    assert_eq!(sum(&["--focus", "work"]), 800);
    assert_eq!(sum(&["--ignore", "^leaf"]), 300);
}

#[test]
fn a_page_of_a_difference_has_both() {
    let directory = Directory::new("flame-page-diff");
    let [base, new] = ["base", "new"].map(|name| directory.file(name, &profile()));
    let page = stdout_of(&["diff", "--html=-", &base, &new]);
    let entry = &list_of(&page)["profiles"][0];
    assert_eq!(entry["isDifference"], true);
    assert_eq!(entry["title"], format!("{new}, less {base}"));
    assert_eq!(entry["sampleType"], "inuse_space");
    let profile = profile_of(&page);
    let values = || profile.samples().map(|sample| sample.value(0));
    assert_eq!(values().sum::<i64>(), 0);
    assert_eq!(values().map(i64::abs).sum::<i64>(), 2000);
}

#[test]
fn a_difference_shows_removed_stacks_too() {
    let directory = Directory::new("flame-diff");
    let mut base = Writer::new(&[("inuse_space", "bytes")]);
    base.sample(&["gone", "main"], &[300]);
    base.sample(&["same", "main"], &[100]);
    let mut new = Writer::new(&[("inuse_space", "bytes")]);
    new.sample(&["new", "main"], &[50]);
    new.sample(&["same", "main"], &[100]);
    let (base, new) = (
        directory.file("base", &base.finish()),
        directory.file("new", &new.finish()),
    );
    let text = stdout_of(&["diff", "--svg=-", &base, &new]);
    check_self_contained(&text);
    assert_eq!(
        titles(&text),
        [
            "all\n-250B: 150B, was 400B",
            "main\n-250B: 150B, was 400B",
            "gone\n-300B: 0, was 300B",
            "new\n+50B: 50B, was 0",
            "same\n0: 100B, was 100B",
        ]
    );
    let fill = |name: &str| {
        let rest = text.split(&format!("<title>{name}\n")).nth(1).unwrap();
        rest.split("fill=\"")
            .nth(1)
            .unwrap()
            .split('"')
            .next()
            .unwrap()
            .to_owned()
    };
    assert_eq!(fill("gone"), "rgb(85,85,245)");
    assert_eq!(fill("new"), "rgb(245,85,85)");
    assert_eq!(fill("same"), "rgb(245,235,235)");
}

#[test]
fn narrow_frames_are_omitted_and_the_rest_is_right() {
    let directory = Directory::new("flame-wide");
    let mut writer = Writer::new(&[("inuse_space", "bytes")]);
    writer.sample(&["wide", "main"], &[1_000_000_000]);
    for number in 0..2000 {
        let name = format!("narrow{number}");
        writer.sample(&[&name, "many", "main"], &[10]);
    }
    let file = directory.file("heap", &writer.finish());
    let text = stdout_of(&["report", "--svg=-", &file]);
    assert!(text.contains("<title>wide\n"));
    assert!(!text.contains("narrow1"));
    assert!(text.len() < 20_000);
}

/// A script that uses a flame graph as a user does and checks the results. It writes the outcome to
/// the last line of the page's title.
const DRIVER: &str = r#"
(() => {
  const said = [];
  const say = (what, is) => said.push((is ? "yes " : "NO ") + what);
  addEventListener("error", (event) => said.push("NO error: " + event.message));
  const complain = console.error;
  console.error = (...all) => { said.push("NO error: " + all.join(" ")); complain(...all); };
  const frames = Array.from(document.querySelectorAll("g.f"));
  const find = (name) => frames.filter((f) => f.firstElementChild.textContent.startsWith(name + "\n"));
  const rect = (f) => f.querySelector("rect").getBoundingClientRect();
  const visible = (f) => f.style.display !== "none";
  const click = (e) => e.dispatchEvent(new MouseEvent("click", { bubbles: true }));
  const search = (text) => {
    window.prompt = () => text;
    click(document.getElementById("search"));
  };
  const matched = () => document.getElementById("matched").textContent;
  const matches = () => frames.filter((f) => f.classList.contains("match")).length;
  const near = (a, b) => Math.abs(a - b) < 1.5;
  const [all] = find("all"), [main] = find("main"), [work] = find("work<T>");
  const [other] = find("other"), [idle] = find("idle");
  const whole = rect(all).width;
  const reset = document.getElementById("reset");
  say("all of the window is used", whole > 0.9 * innerWidth);
  say("widths are shares", near(rect(main).width, whole * 0.9) && near(rect(work).width, whole * 0.8));
  say("places are behind one another", near(rect(main).left - rect(all).left, whole * 0.1));
  say("callees are below", rect(work).top > rect(main).top);
  say("no reset before a zoom", reset.classList.contains("hidden"));
  const leaf = find("leaf");
  say("names are on what is wide", work.querySelector("text").textContent === "work<T>");

  click(work.querySelector("rect"));
  say("zoom: it is as wide as all", near(rect(work).width, whole));
  say("zoom: its callees grow", leaf.some((f) => visible(f) && near(rect(f).width, whole * 0.75)));
  say("zoom: its callers are there", visible(main) && near(rect(main).width, whole) && main.classList.contains("above"));
  say("zoom: others are gone", !visible(other) && !visible(idle));
  say("zoom: there is a reset", !reset.classList.contains("hidden"));
  click(main.querySelector("rect"));
  say("zoom out: to the caller", near(rect(main).width, whole) && near(rect(work).width, whole * 8 / 9) && visible(other));
  click(reset);
  say("reset: as before", frames.every(visible) && near(rect(main).width, whole * 0.9));
  say("reset: none of above", !frames.some((f) => f.classList.contains("above")));
  click(work.querySelector("rect"));
  dispatchEvent(new KeyboardEvent("keydown", { key: "Escape" }));
  say("escape: as before", frames.every(visible));

  search("leaf");
  say("search: what matches", matches() === 2 && matched() === "Matched: 70.00%");
  search("^work|leaf");
  say("search: nothing twice", matches() === 3 && matched() === "Matched: 90.00%");
  search("(");
  say("search: what is wrong", matches() === 0 && matched().includes("nvalid regular expression"));
  search("no such");
  say("search: nothing", matches() === 0 && matched() === "Matched: 0.00%");
  search("");
  say("search: ended", matches() === 0 && matched() === "");

  work.dispatchEvent(new MouseEvent("mouseover", { bubbles: true }));
  say("details", document.getElementById("details").textContent.includes("work<T>  800B, 80.00%"));
  const report = document.createElementNS("http://www.w3.org/2000/svg", "desc");
  report.setAttribute("id", "report");
  report.textContent = said.join("\n");
  document.getElementById("flame").append(report);
})();
"#;

/// Opens a file in the browser. Returns the document at the end, and the messages of its console.
fn opened(chromium: &Path, directory: &Directory, file: &str) -> (String, Vec<String>) {
    let output = Command::new(chromium)
        .args([
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--no-first-run",
        ])
        .args([
            "--disable-dev-shm-usage",
            "--enable-logging=stderr",
            "--v=0",
        ])
        .args([
            "--window-size=1000,700",
            "--virtual-time-budget=10000",
            "--dump-dom",
        ])
        .arg(format!("--user-data-dir={}", directory.path("browser")))
        .arg(format!("file://{file}"))
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let printed = String::from_utf8_lossy(&output.stderr);
    let console = printed.lines().filter(|line| line.contains("CONSOLE"));
    let console = console.map(str::to_owned).collect();
    (String::from_utf8(output.stdout).unwrap(), console)
}

#[test]
fn zoom_search_and_reset_work_in_a_browser() {
    let Some(chromium) = chromium() else { return };
    let directory = Directory::new("flame-browser");
    let file = directory.file("heap", &profile());
    let text = stdout_of(&["report", "--svg=-", &file]);
    let (before, after) = text.rsplit_once("</svg>").unwrap();
    let driven = format!("{before}<script>//<![CDATA[\n{DRIVER}//]]></script></svg>{after}");
    let picture = directory.file("flame.svg", driven.as_bytes());
    let (dom, console) = opened(&chromium, &directory, &picture);
    let report = dom.split("<desc id=\"report\">").nth(1);
    let report = report.and_then(|rest| rest.split("</desc>").next());
    let report = report.unwrap_or_else(|| panic!("{console:?}\n{dom}"));
    assert!(!report.contains("NO "), "{report}");
    assert_eq!(report.lines().count(), 21, "{report}");
    assert!(console.is_empty(), "{console:?}");
}

#[test]
fn a_page_shows_its_profile_in_a_browser() {
    let Some(chromium) = chromium() else { return };
    let directory = Directory::new("flame-page-browser");
    let file = directory.file("heap", &profile());
    let page = directory.path("report.html");
    stdout_of(&["report", &file, "--html", &page]);
    let (dom, console) = opened(&chromium, &directory, &page);
    for text in ["1000 B, 4 samples", "work&lt;T&gt;", "alloc &amp; \"free\""] {
        assert!(dom.contains(text), "{text}: {dom}");
    }
    assert!(console.is_empty(), "{console:?}");
}
