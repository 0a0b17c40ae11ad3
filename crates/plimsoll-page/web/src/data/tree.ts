// The tree of calls of a profile: one node for each path of functions, in columns.

import { isRuntime } from "./names.ts";
import { matchingLabels, sampleCount, type Profile } from "./profile.ts";

/** The choices by which a tree is made of a profile. */
export interface TreeOptions {
  /** The index of the sample type. */
  type: number;
  /** `key=value`, or empty. */
  label: string;
  /** Whether frames of start-up and runtimes are left out. The innermost frame always stays. */
  hide: boolean;
  /** Whether the innermost functions are the roots. */
  inverted: boolean;
}

/**
 * A tree of calls. Node 0 is the root, which is no function. A node's index is above its parent's.
 * Widths are sums of absolute values, so that a difference shows shrinkage as well as growth.
 */
export interface Tree {
  functions: Profile["functions"];
  func: Int32Array;
  parent: Int32Array;
  depth: Int32Array;
  /** The value of the stacks that end at this node. */
  self: Float64Array;
  /** The sum of `self` over the node and its descendants. */
  net: Float64Array;
  /** The sum of the absolute values of `self` over the node and its descendants. */
  width: Float64Array;
  /** The children of each node, by falling width: `children[first[node]..first[node + 1]]`. */
  first: Int32Array;
  children: Int32Array;
  /** Identifies the path of each node, in links. */
  hash: Uint32Array;
  maxDepth: number;
}

/** The limit of nodes, which keeps the page responsive. */
const MAX_NODES = 3_000_000;

/** Returns a hash of a text (FNV-1a). */
export function hashText(text: string): number {
  let hash = 0x811c9dc5;
  for (let i = 0; i < text.length; i++) hash = Math.imul(hash ^ text.charCodeAt(i), 0x01000193);
  return hash >>> 0;
}

const runtimeFunctions = new WeakMap<Profile, Uint8Array>();

/** For each function of the profile, whether its frames are left out. */
export function hiddenFunctions(profile: Profile, hide: boolean): Uint8Array {
  if (!hide) return new Uint8Array(profile.functions.length);
  let hidden = runtimeFunctions.get(profile);
  if (hidden === undefined) {
    hidden = Uint8Array.from(profile.functions, ({ name }) => (isRuntime(name) ? 1 : 0));
    runtimeFunctions.set(profile, hidden);
  }
  return hidden;
}

/** Makes the tree of a profile. */
export function makeTree(profile: Profile, options: TreeOptions): Tree {
  const { frames, starts, values, labels, functions } = profile;
  const types = profile.types.length;
  const matches = matchingLabels(profile, options.label);
  const hidden = hiddenFunctions(profile, options.hide);
  const func: number[] = [-1];
  const parent: number[] = [-1];
  const depth: number[] = [0];
  const self: number[] = [0];
  const byPath = new Map<number, number>();
  const base = functions.length + 1;

  for (let sample = 0; sample < sampleCount(profile); sample++) {
    const value = values[sample * types + options.type]!;
    if (value === 0 || !matches[labels[sample]!]) continue;
    const begin = starts[sample]!;
    const end = starts[sample + 1]!;
    let node = 0;
    for (let i = 0; i < end - begin; i++) {
      const position = options.inverted ? begin + i : end - 1 - i;
      const callee = frames[position]!;
      if (hidden[callee] === 1 && position !== begin) continue;
      const path = node * base + callee;
      let child = byPath.get(path);
      if (child === undefined) {
        child = func.length;
        if (child > MAX_NODES) throw new Error("the profile has too many different stacks");
        func.push(callee);
        parent.push(node);
        depth.push(depth[node]! + 1);
        self.push(0);
        byPath.set(path, child);
      }
      node = child;
    }
    self[node]! += value;
  }
  return complete(profile, func, parent, depth, Float64Array.from(self));
}

function complete(profile: Profile, func: number[], parent: number[], depth: number[], self: Float64Array): Tree {
  const nodes = func.length;
  const net = Float64Array.from(self);
  const width = self.map(Math.abs);
  const first = new Int32Array(nodes + 1);
  for (let node = nodes - 1; node > 0; node--) {
    const up = parent[node]!;
    net[up]! += net[node]!;
    width[up]! += width[node]!;
    first[up + 1]! += 1;
  }
  for (let node = 0; node < nodes; node++) first[node + 1]! += first[node]!;
  const next = first.slice();
  const children = new Int32Array(nodes - 1);
  for (let node = 1; node < nodes; node++) children[next[parent[node]!]!++] = node;
  for (let node = 0; node < nodes; node++) {
    const part = children.subarray(first[node]!, first[node + 1]!);
    if (part.length > 1) part.sort((a, b) => width[b]! - width[a]! || a - b);
  }
  const names = Uint32Array.from(profile.functions, ({ name }) => hashText(name));
  const hash = new Uint32Array(nodes);
  hash[0] = 0x811c9dc5;
  let maxDepth = 0;
  for (let node = 1; node < nodes; node++) {
    hash[node] = Math.imul(hash[parent[node]!]! ^ names[func[node]!]!, 0x01000193) >>> 0;
    maxDepth = Math.max(maxDepth, depth[node]!);
  }
  return {
    functions: profile.functions,
    func: Int32Array.from(func),
    parent: Int32Array.from(parent),
    depth: Int32Array.from(depth),
    self,
    net,
    width,
    first,
    children,
    hash,
    maxDepth,
  };
}

/** Returns the node with that hash; the root if none has it. */
export function nodeByHash(tree: Tree, hash: string): number {
  const wanted = Number.parseInt(hash, 16);
  return Math.max(0, tree.hash.indexOf(wanted));
}

/** Returns the name of a node. */
export function nodeName(tree: Tree, node: number): string {
  return node === 0 ? "all" : tree.functions[tree.func[node]!]!.name;
}

/** Returns the nodes from the root to `node`, without the root. */
export function path(tree: Tree, node: number): number[] {
  const nodes: number[] = [];
  for (let at = node; at > 0; at = tree.parent[at]!) nodes.push(at);
  return nodes.reverse();
}
