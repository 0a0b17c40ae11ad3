//! The arguments of a measuring program.

/// Returns the argument at this position, 1 for the first, or a default. Panics if it is not a
/// number.
pub fn number(at: usize, default: usize) -> usize {
    let argument = std::env::args().nth(at);
    argument.map_or(default, |word| {
        let number = word.parse();
        number.unwrap_or_else(|_| panic!("{word} is not a number"))
    })
}
