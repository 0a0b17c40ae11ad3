//! A key-value server on tokio over the system's allocator, with a tracked task for each connection.
//!
//! `SET KEY VALUE` stores a value, `GET KEY` returns it; each answer is a line.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

#[global_allocator]
static ALLOC: plimsoll::Alloc = plimsoll::Alloc::system();

type Store = Mutex<HashMap<String, String>>;

fn main() {
    let port = plimsoll_bench_services::start();
    let runtime = tokio::runtime::Runtime::new().expect("a runtime can be made");
    runtime.block_on(async {
        let listener = TcpListener::bind(("127.0.0.1", port)).await;
        let (listener, store) = (listener.expect("it is free"), Arc::<Store>::default());
        loop {
            let (stream, _) = listener.accept().await.expect("a client connects");
            plimsoll::task::spawn(serve(stream, Arc::clone(&store)));
        }
    });
}

async fn serve(mut stream: TcpStream, store: Arc<Store>) {
    let _ = stream.set_nodelay(true);
    let (reader, mut writer) = stream.split();
    let mut lines = BufReader::new(reader).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        let answer = answer(&line, &store).unwrap_or("ERROR\n".into());
        let _ = writer.write_all(answer.as_bytes()).await;
    }
}

fn answer(line: &str, store: &Store) -> Option<String> {
    let (verb, rest) = line.split_once(' ')?;
    let mut store = store.lock().expect("no holder panics");
    if verb == "GET" {
        return Some(format!("OK {}\n", store.get(rest)?));
    }
    let (key, value) = rest.split_once(' ')?;
    store.insert(key.into(), value.into());
    Some("OK\n".into())
}
