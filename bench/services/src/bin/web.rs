//! static-web-server over mimalloc. The arguments are those of its command.

use static_web_server::{Server, Settings};

#[global_allocator]
static ALLOC: plimsoll::Alloc<plimsoll::stats::backend::MiMalloc> = plimsoll::Alloc::mimalloc();

fn main() {
    plimsoll_bench_services::start();
    let settings = Settings::get(true).expect("the arguments are valid");
    let server = Server::new(settings).expect("the processors are known");
    server
        .run_standalone(None)
        .expect("it serves until the end");
}
