//! Random sequences of operations on several threads.

use crate::model::{Random, operations, run};

#[test]
fn threads_keep_the_contents_of_their_blocks() {
    std::thread::scope(|scope| {
        for thread in 2..6 {
            scope.spawn(move || run(&mut Random(thread), operations() / 4, None));
        }
    });
}
