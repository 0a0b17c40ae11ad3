//! A shared library with a copy of Plimsoll of its own, for the test `two_copies`.

#[global_allocator]
static ALLOC: plimsoll::Alloc = plimsoll::Alloc::system();

#[path = "border.rs"]
mod border;

/// The library's copy.
#[unsafe(no_mangle)]
pub extern "C" fn second_copy() -> border::Border {
    border::border()
}
