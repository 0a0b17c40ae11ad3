//! Exact figures of a program of one thread, without a test harness, which allocates at any time. An
//! argument selects the scenes whose names contain it.

mod counts;
mod faults;
mod memory;
#[path = "../program/model.rs"]
mod model;
mod sequences;

#[global_allocator]
static HEAP: plimsoll_heap::Heap = plimsoll_heap::Heap;

type Scene = (&'static str, fn());

const SCENES: [Scene; 7] = [
    ("each_operation_is_counted_in_its_class", counts::by_class),
    ("large_blocks_are_counted_as_requested", counts::large),
    (
        "random_sequences_agree_with_a_model_to_the_byte",
        sequences::agree,
    ),
    ("interrupted_operations_happen_once", sequences::interrupt),
    (
        "pages_without_blocks_serve_other_sizes",
        memory::serve_other_sizes,
    ),
    (
        "memory_that_is_no_longer_needed_is_returned",
        memory::return_memory,
    ),
    // Limits the address space, so this scene is the last.
    ("exhausted_address_space_is_a_null_pointer", faults::exhaust),
];

fn main() {
    let filter = std::env::args().nth(1).unwrap_or_default();
    for (name, scene) in SCENES {
        if name.contains(filter.trim_start_matches('-')) || filter.starts_with('-') {
            scene();
            println!("{name}: ok");
        }
    }
}
