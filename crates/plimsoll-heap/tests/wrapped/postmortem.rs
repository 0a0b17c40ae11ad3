//! Post-mortem files of a program over this heap.

use std::fs::File;
use std::hint::black_box;

use plimsoll_testkit::child;

const NAME: &str = "the_file_of_a_killed_process_says_that_it_has_no_counts";

#[test]
fn the_file_of_a_killed_process_says_that_it_has_no_counts() {
    if child::is_child() {
        let kept: Vec<Vec<u8>> = (0..1000).map(|_| black_box(vec![1; 3000])).collect();
        // SAFETY: the signal ends the process.
        unsafe { libc::raise(libc::SIGKILL) };
        drop(kept);
    }
    let name = format!("plimsoll-heap-postmortem-{}", std::process::id());
    let path = std::env::temp_dir().join(name);
    let settings = format!("heap_rate=1k,postmortem={}", path.display());
    let output = child::command(NAME, settings).output().unwrap();
    assert!(!output.status.success());
    let left = plimsoll_postmortem::read(&File::open(&path).unwrap()).unwrap();
    assert!(left.is_uncounted && !left.damaged);
    let sampled = left.sites.iter().map(|site| site.allocated.bytes);
    assert!(sampled.sum::<u64>() > 2_000_000);
    std::fs::remove_file(&path).unwrap();
}
