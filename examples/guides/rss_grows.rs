//! Resident memory grows, and the heap does not: the allocator keeps pages with holes.

#[global_allocator]
static ALLOC: plimsoll::Alloc = plimsoll::Alloc::system();

fn main() {
    // A cache of 2,000,000 entries, of which one in sixteen is kept.
    let mut cache: Vec<Option<Box<[u8; 100]>>> = (0..2_000_000).map(|_| Some(entry())).collect();
    for (number, entry) in cache.iter_mut().enumerate() {
        if number % 16 != 0 {
            *entry = None;
        }
    }
    let heap = plimsoll::mem_stats().heap_alloc;
    println!("heap in use: {} MiB", heap >> 20);
    println!("{}", plimsoll::reconcile());
}

#[inline(never)]
fn entry() -> Box<[u8; 100]> {
    Box::new([1; 100])
}
