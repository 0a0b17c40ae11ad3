// Profiles as folded text: one line for each stack, functions from the outermost, then the value.

import { visible } from "./text.ts";
import { nodeName, path, type Tree } from "./tree.ts";

/** Returns the folded text of a tree that is not inverted. */
export function folded(tree: Tree): string {
  const lines: string[] = [];
  for (let node = 1; node < tree.func.length; node++) {
    const value = tree.self[node]!;
    if (value === 0) continue;
    const names = path(tree, node).map((each) => visible(nodeName(tree, each)).replaceAll(";", ":"));
    lines.push(`${names.join(";")} ${value}\n`);
  }
  return lines.join("");
}
