//! Random sequences of operations, with exact bytes.

use crate::model::{operations, run};

pub fn agree() {
    run(1, operations(), true);
}
