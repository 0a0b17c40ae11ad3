import assert from "node:assert/strict";
import { test } from "node:test";
import { encode } from "../support/encode.mjs";
import { heap } from "../support/profiles.mjs";
import { source } from "./source.mjs";

const { decodePlain } = await source("data/decode.ts");
const { makeTree, nodeByHash, nodeName, path } = await source("data/tree.ts");
const { layout, boxAt } = await source("draw/layout.ts");
const { functionTable, neighbours } = await source("data/functions.ts");
const { difference } = await source("data/diff.ts");
const { folded } = await source("data/folded.ts");
const { flameSvg } = await source("draw/svg.ts");
const { sites } = await source("data/sites.ts");

const SHAPE = [["inuse_objects", "count"], ["inuse_space", "bytes"]];
const profileOf = (samples, types = SHAPE) => decodePlain(encode({ types, samples }));
const PLAIN = { type: 1, label: "", hide: false, inverted: false };
const ONE = profileOf([
  { stack: ["c", "b", "main"], values: [1, 10], labels: { tenant: "acme" } },
  { stack: ["d", "b", "main"], values: [1, 30], labels: { tenant: "globex" } },
  { stack: ["b", "main"], values: [1, 5], labels: { tenant: "acme" } },
  { stack: ["e", "std::rt::lang_start", "f", "main"], values: [1, 55], labels: { size: 64 } },
]);

const lines = (tree) => folded(tree).trim().split("\n").sort();

test("a tree merges stacks from the outermost frame", () => {
  const tree = makeTree(ONE, PLAIN);
  assert.deepEqual(lines(tree), ["main;b 5", "main;b;c 10", "main;b;d 30", "main;f;std::rt::lang_start;e 55"]);
  assert.equal(tree.net[0], 100);
  assert.equal(tree.maxDepth, 4);
});

test("an inverted tree begins with the innermost frame", () => {
  const tree = makeTree(ONE, { ...PLAIN, inverted: true });
  assert.ok(lines(tree).includes("d;b;main 30"));
});

test("frames of runtimes are left out, but not at the leaf", () => {
  const tree = makeTree(ONE, { ...PLAIN, hide: true });
  assert.deepEqual(lines(tree), ["b 5", "b;c 10", "b;d 30", "f;e 55"]);
  const leaf = makeTree(profileOf([{ stack: ["clone3", "main"], values: [1, 1] }]), { ...PLAIN, hide: true });
  assert.deepEqual(lines(leaf), ["clone3 1"]);
});

test("a label selects samples by text and by number", () => {
  assert.equal(makeTree(ONE, { ...PLAIN, label: "tenant=acme" }).net[0], 15);
  assert.equal(makeTree(ONE, { ...PLAIN, label: "tenant" }).net[0], 45);
  assert.equal(makeTree(ONE, { ...PLAIN, label: "size = 64" }).net[0], 55);
  assert.equal(makeTree(ONE, { ...PLAIN, label: "size=63" }).net[0], 0);
});

test("children are sorted by width, and a hash finds its node", () => {
  const tree = makeTree(ONE, PLAIN);
  const main = tree.children[tree.first[0]];
  assert.equal(nodeName(tree, tree.children[tree.first[main]]), "f");
  for (let node = 1; node < tree.func.length; node++) {
    assert.equal(nodeByHash(tree, tree.hash[node].toString(16)), node);
    assert.equal(path(tree, node).at(-1), node);
  }
  assert.equal(nodeByHash(tree, "zz"), 0);
});

test("the layout is in proportion, and a zoomed node fills the width", () => {
  const tree = makeTree(ONE, PLAIN);
  const boxes = layout(tree, 0, 1000, 1);
  const byName = (name) => boxes.node.findIndex((node) => nodeName(tree, node) === name);
  assert.equal(boxes.width[byName("main")], 1000);
  assert.equal(boxes.width[byName("f")], 550);
  assert.equal(boxes.width[byName("b")], 450);
  assert.equal(boxes.x[byName("b")], 550);
  assert.equal(boxes.node[boxAt(boxes, 2, 600)], boxes.node[byName("b")]);
  assert.equal(boxAt(boxes, 2, 1001), -1);
  assert.equal(boxAt(boxes, 99, 1), -1);
  const zoomed = layout(tree, boxes.node[byName("b")], 1000, 1);
  const widths = zoomed.rows.map((row) => row.map((box) => Math.round(zoomed.width[box])));
  assert.deepEqual(widths, [[1000], [1000], [1000], [667, 222]]);
});

