//! Decompresses on one thread while another reads the result.

use std::io::{self, BufRead, Read};
use std::panic::resume_unwind;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

use flate2::bufread::MultiGzDecoder;

use crate::error::Error;

/// The size in bytes of a chunk that passes between the threads.
const CHUNK: usize = 256 << 10;

/// The capacity of the channel, in chunks.
const CHUNKS: usize = 4;

/// Calls `read` with the decompressed contents of `from`.
///
/// # Errors
/// If `read` fails. Reads from damaged data return an error.
pub(crate) fn while_reading<T>(
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
        // The scope waits only for the closure to return, not for the thread's end.
        if let Err(panic) = thread.join() {
            resume_unwind(panic);
        }
        result
    })
}

/// Sends decompressed chunks until the end of file, an error, or the loss of the receiver.
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
        io::ErrorKind::UnexpectedEof => io::Error::new(error.kind(), "the gzip data is truncated"),
        io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData => {
            io::Error::new(error.kind(), format!("the gzip data is damaged: {error}"))
        }
        _ => error,
    }
}

/// The decompressed stream, as received from the other thread.
pub(crate) struct Uncompressed {
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
            // If the channel is full or closed, the chunk is freed.
            let _ = self.give_back.try_send(used);
        }
        let read = (&self.chunk[self.taken..]).read(to)?;
        self.taken += read;
        Ok(read)
    }
}
