//! The load generator: clients in the same process that send real requests over loopback.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use plimsoll::task::TrackExt;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::index::Index;
use crate::latency::Latencies;
use crate::store::Store;
use crate::words::{term_of, words};

/// The time that a client waits after an error before it connects again.
const PAUSE_AFTER_ERROR: Duration = Duration::from_millis(50);

/// Clients that each send one request after the other until they are stopped.
pub struct Load {
    clients: JoinSet<()>,
    figures: Arc<Figures>,
}

/// Figures of the clients.
pub struct Figures {
    /// The number of clients.
    pub clients: usize,
    /// Latencies of requests with status 200, from the first byte sent to the last byte read.
    pub latencies: Latencies,
    /// The number of failed connections, and of responses that were cut off, malformed or not 200.
    pub errors: AtomicU64,
}

impl Load {
    pub fn start(
        clients: usize,
        address: SocketAddr,
        store: &Arc<Store>,
        stop: &watch::Receiver<bool>,
    ) -> Self {
        let figures = Arc::new(Figures {
            clients,
            latencies: Latencies::new(),
            errors: AtomicU64::new(0),
        });
        let tasks = (0..clients as u64).map(|seed| {
            send(
                Queries::new(seed),
                address,
                store.clone(),
                figures.clone(),
                stop.clone(),
            )
            .tracked_as("client")
        });
        Self {
            clients: tasks.collect(),
            figures,
        }
    }

    pub fn figures(&self) -> &Arc<Figures> {
        &self.figures
    }

    /// Waits until every client has the response to its last request.
    pub async fn finish(mut self) {
        while self.clients.join_next().await.is_some() {}
    }
}

async fn send(
    mut queries: Queries,
    address: SocketAddr,
    store: Arc<Store>,
    figures: Arc<Figures>,
    mut stop: watch::Receiver<bool>,
) {
    let mut connection = None;
    while !*stop.borrow() {
        let query = queries.draw(&store.current().index);
        let target = format!("/search?q={}&limit=10", percent_encoded(&query));
        let start = Instant::now();
        match request(&mut connection, address, &target).await {
            Ok(answer) if answer.is_found() => figures.latencies.record(start.elapsed()),
            Ok(_) => _ = figures.errors.fetch_add(1, Relaxed),
            Err(_) => {
                figures.errors.fetch_add(1, Relaxed);
                tokio::select! {
                    () = tokio::time::sleep(PAUSE_AFTER_ERROR) => {}
                    _ = stop.wait_for(|&stop| stop) => {}
                }
            }
        }
    }
}

/// Sends a request over the open connection or a new one, and keeps the connection if it can be
/// reused.
async fn request(
    connection: &mut Option<Connection>,
    address: SocketAddr,
    target: &str,
) -> io::Result<Answer> {
    let mut open = match connection.take() {
        Some(open) => open,
        None => Connection::open(address).await?,
    };
    let answer = open.get(target).await?;
    *connection = Some(open);
    Ok(answer)
}

/// Draws queries like those of people: adjacent words of a text, frequent words more often, and
/// sometimes a recent query again. The same seed and texts give the same queries.
struct Queries {
    random: Random,
    recent: Vec<String>,
}

const RECENT_QUERIES: usize = 8;

impl Queries {
    fn new(seed: u64) -> Self {
        Self {
            random: Random(seed),
            recent: Vec::new(),
        }
    }

    fn draw(&mut self, index: &Index) -> String {
        if self.recent.len() == RECENT_QUERIES {
            let again = self.random.below(2 * RECENT_QUERIES);
            if let Some(query) = self.recent.get(again) {
                return query.clone();
            }
            self.recent.swap_remove(again - RECENT_QUERIES);
        }
        // An index may have no words, but a query is needed.
        let query = self
            .neighbours(index)
            .unwrap_or_else(|| "nothing".to_owned());
        self.recent.push(query.clone());
        query
    }

    /// Returns one to three adjacent words of a line.
    fn neighbours(&mut self, index: &Index) -> Option<String> {
        const ATTEMPTS: usize = 32;
        const MAX_WORDS: usize = 3;
        // Lines of generated files may be as long as the files; longer lines are skipped.
        const MAX_LINE_BYTES: usize = 4 << 10;
        let documents = index.documents();
        if documents.is_empty() {
            return None;
        }
        (0..ATTEMPTS).find_map(|_| {
            let document = &documents[self.random.below(documents.len())];
            let line = document.line(self.random.below(document.line_count()));
            if line.len() > MAX_LINE_BYTES {
                return None;
            }
            let skipped = self.random.below(8);
            let count = 1 + self.random.below(MAX_WORDS);
            let mut term = String::new();
            let mut query = String::new();
            for (_, word) in words(line).skip(skipped).take(count) {
                term_of(word, &mut term);
                query.push_str(if query.is_empty() { "" } else { " " });
                query.push_str(&term);
            }
            (!query.is_empty()).then_some(query)
        })
    }
}

