//! The calls of a profile as a tree, limited to frames that are visible in a picture.

use std::collections::HashMap;
use std::hash::BuildHasherDefault;

use crate::report::Shown;
use crate::report::Spread;

/// Frames narrower than the picture's width divided by this number are not drawn.
const NARROWEST: u64 = 10_000;

/// The maximum number of frames in a picture; the widest ones are kept.
const MAX_FRAMES: usize = 30_000;

/// The maximum depth of drawn stacks.
const DEEPEST: usize = 2000;

/// The maximum number of nodes during construction, at 50 bytes each. A profile may have more, most
/// of them too narrow. The tree is then built in several passes of some levels each.
const MAX_ON_THE_WAY: usize = 1_000_000;

/// A function on one path of calls from the root.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Node {
    /// The frame; 0 for the root.
    pub(crate) frame: u32,
    parent: u32,
    /// The depth; 0 for the root.
    pub(crate) depth: u32,
    /// The width: the sum of the absolute values of its samples.
    pub(crate) weight: u64,
    /// The sum of the values of its samples.
    pub(crate) value: i64,
}

/// A tree whose root represents all samples.
#[derive(Debug, Default)]
pub(crate) struct Tree {
    /// The nodes in depth-first order, each with its distance from the left as a weight.
    pub(crate) nodes: Vec<(Node, u64)>,
    /// Whether stacks are deeper than the drawn part.
    pub(crate) is_cut: bool,
}

type Children = HashMap<u64, u32, BuildHasherDefault<Spread>>;

fn key(parent: u32, frame: u32) -> u64 {
    u64::from(parent) << 32 | u64::from(frame)
}

struct Builder {
    nodes: Vec<Node>,
    children: Children,
    is_cut: bool,
}

impl Tree {
    /// Builds the tree of the samples that are shown.
    pub(crate) fn new(shown: &Shown<'_>) -> Self {
        let mut builder = Builder {
            nodes: vec![Node {
                frame: 0,
                parent: 0,
                depth: 0,
                weight: 0,
                value: 0,
            }],
            children: Children::default(),
            is_cut: false,
        };
        let (mut done, mut levels) = (0, DEEPEST);
        while done < DEEPEST {
            let deepest = (done + levels).min(DEEPEST);
            match builder.pass(shown, done, deepest, levels > 1) {
                Pass::TooMany => {
                    builder.cut_to(done, 0);
                    levels = (levels / 4).clamp(1, 16);
                }
                Pass::More => {
                    builder.cut_to(deepest, builder.narrowest());
                    done = deepest;
                }
                Pass::All => break,
            }
        }
        builder.is_cut |= done == DEEPEST;
        builder.finish(shown)
    }
}

/// The result of a pass.
enum Pass {
    /// All stacks end before the deepest level, or at frames that are too narrow.
    All,
    /// Some stacks are deeper.
    More,
    TooMany,
}

impl Builder {
    /// Adds the levels below `done` down to `deepest`.
    fn pass(&mut self, shown: &Shown<'_>, done: usize, deepest: usize, is_limited: bool) -> Pass {
        let mut result = Pass::All;
        shown.each(|stack, value| {
            if matches!(result, Pass::TooMany) {
                return;
            }
            let mut node = 0_u32;
            if done == 0 {
                self.add(node, value);
            }
            for (level, &frame) in stack.frames().iter().rev().enumerate() {
                if level == deepest {
                    result = Pass::More;
                    return;
                }
                let known = self.children.get(&key(node, frame)).copied();
                node = match known {
                    Some(known) => known,
                    // The frame is too narrow.
                    None if level < done => return,
                    None => self.child(node, frame, level as u32 + 1),
                };
                if level >= done {
                    self.add(node, value);
                }
            }
            if is_limited && self.nodes.len() > MAX_ON_THE_WAY {
                result = Pass::TooMany;
            }
        });
        result
    }

    fn add(&mut self, node: u32, value: i64) {
        let node = &mut self.nodes[node as usize];
        node.weight = node.weight.saturating_add(value.unsigned_abs());
        node.value = node.value.saturating_add(value);
    }

    fn child(&mut self, parent: u32, frame: u32, depth: u32) -> u32 {
        let node = self.nodes.len() as u32;
        self.children.insert(key(parent, frame), node);
        self.nodes.push(Node {
            frame,
            parent,
            depth,
            weight: 0,
            value: 0,
        });
        node
    }

    fn narrowest(&self) -> u64 {
        self.nodes[0].weight / NARROWEST
    }

    /// Drops nodes that are deeper or narrower. Parents come before their children, and are at
    /// least as wide.
    fn cut_to(&mut self, deepest: usize, narrowest: u64) {
        let mut moved = vec![0_u32; self.nodes.len()];
        let mut kept: Vec<Node> = Vec::new();
        self.children.clear();
        for (index, &node) in self.nodes.iter().enumerate() {
            if node.depth as usize > deepest || node.weight < narrowest {
                continue;
            }
            let mut node = node;
            node.parent = moved[node.parent as usize];
            moved[index] = kept.len() as u32;
            if node.depth > 0 {
                self.children
                    .insert(key(node.parent, node.frame), kept.len() as u32);
            } else {
                // The first pass is repeated, and counts the root again.
                if deepest == 0 {
                    (node.weight, node.value) = (0, 0);
                }
            }
            kept.push(node);
        }
        self.children.shrink_to_fit();
        self.nodes = kept;
    }

    fn finish(mut self, shown: &Shown<'_>) -> Tree {
        let mut narrowest = self.narrowest().max(1);
        let mut widths: Vec<u64> = self
            .nodes
            .iter()
            .map(|node| node.weight)
            .filter(|&weight| weight >= narrowest)
            .collect();
        if widths.len() > MAX_FRAMES {
            let (_, &mut width, _) = widths.select_nth_unstable_by(MAX_FRAMES, |a, b| b.cmp(a));
            narrowest = width.saturating_add(1);
        }
        self.children = Children::default();
        let mut children: HashMap<u32, Vec<u32>> = HashMap::new();
        for (index, node) in self.nodes.iter().enumerate().skip(1) {
            if node.weight >= narrowest {
                children.entry(node.parent).or_default().push(index as u32);
            }
        }
        for siblings in children.values_mut() {
            siblings.sort_by_key(|&node| shown.frames.name(self.nodes[node as usize].frame));
        }
        // A stack of nodes to visit; the next one is last.
        let mut next = vec![(0_u32, 0_u64)];
        let mut nodes = Vec::new();
        while let Some((index, left)) = next.pop() {
            let node = self.nodes[index as usize];
            nodes.push((node, left));
            let Some(children) = children.get(&index) else {
                continue;
            };
            let first = next.len();
            let mut at = left;
            for &child in children {
                next.push((child, at));
                at = at.saturating_add(self.nodes[child as usize].weight);
            }
            next[first..].reverse();
        }
        Tree {
            nodes,
            is_cut: self.is_cut,
        }
    }
}
