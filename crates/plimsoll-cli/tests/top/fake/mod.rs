//! A fake program that serves Plimsoll's pages, correctly or in any other way.

mod pprof;

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

pub use pprof::Stack;

/// The time after which a test fails as hanging.
pub const TOO_LONG: Duration = Duration::from_secs(60);

/// The response to a request for a page.
#[derive(Clone, Debug)]
pub enum Answer {
    /// The correct page.
    Fine,
    /// This body.
    Body(Vec<u8>),
    /// The first half of the correct page, announced with its full length.
    CutOff,
    /// This error status.
    Status(u16),
    /// Bytes that are not HTTP.
    Noise,
    /// Nothing: the connection is closed.
    HangUp,
    /// Nothing: the connection stays open.
    Silence,
    /// One byte at a time, without end.
    Drip,
}

/// The figures of the program.
#[derive(Clone, Debug)]
pub struct Figures {
    /// MiB in use.
    pub heap_mib: u64,
    /// MiB allocated in total.
    pub allocated_mib: u64,
    /// Further lines of the metrics page.
    pub more: String,
    /// Samples of the heap profile: bytes and objects in use, then the totals ever allocated.
    pub heap: Vec<(Stack, [i64; 4])>,
}

impl Default for Figures {
    fn default() -> Self {
        const MIB: i64 = 1 << 20;
        let stack =
            |function: &str, line| vec![(function.to_owned(), "/x/own.rs".to_owned(), line)];
        Self {
            heap_mib: 12,
            allocated_mib: 100,
            more: String::new(),
            heap: vec![
                (stack("own::large", 1), [8 * MIB, 10, 80 * MIB, 100]),
                (stack("own::many", 2), [3 * MIB, 900, 9 * MIB, 9000]),
                (stack("own::rare", 3), [MIB, 1, MIB, 1]),
            ],
        }
    }
}

#[derive(Default)]
struct State {
    answers: HashMap<String, Answer>,
    /// Responses that replace a page's response after a number of requests.
    later: HashMap<String, (u64, Answer)>,
    figures: Figures,
    asked: HashMap<String, u64>,
}

/// The fake program, which stops on drop.
pub struct Fake {
    state: Arc<Mutex<State>>,
    address: SocketAddr,
    ended: Arc<AtomicBool>,
    serving: Option<thread::JoinHandle<()>>,
}

impl Fake {
    pub fn start() -> Self {
        Self::start_at("127.0.0.1:0".parse().expect("an address"))
    }

