//! The calls of a profile as a tree, for the flame graph. Functions that only call one other function
//! are left out: most of them start threads or run tasks.

use std::collections::HashMap;

use super::clean::clean;
use super::sites::Frame;

/// The maximum number of functions that are kept: those with the largest values.
const MAX_NODES: usize = 500;

/// The smallest part of the whole that is kept.
const MIN_PART: f64 = 0.002;

/// The maximum depth.
const MAX_DEPTH: usize = 60;

/// A function in the tree, in one chain of callers.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// The name of the function.
    pub function: String,
    /// The number of callers in the tree.
    pub depth: usize,
    /// The value of the function with its callees, and without them.
    pub total: f64,
    /// The value of the function without those that it calls.
    pub own: f64,
    /// The sum of all values that are drawn to the left of it.
    pub begin: f64,
}

/// Functions by their caller.
#[derive(Default)]
struct Branch<'a> {
    total: f64,
    own: f64,
    callees: HashMap<&'a str, Branch<'a>>,
}

/// The tree, as it grows.
#[derive(Default)]
pub struct Growing<'a>(Branch<'a>);

impl<'a> Growing<'a> {
    /// Adds a stack, innermost function first, with a positive value.
    pub fn add<'f>(&mut self, stack: impl DoubleEndedIterator<Item = &'f Frame<'a>>, value: f64)
    where
        'a: 'f,
    {
        let mut branch = &mut self.0;
        branch.total += value;
        for frame in stack.rev().take(MAX_DEPTH) {
            branch = branch.callees.entry(frame.function).or_default();
            branch.total += value;
        }
        branch.own += value;
    }

    /// Returns the nodes: each before its callees, and of several callees the largest first.
    pub fn nodes(self) -> Vec<Node> {
        let whole = self.0.total;
        let least = (whole * MIN_PART).max(largest(&self.0, MAX_NODES));
        let mut nodes = Vec::new();
        put(&self.0, 0, 0.0, least, &mut nodes);
        nodes
    }
}

/// Returns the value that at most `count` functions exceed.
fn largest(tree: &Branch<'_>, count: usize) -> f64 {
    let mut totals = Vec::new();
    let mut branches = vec![tree];
    while let Some(branch) = branches.pop() {
        totals.extend(branch.callees.values().map(|callee| callee.total));
        branches.extend(branch.callees.values());
    }
    if totals.len() <= count {
        return 0.0;
    }
    totals.sort_by(|one, other| other.total_cmp(one));
    totals[count]
}

fn put(branch: &Branch<'_>, depth: usize, begin: f64, least: f64, nodes: &mut Vec<Node>) {
    let mut callees: Vec<_> = branch.callees.iter().collect();
    callees.sort_by(|(one_name, one), (other_name, other)| {
        let by_value = other.total.total_cmp(&one.total);
        by_value.then_with(|| one_name.cmp(other_name))
    });
    let mut begin = begin;
    for (function, callee) in callees {
        let passes = callee
            .callees
            .values()
            .any(|only| only.total >= callee.total);
        if callee.total > least && passes {
            put(callee, depth, begin, least, nodes);
        } else if callee.total > least {
            nodes.push(Node {
                function: clean(function),
                depth,
                total: callee.total,
                own: callee.own,
                begin,
            });
            put(callee, depth + 1, begin, least, nodes);
        }
        begin += callee.total;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(stacks: &[(&[&'static str], f64)]) -> Vec<Node> {
        let mut growing = Growing::default();
        for (stack, value) in stacks {
            let frames = stack.iter().map(|&function| Frame {
                function,
                file: "",
                line: 0,
            });
            growing.add(frames.collect::<Vec<_>>().iter(), *value);
        }
        growing.nodes()
    }

    #[test]
    fn each_function_is_above_its_callees_and_has_their_sum() {
        let nodes = tree(&[
            (&["b", "main", "start"], 10.0),
            (&["c", "only_calls_c", "a", "main", "start"], 40.0),
            (&["a", "main", "start"], 20.0),
            (&["other"], 30.0),
        ]);
        let shown: Vec<_> = nodes
            .iter()
            .map(|node| {
                (
                    &*node.function,
                    node.depth,
                    node.total,
                    node.own,
                    node.begin,
                )
            })
            .collect();
        assert_eq!(
            shown,
            [
                ("main", 0, 70.0, 0.0, 0.0),
                ("a", 1, 60.0, 20.0, 0.0),
                ("c", 2, 40.0, 40.0, 0.0),
                ("b", 1, 10.0, 10.0, 60.0),
                ("other", 0, 30.0, 30.0, 70.0),
            ]
        );
    }

    #[test]
    fn small_and_deep_functions_are_left_out() {
        let names: Vec<String> = (0..2000).map(|number| number.to_string()).collect();
        let names: Vec<&'static str> = names
            .into_iter()
            .map(|name| &*Box::leak(name.into_boxed_str()))
            .collect();
        let mut stacks: Vec<(&[&str], f64)> = names
            .iter()
            .map(|name| (std::slice::from_ref(name), 1.0))
            .collect();
        stacks.push((&["large"], 1e6));
        assert_eq!(tree(&stacks).len(), 1);
        stacks.pop();
        assert!(tree(&stacks).len() <= MAX_NODES);
        let deep = vec!["f"; 1000];
        let stacks: Vec<(&[&str], f64)> = (1..1000).map(|depth| (&deep[..depth], 1.0)).collect();
        assert_eq!(tree(&stacks).len(), MAX_DEPTH);
    }
}
