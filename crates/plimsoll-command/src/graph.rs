//! A graph of values in one line of text.

/// The maximum number of columns.
pub const COLUMNS: usize = 60;

/// The levels, from none to the highest.
const LEVELS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// Draws values in at most [`COLUMNS`] columns. A column has the highest of its values.
pub fn graph(values: &[f64], highest: f64) -> String {
    let columns = values.len().min(COLUMNS);
    let column = |column: usize| {
        let from = column * values.len() / columns;
        let to = (column + 1) * values.len() / columns;
        let value = values[from..to].iter().copied().fold(0.0, f64::max);
        let level = value / highest.max(1.0) * (LEVELS.len() - 1) as f64;
        LEVELS[(level.round() as usize).min(LEVELS.len() - 1)]
    };
    (0..columns).map(column).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_graph_has_the_highest_value_of_each_column() {
        assert_eq!(graph(&[], 0.0), "");
        assert_eq!(graph(&[0.0, 5.0, 10.0], 10.0), "▁▅█");
        let mut values = vec![0.0; 600];
        values[5] = 7.0;
        let line = graph(&values, 7.0);
        assert_eq!(line.chars().count(), COLUMNS);
        assert!(line.starts_with("█▁"));
        assert_eq!(graph(&[f64::MAX, -1.0], f64::MAX), "█▁");
    }
}
