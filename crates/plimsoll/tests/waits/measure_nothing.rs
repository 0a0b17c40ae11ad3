//! A program whose global allocator Plimsoll does not count.

#[test]
#[should_panic(expected = "the global allocator is not a plimsoll::Alloc")]
fn a_measurement_without_an_alloc_panics() {
    plimsoll::measure(|| drop(std::hint::black_box(vec![1])));
}

#[test]
#[should_panic(expected = "the global allocator is not a plimsoll::Alloc")]
fn an_assertion_without_an_alloc_panics() {
    plimsoll::assert_no_alloc!(|| ());
}
