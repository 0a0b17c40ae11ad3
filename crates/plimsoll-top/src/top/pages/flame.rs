//! The memory in use as a flame graph: the tree of calls, with a bar for each function.

use super::super::table::{Cell, Column, Row, Table};
use super::super::units::{bytes, percent};
use super::{Field, or_dash, why_empty};
use plimsoll_watch::watch::model::Model;
use plimsoll_watch::watch::sites::{Kind, Sites};
use plimsoll_watch::watch::tree::Node;

/// The width of the graph in columns.
const WIDTH: usize = 30;

/// The column of the tree, in whose order the rows are a flame graph.
pub(super) const TREE: usize = 3;

pub(super) const COLUMNS: &[Column] = &[
    Column::number("IN USE", 9),
    Column::number("OWN", 9),
    Column::number("SHARE", 7),
    Column::text("FLAME", WIDTH),
    Column::text("FUNCTION", 0),
];

fn nodes(model: &Model) -> &[Node] {
    let profile = model.profile(Kind::Heap);
    let sites = profile.and_then(|profile| profile.sites.as_ref());
    sites.map_or(&[], Sites::tree)
}

/// Returns the sum of the outermost functions.
fn whole(nodes: &[Node]) -> Option<f64> {
    let outermost = nodes.iter().filter(|node| node.depth == 0);
    outermost
        .map(|node| node.total)
        .reduce(|sum, total| sum + total)
}

pub(super) fn fields(model: &Model) -> Vec<Field> {
    vec![Field::new("in use", or_dash(whole(nodes(model)), bytes))]
}

pub(super) fn table(model: &Model) -> Table {
    let nodes = nodes(model);
    let whole = whole(nodes).unwrap_or(1.0);
    let rows = nodes.iter().enumerate().map(|(at, node)| Row {
        cells: vec![
            Cell::number(node.total, bytes),
            Cell::number(node.own, bytes),
            Cell::number(node.total / whole, percent),
            Cell::placed(at, bar(node, whole)),
            Cell::placed(
                at,
                format!("{:indent$}{}", "", node.function, indent = node.depth),
            ),
        ],
        more: callers(&nodes[..=at]).into(),
    });
    Table {
        columns: COLUMNS,
        rows: rows.collect(),
        why_empty: why_empty(
            model,
            &[Kind::Heap],
            "The heap profile has no memory in use.",
        ),
    }
}

/// Returns the bar of a function: below its caller's, and beside those of its caller's other callees.
fn bar(node: &Node, whole: f64) -> String {
    let column = |value: f64| (value / whole * WIDTH as f64).round() as usize;
    let begin = column(node.begin).min(WIDTH - 1);
    let end = column(node.begin + node.total).clamp(begin + 1, WIDTH);
    format!("{:begin$}{}", "", "#".repeat(end - begin))
}

/// Returns the last of the nodes and its callers, innermost first.
fn callers(nodes: &[Node]) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    let mut depth = usize::MAX;
    for node in nodes.iter().rev() {
        if node.depth < depth {
            lines.push(node.function.clone());
            depth = node.depth;
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(depth: usize, total: f64, begin: f64) -> Node {
        Node {
            function: format!("f{begin}"),
            depth,
            total,
            own: 0.0,
            begin,
        }
    }

    #[test]
    fn bars_lie_below_those_of_the_callers() {
        assert_eq!(bar(&node(0, 100.0, 0.0), 100.0), "#".repeat(30));
        assert_eq!(
            bar(&node(1, 50.0, 50.0), 100.0),
            format!("{:15}{}", "", "#".repeat(15))
        );
        assert_eq!(bar(&node(1, 0.3, 99.7), 100.0), format!("{:29}#", ""));
    }

    #[test]
    fn callers_are_those_of_the_last_function() {
        let nodes = [
            node(0, 9.0, 0.0),
            node(1, 5.0, 1.0),
            node(2, 5.0, 2.0),
            node(1, 4.0, 3.0),
        ];
        assert_eq!(callers(&nodes), ["f3", "f0"]);
        assert_eq!(callers(&nodes[..3]), ["f2", "f1", "f0"]);
    }
}