    /// Starts at an address that another fake program used.
    pub fn start_at(address: SocketAddr) -> Self {
        let listener = TcpListener::bind(address).expect("the port is free");
        let address = listener.local_addr().expect("bound");
        let state = Arc::<Mutex<State>>::default();
        let ended = Arc::<AtomicBool>::default();
        let serving = thread::spawn({
            let (state, ended) = (Arc::clone(&state), Arc::clone(&ended));
            move || {
                for connection in listener.incoming().flatten() {
                    if ended.load(Ordering::SeqCst) {
                        return;
                    }
                    let state = Arc::clone(&state);
                    thread::spawn(move || serve(connection, &state));
                }
            }
        });
        Self {
            state,
            address,
            ended,
            serving: Some(serving),
        }
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Sets the response of a page.
    pub fn answer(&self, page: &str, answer: Answer) {
        let mut state = self.state.lock().expect("no holder panics");
        state.answers.insert(page.into(), answer);
    }

    /// Sets the response of a page after `times` requests.
    pub fn answer_after(&self, page: &str, times: u64, answer: Answer) {
        let mut state = self.state.lock().expect("no holder panics");
        state.later.insert(page.into(), (times, answer));
    }

    /// Changes the program's figures.
    pub fn change(&self, change: impl FnOnce(&mut Figures)) {
        change(&mut self.state.lock().expect("no holder panics").figures);
    }

    /// Returns how often a page was requested.
    pub fn asked(&self, page: &str) -> u64 {
        let state = self.state.lock().expect("no holder panics");
        state.asked.get(page).copied().unwrap_or(0)
    }

    /// Waits until a page was requested `more` more times.
    pub fn wait_for_requests(&self, page: &str, more: u64) {
        let (start, wanted) = (Instant::now(), self.asked(page) + more);
        while self.asked(page) < wanted {
            assert!(start.elapsed() < TOO_LONG, "{page} is not requested");
            thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::SeqCst);
        // The server checks the flag at the next connection.
        let _ = TcpStream::connect(self.address);
        if let Some(serving) = self.serving.take() {
            let _ = serving.join();
        }
    }
}

fn serve(connection: TcpStream, state: &Mutex<State>) {
    let mut lines = BufReader::new(&connection).lines();
    let Some(Ok(request)) = lines.next() else {
        return;
    };
    let page = request.split(' ').nth(1).unwrap_or_default().to_owned();
    while let Some(Ok(line)) = lines.next() {
        if line.is_empty() {
            break;
        }
    }
    let (answer, body) = {
        let mut state = state.lock().expect("no holder panics");
        let asked = state.asked.entry(page.clone()).or_default();
        *asked += 1;
        let asked = *asked;
        let later = state.later.get(&page).filter(|(times, _)| asked > *times);
        let answer = later.map(|(_, answer)| answer);
        let answer = answer.or_else(|| state.answers.get(&page));
        let answer = answer.cloned().unwrap_or(Answer::Fine);
        (answer, body(&page, &state.figures))
    };
    // The client may have disconnected.
    let _ = send(&connection, answer, body);
}

fn send(mut to: &TcpStream, answer: Answer, fine: Option<Vec<u8>>) -> std::io::Result<()> {
    let head = |status: &str, length: usize| {
        format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n")
    };
    let not_found = (head("404 Not Found", 0), Vec::new());
    let of = |body: Vec<u8>| (head("200 OK", body.len()), body);
    let (head, body) = match answer {
        Answer::Fine => fine.map_or(not_found, of),
        Answer::Body(body) => of(body),
        Answer::CutOff => {
            let (head, mut body) = fine.map_or(not_found, of);
            body.truncate(body.len() / 2);
            (head, body)
        }
        Answer::Status(status) => (head(&format!("{status} Whatever"), 0), Vec::new()),
        Answer::Noise => ("\u{1b}[31mSSH-2.0\r\n\r\n".into(), Vec::new()),
        Answer::HangUp => return Ok(()),
        Answer::Silence => {
            // Waits until the client gives up.
            let mut nothing = [0];
            return to.read(&mut nothing).map(|_| ());
        }
        Answer::Drip => {
            to.write_all(head("200 OK", 1 << 30).as_bytes())?;
            loop {
                to.write_all(b"#")?;
                thread::sleep(Duration::from_millis(100));
            }
        }
    };
    to.write_all(head.as_bytes())?;
    to.write_all(&body)
}

fn body(page: &str, figures: &Figures) -> Option<Vec<u8>> {
    const MIB: u64 = 1 << 20;
    let waits = |delay: i64| {
        let stack = vec![("own::lock".to_owned(), "/x/lock.rs".to_owned(), 5)];
        vec![(stack, [3, delay])]
    };
    Some(match page {
        "/metrics" => format!(
            "# HELP plimsoll_memory_classes_heap_objects_bytes Bytes of blocks in use.\n\
             # TYPE plimsoll_memory_classes_heap_objects_bytes gauge\n\
             plimsoll_memory_classes_heap_objects_bytes {}\n\
             plimsoll_gc_heap_allocs_bytes_total {}\n\
             plimsoll_gc_heap_allocs_by_size_bytes_bucket{{le=\"8.0\"}} 1000\n\
             plimsoll_gc_heap_allocs_by_size_bytes_bucket{{le=\"+Inf\"}} 3000\n\
             plimsoll_gc_heap_frees_by_size_bytes_bucket{{le=\"8.0\"}} 700\n\
             plimsoll_gc_heap_frees_by_size_bytes_bucket{{le=\"+Inf\"}} 1700\n\
             plimsoll_threads 4\n\
             plimsoll_tasks 9\n{}",
            figures.heap_mib * MIB,
            figures.allocated_mib * MIB,
            figures.more
        )
        .into_bytes(),
        "/debug/pprof/cmdline" => b"/usr/bin/fake\0--some\0thing".to_vec(),
        "/debug/pprof/heap" => pprof::profile(
            &[
                "inuse_space",
                "inuse_objects",
                "alloc_space",
                "alloc_objects",
            ],
            &figures.heap,
        ),
        "/debug/pprof/mutex" => pprof::profile(&["contentions", "delay"], &waits(2_000_000_000)),
        "/debug/pprof/block" => pprof::profile(&["contentions", "delay"], &waits(3_000_000_000)),
        "/debug/pprof/goroutine" => {
            let stack = vec![("own::run".to_owned(), "/x/own.rs".to_owned(), 7)];
            pprof::profile(&["goroutine"], &[(stack, [4])])
        }
        "/debug/pprof/profile?seconds=2" => {
            let stack = vec![("own::computes".to_owned(), "/x/own.rs".to_owned(), 9)];
            pprof::profile(&["samples", "cpu"], &[(stack, [50, 500_000_000])])
        }
        "/debug/plimsoll/growth" => br#"{"version":1,"readings":128,"readings_needed":64,"observed":1280.0,
            "bytes_per_second":5000.0,"seconds_to_limit":null,"total":1,"sites":[{"verdict":"leaking",
            "bytes":4000000,"bytes_per_second":5000.0,"error":12.5,"lifetime":null,"window":320.0,
            "stack":[{"function":"own::remembers","file":"/x/own.rs","line":8}]}]}"#
            .to_vec(),
        _ => return None,
    })
}