/// SplitMix64 (Steele, Lea and Flood, 2014).
struct Random(u64);

impl Random {
    /// Returns a number below `end`, which is far below 2^64, so the bias of the remainder is
    /// negligible.
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % end as u64) as usize
    }
}

fn percent_encoded(text: &str) -> String {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            encoded.push(byte.into());
        } else {
            let digits = [
                DIGITS[usize::from(byte >> 4)],
                DIGITS[usize::from(byte & 15)],
            ];
            encoded.extend(['%', digits[0].into(), digits[1].into()]);
        }
    }
    encoded
}

/// A persistent HTTP/1.1 connection. It supports only the responses of this service, which have a
/// `Content-Length`.
pub struct Connection {
    stream: TcpStream,
    address: SocketAddr,
    read: Vec<u8>,
}

#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub body: Vec<u8>,
}

impl Answer {
    /// Returns whether this is the service's response to a search, complete from beginning to end.
    fn is_found(&self) -> bool {
        self.status == 200 && self.body.starts_with(b"{\"query\":") && self.body.ends_with(b"}")
    }
}

impl Connection {
    pub async fn open(address: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Self {
            stream,
            address,
            read: Vec::new(),
        })
    }

    /// Sends a request and reads the response. After an error, the connection is unusable.
    pub async fn get(&mut self, target: &str) -> io::Result<Answer> {
        let request = format!("GET {target} HTTP/1.1\r\nHost: {}\r\n\r\n", self.address);
        self.stream.write_all(request.as_bytes()).await?;
        let (head, mut rest) = loop {
            if let Some(end) = self
                .read
                .windows(4)
                .position(|window| window == b"\r\n\r\n")
            {
                let rest = self.read.split_off(end + 4);
                break (std::mem::take(&mut self.read), rest);
            }
            self.read_more().await?;
        };
        let (status, length) = parse_head(&head).ok_or(io::ErrorKind::InvalidData)?;
        std::mem::swap(&mut self.read, &mut rest);
        while self.read.len() < length {
            self.read_more().await?;
        }
        let next = self.read.split_off(length);
        Ok(Answer {
            status,
            body: std::mem::replace(&mut self.read, next),
        })
    }

    async fn read_more(&mut self) -> io::Result<()> {
        match self.stream.read_buf(&mut self.read).await? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(()),
        }
    }
}

/// Returns the status and the length of the body.
fn parse_head(head: &[u8]) -> Option<(u16, usize)> {
    let mut lines = std::str::from_utf8(head).ok()?.split("\r\n");
    let status = lines
        .next()?
        .strip_prefix("HTTP/1.1 ")?
        .get(..3)?
        .parse()
        .ok()?;
    let length = lines.find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length")
            .then(|| value.trim().parse().ok())?
    })?;
    Some((status, length))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Directory;
    use crate::words::terms_of;

    fn queries(seed: u64, index: &Index) -> Vec<String> {
        let mut queries = Queries::new(seed);
        (0..500).map(|_| queries.draw(index)).collect()
    }

    #[test]
    fn every_query_matches_and_the_seed_decides_them() {
        let directory = Directory::new();
        directory.write("a", "Größe of a heap_profile\n\n  İstanbul 東京タワー x²\n");
        directory.write("b", format!("{}\nshort", "base64".repeat(500)));
        let index = Index::build(directory.path(), || true).unwrap();
        let drawn = queries(7, &index);
        for query in &drawn {
            assert!(query.len() <= 1024);
            assert!(
                index.search(&terms_of(query), 1).total > 0,
                "{query:?} matches nothing"
            );
        }
        assert_eq!(drawn, queries(7, &index));
        assert_ne!(drawn, queries(8, &index));
    }

    #[test]
    fn an_index_without_words_still_gets_queries() {
        let directory = Directory::new();
        let empty = Index::build(directory.path(), || true).unwrap();
        assert_eq!(queries(1, &empty)[0], "nothing");
        directory.write("blank", "\n\n\n");
        let blank = Index::build(directory.path(), || true).unwrap();
        assert_eq!(queries(1, &blank)[0], "nothing");
    }

    #[test]
    fn all_reserved_characters_of_urls_are_encoded() {
        assert_eq!(
            percent_encoded("a-b c&d=é%+#"),
            "a-b%20c%26d%3D%C3%A9%25%2B%23"
        );
    }

    #[test]
    fn heads_are_read_as_the_service_writes_them() {
        let head =
            b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nContent-Length: 17\r\n\r\n";
        assert_eq!(parse_head(head), Some((200, 17)));
        for bad in [
            &b"HTTP/1.1 200 OK\r\n\r\n"[..],
            b"HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\n",
            b"HTTP/1.1 2\r\ncontent-length: 1\r\n\r\n",
            b"\xff\r\n\r\n",
            b"",
        ] {
            assert_eq!(parse_head(bad), None);
        }
    }
}
