//! A server of three tenants, whose requests are labelled.

use plimsoll::label;

#[global_allocator]
static ALLOC: plimsoll::Alloc = plimsoll::Alloc::system();

fn main() {
    let _plimsoll = plimsoll::start();
    for (tenant, requests) in [("acme", 3_000), ("globex", 500), ("initech", 100)] {
        let _label = label::with([("tenant", tenant)]);
        for _ in 0..requests {
            handle();
        }
    }
}

#[inline(never)]
fn handle() {
    let body = parse();
    let answer = render(&body);
    std::hint::black_box(answer);
}

#[inline(never)]
fn parse() -> Vec<u8> {
    vec![b'x'; 2_000]
}

#[inline(never)]
fn render(body: &[u8]) -> String {
    String::from_utf8_lossy(body).repeat(4)
}
