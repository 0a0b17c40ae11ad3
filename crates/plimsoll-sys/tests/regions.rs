//! Address space is reserved, committed and given back.

use plimsoll_sys::os::region::{COMMIT_STEP, Region, page_size};

#[test]
fn a_reservation_is_used_from_the_bottom_and_no_further() {
    let region = Region::new();
    assert!(!region.commit(1), "nothing is reserved yet");
    assert!(region.reserve(1 << 30, 1 << 20));
    assert_eq!(region.committed(), 0);
    assert!(region.commit(1));
    assert_eq!(region.committed(), COMMIT_STEP);
    assert!(region.commit(3 * COMMIT_STEP));
    // SAFETY: the byte was committed above.
    unsafe {
        let last = (region.base() + 3 * COMMIT_STEP - 1) as *mut u8;
        assert_eq!(last.read(), 0);
        last.write(1);
    }
    assert!(!region.commit(region.length() + 1));
    assert!(region.contains(region.base()));
    assert!(!region.contains(region.base() + region.length()));
    assert!(!region.contains(region.base() - 1));
    let last = region.length() - page_size();
    assert!(region.commit_apart(last, page_size()));
    assert!(!region.commit_apart(last, page_size() + 1));
    assert!(!region.commit_apart(usize::MAX, page_size()));
    // SAFETY: the word was committed above.
    assert_eq!(unsafe { ((region.base() + last) as *const u64).read() }, 0);
}

#[test]
fn what_is_given_back_can_be_used_by_others_and_not_by_the_region() {
    let region = Region::new();
    assert!(region.reserve(1 << 30, 1 << 30));
    assert!(region.commit(1));
    let (base, kept) = (region.base(), 4 * COMMIT_STEP);
    assert_eq!(region.give_back(kept - COMMIT_STEP), kept);
    assert_eq!((region.base(), region.length()), (base, kept));
    assert!(!region.contains(base + kept));
    let other = Region::new();
    // Another thread may have taken some of it.
    assert!((1..100).any(|part| other.reserve_at(base + (part << 23), 1 << 23)));
    assert!(other.commit(1 << 23));
    assert!(region.commit(kept) && !region.commit(kept + 1));
    assert_eq!(region.give_back(0), kept, "all of it is in use");
}

#[test]
fn memory_is_given_back_beside_threads_that_commit() {
    for _ in 0..200 {
        let region = Region::new();
        assert!(region.reserve(64 * COMMIT_STEP, 1));
        std::thread::scope(|scope| {
            let grow = || {
                (1..=64)
                    .take_while(|&steps| region.commit(steps * COMMIT_STEP))
                    .count()
            };
            let growing = [scope.spawn(grow), scope.spawn(grow)];
            let kept = region.give_back(COMMIT_STEP);
            for thread in growing {
                assert!(thread.join().unwrap() * COMMIT_STEP <= region.committed());
            }
            assert!(region.committed() <= kept.max(region.length()));
        });
        // SAFETY: the bytes are committed.
        let bytes =
            unsafe { std::slice::from_raw_parts_mut(region.base() as *mut u8, region.committed()) };
        bytes.iter_mut().step_by(4096).for_each(|byte| *byte = 1);
    }
}

#[test]
fn a_place_that_is_taken_is_not_taken_again() {
    let length = 1 << 30;
    // A range that is free now. Another thread may take it, so there are several attempts.
    let free = || {
        let region = Region::new();
        assert!(region.reserve(length, length));
        // SAFETY: no other thread has the address, and the mapping is not used again.
        unsafe { libc::munmap(region.base() as *mut _, length) };
        region.base()
    };
    let taken = (0..100).map(|_| (Region::new(), free()));
    let (first, address) = taken
        .into_iter()
        .find(|(region, address)| region.reserve_at(*address, length))
        .expect("one of the tries goes well");
    assert_eq!(first.base(), address);
    let second = Region::new();
    assert!(!second.reserve_at(address, length));
    assert_eq!(second.base(), 0);
}
