//! A shared library with a separate copy of Plimsoll, for the test `two_copies`.

#[global_allocator]
static ALLOC: plimsoll::Alloc = plimsoll::Alloc::system();

#[path = "border.rs"]
mod border;

/// Returns the functions of the library's copy.
#[unsafe(no_mangle)]
pub extern "C" fn second_copy() -> border::Border {
    border::border()
}
