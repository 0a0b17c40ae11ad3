//! A program with tracked tasks and an account: this process.

use std::net::SocketAddr;
use std::time::Duration;

use plimsoll::stats::Account;
use plimsoll::task::TrackExt;

static POOL: Account = Account::new("pool");

/// Serves the pages of this process, to clients with the token, and runs tasks from now on.
pub fn start(token: &str) -> (plimsoll::Plimsoll, SocketAddr) {
    let config = plimsoll::config().http("127.0.0.1:0").http_token(token);
    let plimsoll = config.task_times(true).start();
    let address = plimsoll.http_address().expect("it serves");
    POOL.reserve(1 << 20);
    POOL.commit(1 << 20);
    std::thread::spawn(|| {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_time().build().expect("a runtime");
        runtime.block_on(async {
            let tick = || tokio::time::sleep(Duration::from_millis(1));
            loop {
                let task = tokio::spawn(async move { tick().await }.tracked_as("tick"));
                task.await.expect("it ends");
            }
        });
    });
    (plimsoll, address)
}
