//! A program with two versions. The second one stands for the version of a library that the program uses: it is
//! without its feature `on`, and its names do nothing.

mod figures;
mod work;

use figures::{assert_kept, read, within};
use work::SIZE;

#[global_allocator]
static ALLOC: first::Alloc = first::Alloc::system();

const BLOCKS: usize = 1000;

#[inline(never)]
fn keeps_here(kept: &mut Vec<Vec<u8>>) {
    let _labels = second::label::with([("tenant", "acme")]);
    work::keep(kept, BLOCKS);
}

fn main() {
    let first = first::start();
    let second = second::start();
    let pages = first.http_address().expect("the settings request pages");
    assert!(second.http_address().is_none());
    let class = first::size_class::of(SIZE).expect("a size with a class");
    let mallocs = || first::heap_stats().by_class[class].mallocs;
    let before = mallocs();
    let mut kept = Vec::with_capacity(BLOCKS);
    keeps_here(&mut kept);
    assert_eq!(mallocs() - before, BLOCKS as u64);
    assert_eq!(second::heap_stats().mallocs, 0);
    assert_kept(pages, "keeps_here", BLOCKS);
    let heap = read(pages, "heap");
    let samples = within(&heap, "keeps_here");
    assert!(
        samples
            .iter()
            .all(|sample| heap.label(sample, "tenant").is_none())
    );
}
