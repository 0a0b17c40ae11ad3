//! Tables in Markdown.

/// Prints the head of a table: its columns between bars, and the line below them.
pub fn head(columns: &str) {
    let count = columns.matches('|').count() - 1;
    println!("{columns}\n|{}", "---|".repeat(count));
}