test("no row of the layout of a large profile overlaps or is too wide", () => {
  const tree = makeTree(decodePlain(encode(heap(20_000, { time: 1 }))), { ...PLAIN, type: 3 });
  const boxes = layout(tree, 0, 1200, 0.7);
  for (const row of boxes.rows) {
    let end = 0;
    for (const box of row) {
      assert.ok(boxes.x[box] >= end - 1e-6);
      end = boxes.x[box] + boxes.width[box];
    }
    assert.ok(end <= 1200 + 1e-6);
  }
});

test("a recursive function counts once for each stack", () => {
  const profile = profileOf([{ stack: ["a", "a", "b", "a"], values: [1, 8] }]);
  const rows = functionTable(profile, PLAIN);
  const row = rows.find(({ func }) => profile.functions[func].name === "a");
  assert.deepEqual([row.flat, row.cum], [8, 8]);
  const { callers, callees } = neighbours(profile, PLAIN, row.func);
  const names = (list) => list.map(({ func, value }) => `${profile.functions[func].name} ${value}`).sort();
  assert.deepEqual(names(callers), ["a 8", "b 8"]);
  assert.deepEqual(names(callees), ["a 8", "b 8"]);
});

test("a difference has growth, shrinkage and the net of both", () => {
  const later = profileOf([
    { stack: ["c", "b", "main"], values: [1, 25], labels: { tenant: "acme" } },
    { stack: ["new", "main"], values: [1, 7] },
  ]);
  const tree = makeTree(difference(ONE, later), PLAIN);
  assert.equal(tree.net[0], 32 - 100);
  assert.equal(tree.width[0], 15 + 7 + 30 + 5 + 55);
  assert.ok(lines(tree).includes("main;b;d -30"));
  assert.ok(lines(tree).includes("main;b;c 15"));
  assert.equal(makeTree(difference(ONE, later), { ...PLAIN, label: "tenant=acme" }).net[0], 10);
});

test("the difference of a profile to itself is empty", () => {
  const tree = makeTree(difference(ONE, ONE), PLAIN);
  assert.equal(tree.width[0], 0);
  assert.ok(layout(tree, 0, 1000, 1).width.every((width) => Number.isFinite(width)));
});

test("profiles of different sample types have no difference", () => {
  assert.throws(() => difference(profileOf([], [["x", "count"]]), ONE), /other sample types/);
});

test("an SVG file escapes hostile names", () => {
  const tree = makeTree(decodePlain(encode(heap(0, { time: 1 }))), { ...PLAIN, type: 3 });
  const text = flameSvg(tree, 0, "bytes", false);
  assert.ok(text.includes("&lt;script&gt;"));
  assert.ok(!text.includes("<script") && !text.includes("<img") && !text.includes("\u001b"));
});

test("a site is the innermost function outside the standard library", () => {
  const profile = profileOf([
    { stack: ["alloc::vec::Vec<T>::push", "app::cache::insert", "main"], values: [1, 64] },
    { stack: ["<alloc::boxed::Box<T> as core::clone::Clone>::clone", "app::cache::insert", "main"], values: [2, 36] },
    { stack: ["malloc", "start_thread"], values: [1, 1] },
    { stack: [], values: [1, 2] },
  ]);
  const found = sites(profile);
  assert.equal(found.get("app::cache::insert").bytes, 100);
  assert.equal(found.get("app::cache::insert").objects, 3);
  assert.equal(found.get("malloc").bytes, 1);
  assert.equal(found.get("[no stack]").bytes, 2);
});
