import assert from "node:assert/strict";
import { test } from "node:test";
import { source } from "./source.mjs";

// The module reads the address of the page when it loads.
globalThis.location = { hash: "" };
globalThis.addEventListener = () => undefined;
const { parseHash, formatHash, parseWindow } = await source("state.ts");

test("a hash survives reading and writing", () => {
  const state = { tab: "profiles", values: new Map([["kind", "heap"], ["label", "a=b&c?#%"], ["search", "é ::<"]]) };
  assert.deepEqual(parseHash(formatHash(state)), state);
});

test("an unknown tab is the overview", () => {
  assert.equal(parseHash("#constructor?x=1").tab, "overview");
  assert.equal(parseHash("").tab, "overview");
  assert.equal(parseHash("#threads").tab, "threads");
});

test("a window is finite and takes a second at least", () => {
  assert.deepEqual(parseWindow("1700000000", "1700000600.5"), { from: 1_700_000_000, to: 1_700_000_600.5 });
  for (const [from, to] of [["1", "Infinity"], ["1", "1e300"], ["5", "4"], ["5", "5.5"], ["x", "9"], ["", ""], ["-5", "9"]]) {
    assert.equal(parseWindow(from, to), undefined, `${from} ${to}`);
  }
});
