//! Random sequences of operations on several threads.

use crate::model::{operations, run};

#[test]
fn threads_keep_the_contents_of_their_blocks() {
    std::thread::scope(|scope| {
        for thread in 2..6 {
            scope.spawn(move || run(thread, operations() / 4, false));
        }
    });
}
