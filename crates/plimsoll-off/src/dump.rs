//! A dump without threads.

use std::io::{self, Write};

pub fn dump(writer: &mut impl Write) -> io::Result<()> {
    writeln!(writer, "{}", crate::notice::NOT_COMPILED_IN)
}
