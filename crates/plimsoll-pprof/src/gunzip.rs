//! Decompresses on one thread while another reads what comes of it.

use std::io::{self, BufRead, Read};
use std::panic::resume_unwind;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

use flate2::bufread::MultiGzDecoder;

use super::Error;

/// In bytes, of what is handed from one to the other.
const CHUNK: usize = 256 << 10;

/// How many are on the way.
const CHUNKS: usize = 4;

/// Has `read` read what is compressed in `from`.
///
/// # Errors
/// Those of `read`. Where what is compressed is broken, reading fails.
pub(super) fn while_reading<T>(
    from: impl BufRead + Send,
    read: impl FnOnce(Uncompressed) -> Result<T, Error>,
) -> Result<T, Error> {
    thread::scope(|scope| {
        let (send, receive) = sync_channel(CHUNKS);
        let (give_back, given_back) = sync_channel(CHUNKS + 2);
        let started = thread::Builder::new()
            .name("gunzip".to_owned())
            .spawn_scoped(scope, move || decompress(from, &send, &given_back));
        let thread = started?;
        let result = read(Uncompressed {
            receive,
            give_back,
            chunk: Vec::new(),
            taken: 0,
        });
        // The scope waits for its work only: then it would still be there for a moment.
        if let Err(panic) = thread.join() {
            resume_unwind(panic);
        }
        result
    })
}

/// Ends at the end, at an error, or when nobody reads any more.
fn decompress(
    from: impl BufRead,
    send: &SyncSender<io::Result<Vec<u8>>>,
    given_back: &Receiver<Vec<u8>>,
) {
    let mut decoder = MultiGzDecoder::new(from);
    loop {
        let mut chunk = given_back.try_recv().unwrap_or_default();
        chunk.resize(CHUNK, 0);
        let mut filled = 0;
        let result = loop {
            match decoder.read(&mut chunk[filled..]) {
                Ok(0) => break Ok(()),
                Ok(read) => filled += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => break Err(broken(error)),
            }
        };
        let last = filled < CHUNK;
        chunk.truncate(filled);
        if send.send(Ok(chunk)).is_err() {
            return;
        }
        if let Err(error) = result {
            let _ = send.send(Err(error));
            return;
        }
        if last {
            return;
        }
    }
}

fn broken(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => {
            io::Error::new(error.kind(), "it is compressed by gzip, and cut off")
        }
        io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData => io::Error::new(
            error.kind(),
            format!("it is compressed by gzip, and broken: {error}"),
        ),
        _ => error,
    }
}

/// What was compressed.
pub(super) struct Uncompressed {
    receive: Receiver<io::Result<Vec<u8>>>,
    give_back: SyncSender<Vec<u8>>,
    chunk: Vec<u8>,
    taken: usize,
}

impl Read for Uncompressed {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        while self.taken == self.chunk.len() {
            let Ok(chunk) = self.receive.recv() else {
                return Ok(0);
            };
            let used = std::mem::replace(&mut self.chunk, chunk?);
            self.taken = 0;
            // If it is not wanted, it is freed.
            let _ = self.give_back.try_send(used);
        }
        let read = (&self.chunk[self.taken..]).read(to)?;
        self.taken += read;
        Ok(read)
    }
}
