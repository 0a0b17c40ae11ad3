//! The profiler of `plimsoll::dhat` in a program with another global allocator.

use std::panic::catch_unwind;

#[test]
fn a_profiler_refuses_a_program_without_its_allocator() {
    for _ in 0..2 {
        let refused = catch_unwind(plimsoll::dhat::Profiler::new_heap).expect_err("it panics");
        let message = refused.downcast_ref::<&str>().unwrap();
        assert!(message.contains("not a plimsoll::dhat::Alloc"), "{message}");
    }
}
