// The layout of a flame graph: the boxes of the nodes that are wide enough to see.

import type { Tree } from "../data/tree.ts";

/** Boxes in columns. Within a row, `x` rises. */
export interface Layout {
  /** The node of each box; -1 for nodes that are too narrow, drawn as one. */
  node: number[];
  x: number[];
  width: number[];
  row: number[];
  /** For each row, its boxes from left to right. */
  rows: number[][];
}

/**
 * Lays out the node `zoom` over the whole width, its ancestors above it and its descendants below.
 * Nodes narrower than `minimum` pixels become one box with those beside them.
 */
export function layout(tree: Tree, zoom: number, pixels: number, minimum: number): Layout {
  const result: Layout = { node: [], x: [], width: [], row: [], rows: [] };
  const put = (node: number, x: number, width: number, row: number) => {
    while (result.rows.length <= row) result.rows.push([]);
    result.rows[row]!.push(result.node.length);
    result.node.push(node);
    result.x.push(x);
    result.width.push(width);
    result.row.push(row);
  };
  for (let node = tree.parent[zoom]!; node >= 0; node = tree.parent[node]!) put(node, 0, pixels, tree.depth[node]!);
  const scale = tree.width[zoom]! > 0 ? pixels / tree.width[zoom]! : 0;
  const stack: [node: number, x: number][] = [[zoom, 0]];
  for (let top = stack.pop(); top !== undefined; top = stack.pop()) {
    const [node, x] = top;
    const row = tree.depth[node]!;
    put(node, x, node === zoom ? pixels : tree.width[node]! * scale, row);
    let offset = x;
    const next: [number, number][] = [];
    const end = tree.first[node + 1]!;
    for (let i = tree.first[node]!; i < end; i++) {
      const child = tree.children[i]!;
      const width = tree.width[child]! * scale;
      if (width < minimum) {
        // The children are sorted by width: the others are narrower still.
        const rest = tree.children.subarray(i, end).reduce((sum, each) => sum + tree.width[each]! * scale, 0);
        if (rest >= minimum) put(-1, offset, rest, row + 1);
        break;
      }
      next.push([child, offset]);
      offset += width;
    }
    while (next.length > 0) stack.push(next.pop()!);
  }
  for (const row of result.rows) row.sort((a, b) => result.x[a]! - result.x[b]!);
  return result;
}

/** Returns the box at a place; -1 if none is there. */
export function boxAt(boxes: Layout, row: number, x: number): number {
  const list = boxes.rows[row];
  if (list === undefined) return -1;
  let low = 0;
  let high = list.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (boxes.x[list[middle]!]! <= x) low = middle + 1;
    else high = middle;
  }
  const box = list[low - 1];
  return box !== undefined && x < boxes.x[box]! + boxes.width[box]! ? box : -1;
}

/** Returns the box of a node; -1 if it has none. */
export function boxOf(tree: Tree, boxes: Layout, node: number): number {
  return boxes.rows[tree.depth[node]!]?.find((box) => boxes.node[box] === node) ?? -1;
}
