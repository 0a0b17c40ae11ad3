import assert from "node:assert/strict";
import { test } from "node:test";
import { source } from "./source.mjs";

// The module reads the address of the page when it loads.
globalThis.location = { hash: "" };
globalThis.addEventListener = () => undefined;
const { parseHash, formatHash } = await source("state.ts");

test("a hash survives reading and writing", () => {
  const state = { tab: "profiles", values: new Map([["kind", "heap"], ["label", "a=b&c?#%"], ["search", "é ::<"]]) };
  assert.deepEqual(parseHash(formatHash(state)), state);
});

test("an unknown tab is the overview", () => {
  assert.equal(parseHash("#constructor?x=1").tab, "overview");
  assert.equal(parseHash("").tab, "overview");
  assert.equal(parseHash("#threads").tab, "threads");
});
