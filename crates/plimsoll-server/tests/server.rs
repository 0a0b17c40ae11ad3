//! The server with pages of this test.
#![cfg(unix)]

use std::ffi::CStr;
use std::io::{self, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;

use plimsoll_server::access::Access;
use plimsoll_server::answer::{Answer, Step, TEXT};
use plimsoll_server::pages::{Effort, Pages, Request, Thread, Work};
use plimsoll_server::serving::{Listener, Running};
use plimsoll_testkit::client::{connect, get, read_answer, wait_for};
use plimsoll_testkit::hostile;

/// Pages whose exclusive answers wait until they are released.
#[derive(Default)]
struct Slow {
    computed: AtomicUsize,
    is_released: Mutex<bool>,
    released: Condvar,
}

struct Joinable(JoinHandle<()>);

impl Thread for Joinable {
    fn join(self: Box<Self>) {
        let _ = self.0.join();
    }
}

struct Served(Arc<Slow>);

impl Pages for Served {
    type Pending = ();

    fn effort(&self, request: &Request) -> Effort {
        match &*request.path {
            "/slow" => Effort::Exclusive,
            _ => Effort::Short,
        }
    }

    fn begin(&self, request: &Request, _: &(dyn Fn() -> bool + Sync)) -> Step<()> {
        if !matches!(&*request.method, "GET" | "HEAD") {
            return Answer::line(405, "no").header("Allow", "GET, HEAD").into();
        }
        let answer = match &*request.path {
            "/slow" => {
                self.0.computed.fetch_add(1, Ordering::SeqCst);
                let released = self.0.is_released.lock().unwrap();
                drop(self.0.released.wait_while(released, |released| !*released));
                Answer::line(200, "slow")
            }
            "/static" => Answer::new(200, TEXT, &b"static"[..]),
            "/shared" => Answer::new(200, TEXT, Arc::<[u8]>::from(&b"shared"[..])),
            "/echo" => Answer::line(200, "")
                .header("X-Line", "a\r\nX-Injected: b")
                .header("X-Tab", "a\tb")
                .header("X-Host", request.host.clone().unwrap_or_default()),
            "/panic" => panic!("a panic requested by the test"),
            "/" => Answer::line(200, "root"),
            _ => Answer::line(404, "none"),
        };
        answer.into()
    }

    fn finish(&self, (): ()) -> Answer {
        Answer::line(200, "done")
    }

    fn spawn(&self, name: &'static CStr, work: Work) -> io::Result<Box<dyn Thread>> {
        let name = name.to_string_lossy().into_owned();
        let thread = std::thread::Builder::new().name(name).spawn(work)?;
        Ok(Box::new(Joinable(thread)))
    }
}

fn server() -> (Running, SocketAddr, Arc<Slow>) {
    let listener = Listener::at_address("127.0.0.1:0").unwrap();
    let address = listener.address().unwrap().unwrap();
    let slow = Arc::<Slow>::default();
    let served = Served(Arc::clone(&slow));
    let running = listener.serve(Access::default(), served).unwrap();
    (running, address, slow)
}

fn begin(address: SocketAddr, target: &str) -> TcpStream {
    let mut stream = connect(address);
    let request = format!("GET {target} HTTP/1.1\r\nHost: localhost\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    stream
}

#[test]
fn hostile_clients_are_refused_and_keep_out_no_other() {
    let (_running, address, _) = server();
    hostile::attack(address, "/", 200);
}

/// Each may take as much memory as reading a file.
#[test]
fn exclusive_answers_are_computed_one_at_a_time_and_at_most_sixteen_wait() {
    let (_running, address, slow) = server();
    let first = begin(address, "/slow");
    wait_for("the first", || slow.computed.load(Ordering::SeqCst) == 1);
    let others: Vec<TcpStream> = (0..180).map(|_| begin(address, "/slow")).collect();
    // The other pages are answered meanwhile, after all of those were read.
    assert_eq!(get(address, "/").status, 200);
    let (waiting, refused): (Vec<_>, Vec<_>) = others.into_iter().partition(|stream| {
        stream.set_nonblocking(true).unwrap();
        let seen = stream.peek(&mut [0]);
        stream.set_nonblocking(false).unwrap();
        seen.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
    });
    assert_eq!(waiting.len(), 16);
    for stream in refused {
        assert_eq!(read_answer(&stream).expect("an answer").status, 503);
    }
    assert_eq!(slow.computed.load(Ordering::SeqCst), 1);
    *slow.is_released.lock().unwrap() = true;
    slow.released.notify_all();
    for stream in waiting.iter().chain([&first]) {
        assert_eq!(read_answer(stream).expect("an answer").status, 200);
    }
    assert_eq!(slow.computed.load(Ordering::SeqCst), 17);
}

#[test]
fn bodies_are_sent_from_where_they_are() {
    let (_running, address, _) = server();
    for body in ["static", "shared"] {
        let answer = get(address, &format!("/{body}"));
        assert_eq!((answer.status, answer.text()), (200, body));
    }
}

#[test]
fn a_header_with_a_control_character_is_not_sent() {
    let (_running, address, _) = server();
    let answer = get(address, "/echo");
    for name in ["x-line", "x-injected", "x-tab"] {
        assert_eq!(answer.header(name), None);
    }
    assert_eq!(answer.header("x-host"), Some("localhost"));
}

#[test]
fn a_page_that_panics_is_an_error_and_the_server_continues() {
    let (_running, address, _) = server();
    assert_eq!(get(address, "/panic").status, 500);
    assert_eq!(get(address, "/").status, 200);
}
