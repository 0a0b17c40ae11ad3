//! Graphs of figures over time, made of characters.

/// Returns the rows of a graph from the top. Each value is a column, and the newest value is at the
/// right. The largest value reaches the top. `bars` are the fill levels of a cell, empty first.
pub(super) fn rows(values: &[f64], width: usize, height: usize, bars: &[&str]) -> Vec<String> {
    let newest = &values[values.len().saturating_sub(width)..];
    let most = newest.iter().copied().fold(0.0, f64::max);
    let steps = bars.len() - 1;
    let heights = newest.iter().map(|&value| {
        let share = if most > 0.0 { value / most } else { 0.0 };
        let height = (share * (steps * height) as f64).round() as usize;
        // A value above zero is always visible.
        if value > 0.0 { height.max(1) } else { 0 }
    });
    let heights: Vec<usize> = heights.collect();
    let rows = (0..height).rev().map(|row| {
        let mut text = " ".repeat(width - newest.len());
        for &height in &heights {
            text.push_str(bars[height.saturating_sub(row * steps).min(steps)]);
        }
        text
    });
    rows.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const BARS: &[&str] = &[" ", "_", "o", "#"];

    #[test]
    fn the_largest_value_reaches_the_top() {
        let graph = rows(&[0.0, 1.0, 2.0, 3.0, 6.0], 6, 2, BARS);
        assert_eq!(graph, ["     #", "  _o##"].map(|row| row.to_owned()));
    }

    #[test]
    fn only_the_newest_have_room() {
        assert_eq!(rows(&[9.0, 1.0, 1.0], 2, 1, BARS), ["##"]);
        assert_eq!(rows(&[9.0], 0, 1, BARS), [""]);
        assert_eq!(rows(&[9.0], 1, 0, BARS), [""; 0]);
    }

    #[test]
    fn little_is_more_than_nothing() {
        assert_eq!(rows(&[0.0, 1e-9, 1e9], 3, 1, BARS), [" _#"]);
        assert_eq!(rows(&[0.0, 0.0], 2, 1, BARS), ["  "]);
        assert_eq!(rows(&[], 3, 1, BARS), ["   "]);
    }
}
