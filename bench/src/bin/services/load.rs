//! The load of a service: requests at fixed times.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

/// A service and its load: its name, the requests a second over all connections, a request by its connection and its number
/// there, and the beginning and the end of each right answer.
pub struct Service(
    pub &'static str,
    pub u32,
    pub fn(u32, u32) -> String,
    pub [&'static str; 2],
);

const CONNECTIONS: u32 = 8;

impl Service {
    /// Sends requests, and returns each one's microseconds from its scheduled time to the end of its answer. Reads
    /// Plimsoll's pages at the start and each ten seconds, if there is a port of them.
    pub fn load(&self, port: u16, seconds: u32, pages: Option<u16>) -> Vec<f64> {
        // Also waits until the service listens.
        drop(connect(port));
        let start = Instant::now() + Duration::from_millis(20);
        thread::scope(|scope| {
            let client = |at| scope.spawn(move || self.client(port, at, seconds, start));
            let clients: Vec<_> = (0..CONNECTIONS).map(client).collect();
            for second in (0..seconds).step_by(10) {
                wait_until(start + Duration::from_secs(second.into()));
                pages.into_iter().for_each(scrape);
            }
            let times = clients.into_iter().map(|client| client.join());
            let times = times.flat_map(|times| times.expect("no client fails"));
            times.collect()
        })
    }

    /// Sends the requests of one connection.
    fn client(&self, port: u16, connection: u32, seconds: u32, start: Instant) -> Vec<f64> {
        // SAFETY: changes only the precision of this thread's sleeps, by default 50 microseconds.
        unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1 as libc::c_ulong) };
        let Self(_, rate, request, right) = self;
        let [first, last] = right.map(str::as_bytes);
        let (mut stream, mut answer) = (connect(port), vec![0; 1 << 16]);
        let exchange = |number| {
            let request = request(connection, number);
            let place = f64::from(number * CONNECTIONS + connection);
            let due = start + Duration::from_secs_f64(place / f64::from(*rate));
            wait_until(due);
            stream.write_all(request.as_bytes()).expect("it is open");
            let mut length = 0;
            while !answer[..length].ends_with(last) {
                let read = stream.read(&mut answer[length..]).expect("it answers");
                assert!(read > 0, "{request}: the answer is incomplete");
                length += read;
            }
            let time = due.elapsed();
            let text = answer[..length].escape_ascii();
            assert!(answer.starts_with(first), "{request}: {text}");
            time.as_secs_f64() * 1e6
        };
        (0..seconds * rate / CONNECTIONS).map(exchange).collect()
    }
}

/// Reads two pages of Plimsoll.
fn scrape(port: u16) {
    for page in ["/metrics", "/debug/pprof/heap"] {
        let (mut stream, mut answer) = (connect(port), Vec::new());
        let sent = write!(stream, "GET {page} HTTP/1.0\r\n\r\n");
        let read = sent.and_then(|()| stream.read_to_end(&mut answer));
        assert!(answer.starts_with(b"HTTP/1.1 200 "), "{page}: {read:?}");
    }
}

/// Connects to a port, as soon as a process listens there.
fn connect(port: u16) -> TcpStream {
    let mut connections = (0..1000).filter_map(|attempt| {
        sleep(Duration::from_millis(10) * attempt.min(2));
        TcpStream::connect(("127.0.0.1", port)).ok()
    });
    let stream = connections.next().expect("a process listens");
    stream.set_nodelay(true).expect("it is open");
    let limited = stream.set_read_timeout(Some(Duration::from_secs(10)));
    limited.expect("the time is not zero");
    stream
}

fn wait_until(time: Instant) {
    sleep(time.saturating_duration_since(Instant::now()));
}
