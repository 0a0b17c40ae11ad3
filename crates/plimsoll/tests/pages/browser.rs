//! The page for browsers. `PLIMSOLL_CHROMIUM` names the Chromium program; without that variable, no
//! browser is tried.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;

use flate2::read::GzDecoder;
use plimsoll_testkit::child;
use plimsoll_testkit::client::{Answer, request};
use plimsoll_testkit::tools;

fn text_of(answer: &Answer) -> String {
    std::io::read_to_string(GzDecoder::new(&answer.body[..])).expect("gzip with UTF-8")
}

#[test]
fn the_files_of_the_page_have_their_policy_and_need_nothing_else() {
    let server = plimsoll::http::serve("127.0.0.1:0").unwrap();
    let address = server.address();
    let page = request(address, "GET", "/debug/plimsoll/");
    for (path, kind) in [
        ("", "text/html; charset=utf-8"),
        ("page.js", "text/javascript; charset=utf-8"),
        ("page.css", "text/css; charset=utf-8"),
    ] {
        let answer = request(address, "GET", &format!("/debug/plimsoll/{path}"));
        assert_eq!(answer.status, 200);
        assert_eq!(answer.header("content-type"), Some(kind));
        assert_eq!(answer.header("content-encoding"), Some("gzip"));
        assert_eq!(answer.header("x-content-type-options"), Some("nosniff"));
        let policy = answer.header("content-security-policy").unwrap();
        assert!(policy.starts_with("default-src 'none';"), "{policy}");
        assert!(!policy.contains("unsafe"), "{policy}");
        assert!(!text_of(&answer).is_empty());
    }
    let html = text_of(&page);
    assert!(
        html.contains("src=\"page.js\"") || html.contains("src=\"./page.js\""),
        "{html}"
    );
    assert!(
        !html.contains("http://") && !html.contains("https://"),
        "{html}"
    );
    let moved = request(address, "GET", "/debug/plimsoll");
    assert_eq!(moved.status, 301);
    assert_eq!(moved.header("location"), Some("./plimsoll/"));
}

/// Returns the text of the page, once its scripts have run for some seconds of the browser's time.
fn shown(chromium: &PathBuf, address: SocketAddr, tab: &str) -> String {
    let profile = std::env::temp_dir().join(format!("plimsoll-browser-{}", std::process::id()));
    let output = Command::new(chromium)
        .args(["--headless", "--no-sandbox", "--disable-gpu"])
        .arg(format!("--user-data-dir={}", profile.display()))
        .args(["--virtual-time-budget=8000", "--dump-dom"])
        .arg(format!("http://{address}/debug/plimsoll/#{tab}"))
        .output()
        .expect("the browser runs");
    std::fs::remove_dir_all(&profile).unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn a_browser_shows_the_history_and_the_threads_of_a_process() {
    let Some(chromium) = tools::chromium() else {
        return;
    };
    CHROMIUM.set(chromium).unwrap();
    child::run(
        "a_browser_shows_the_history_and_the_threads_of_a_process",
        "http=127.0.0.1:0",
        || {
            let pool = plimsoll::stats::Declared::new("pool");
            pool.grow(77 << 20);
            let plimsoll = plimsoll::start();
            let address = plimsoll.http_address().unwrap();
            let chromium = CHROMIUM.get().unwrap();
            while plimsoll::history::read().steps[0].points.len() < 2 {
                std::thread::sleep(std::time::Duration::from_millis(20));
            }
            let overview = shown(chromium, address, "overview");
            for text in ["Heap in use", &std::process::id().to_string(), "pages-"] {
                assert!(overview.contains(text), "{text}: {overview}");
            }
            // The three lines of the chart, with their newest values.
            let (_, chart) = overview.split_once("Resident memory by owner").unwrap();
            let (others, declared) = chart.split_once("declared by the program").unwrap();
            let declared: String = declared.chars().take(120).collect();
            assert!(declared.contains("77 MiB"), "{declared}");
            for text in ["heap in use, as counted", "Plimsoll", "other"] {
                assert!(others.contains(text), "{text}: {others}");
            }
            let name = "</td><script>alert(1)</script>";
            let over = std::sync::Barrier::new(2);
            std::thread::scope(|scope| {
                let builder = std::thread::Builder::new().name("hostile<b>".into());
                let spawned = builder.spawn_scoped(scope, || {
                    let _label = plimsoll::label::with([("tenant", name)]);
                    over.wait();
                });
                spawned.unwrap();
                let threads = shown(chromium, address, "threads");
                over.wait();
                assert!(threads.contains("hostile&lt;b&gt;"), "{threads}");
                assert!(!threads.contains("<script>alert"), "{threads}");
            });
        },
    );
}

static CHROMIUM: std::sync::OnceLock<PathBuf> = std::sync::OnceLock::new();
