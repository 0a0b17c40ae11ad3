import assert from "node:assert/strict";
import { test } from "node:test";
import { gzipSync } from "node:zlib";
import { encode, encodeGzip, Writer } from "../support/encode.mjs";
import { HOSTILE, heap, random } from "../support/profiles.mjs";
import { source } from "./source.mjs";

const { decode, decodePlain } = await source("data/decode.ts");

const SMALL = {
  types: [["inuse_objects", "count"], ["inuse_space", "bytes"]],
  samples: [
    { stack: [["inlined", "a"], "main"], values: [2, 300], labels: { tenant: "acme", bytes: 150 } },
    { stack: ["b", "main"], values: [-1, -50] },
  ],
  comments: ["first", "second"],
  time: 1_764_030_000,
  duration: 10,
  defaultType: "inuse_space",
};

test("a profile survives encoding and decoding", async () => {
  const profile = await decode(encodeGzip(SMALL));
  assert.deepEqual(profile.types, [{ type: "inuse_objects", unit: "count" }, { type: "inuse_space", unit: "bytes" }]);
  const stack = (sample) => [...profile.frames.subarray(profile.starts[sample], profile.starts[sample + 1])].map((func) => profile.functions[func].name);
  assert.deepEqual(stack(0), ["inlined", "a", "main"]);
  assert.deepEqual(stack(1), ["b", "main"]);
  assert.deepEqual([...profile.values], [2, 300, -1, -50]);
  assert.deepEqual(profile.labelSets[profile.labels[0]], [
    { key: "tenant", value: "acme", unit: "" },
    { key: "bytes", value: 150, unit: "bytes" },
  ]);
  assert.deepEqual(profile.labelSets[profile.labels[1]], []);
  assert.deepEqual(profile.comments, ["first", "second"]);
  assert.equal(profile.time, 1_764_030_000);
  assert.equal(profile.duration, 10);
  assert.equal(profile.defaultType, "inuse_space");
  assert.deepEqual(profile.functions[0], { name: "inlined", file: "src/main.rs", line: 7 });
});

test("addresses without functions show their module and the offset in its file", () => {
  const strings = ["", "space", "bytes", "/usr/lib/libone.so"];
  const locations = [[1, 0x7000_3a5], [1, 0], [2, 0x123], [0, 0x456], [0, 0], [9, 0x789]];
  const profile = new Writer();
  profile.message(1, (type) => {
    type.number(1, 1);
    type.number(2, 2);
  });
  for (const [id, [mapping, address]] of locations.entries()) {
    profile.message(2, (sample) => {
      sample.packed(1, [id + 1]);
      sample.packed(2, [1]);
    });
    profile.message(4, (location) => {
      location.number(1, id + 1);
      location.number(2, mapping);
      location.number(3, address);
    });
  }
  for (const [id, start, offset, file] of [[1, 0x7000_000, 0x1000, 3], [2, 0, 0, 0]]) {
    profile.message(3, (mapping) => {
      mapping.number(1, id);
      mapping.number(2, start);
      mapping.number(4, offset);
      mapping.number(5, file);
    });
  }
  for (const text of strings) profile.bytes(6, new TextEncoder().encode(text));
  const names = decodePlain(profile.finish()).functions.map(({ name }) => name);
  assert.deepEqual(names, ["libone.so+0x13a5", "[libone.so]", "0x123", "0x456", "[unknown]", "0x789"]);
});

test("a profile need not be compressed", async () => {
  assert.equal((await decode(encode(SMALL))).types.length, 2);
});

test("hostile names are read as text", () => {
  const profile = decodePlain(encode(heap(10, { time: 1 })));
  const names = profile.functions.map(({ name }) => name);
  for (const name of HOSTILE) {
    const text = typeof name === "string" ? name : new TextDecoder().decode(name);
    assert.ok(names.includes(text), text.slice(0, 40));
  }
});

test("every prefix of a profile is an error or a profile", async () => {
  const bytes = encode(SMALL);
  for (let length = 0; length < bytes.length; length++) {
    try {
      decodePlain(bytes.subarray(0, length));
    } catch (error) {
      assert.match(error.message, /^not a profile: /);
    }
  }
  await assert.rejects(decode(encodeGzip(SMALL).subarray(0, 60)), /damaged/);
});

test("10,000 damaged profiles are errors or profiles, and none hangs", () => {
  const original = encode(SMALL);
  const next = random(11);
  const begin = performance.now();
  for (let round = 0; round < 10_000; round++) {
    const bytes = Uint8Array.from(original);
    for (let i = 0; i < 1 + (round % 4); i++) bytes[Math.floor(next() * bytes.length)] = Math.floor(next() * 256);
    try {
      decodePlain(bytes);
    } catch (error) {
      assert.match(error.message, /profile/, error.stack);
    }
  }
  assert.ok(performance.now() - begin < 20_000);
});

test("text and empty answers are no profiles", async () => {
  await assert.rejects(decode(new TextEncoder().encode("404 page not found\n")), /not a profile/);
  await assert.rejects(decode(new Uint8Array()), /not a profile/);
});

test("a stack that multiplies inlined frames is cut", () => {
  const deep = Array.from({ length: 4000 }, (_, index) => `inlined_${index}`);
  const stack = Array.from({ length: 3000 }, () => deep);
  const profile = decodePlain(encode({ types: [["n", "count"]], samples: [{ stack, values: [1] }] }));
  assert.ok(profile.frames.length <= 5000);
});

test("a small profile that stands for very many frames is an error", () => {
  const deep = Array.from({ length: 5000 }, (_, index) => `f${index}`);
  const samples = Array.from({ length: 2100 }, () => ({ stack: [deep], values: [1] }));
  const begin = performance.now();
  assert.throws(() => decodePlain(encode({ types: [["n", "count"]], samples })), /too many frames/);
  assert.ok(performance.now() - begin < 10_000);
});

test("a compressed profile of unlimited size is an error", async () => {
  const writer = new Writer();
  writer.bytes(6, new Uint8Array(300 * 1024 * 1024));
  await assert.rejects(decode(gzipSync(writer.finish(), { level: 1 })), /exceeds/);
});

test("numbers of 64 bits keep their sign", () => {
  const value = -(2 ** 52);
  const profile = decodePlain(encode({ types: [["n", "count"]], samples: [{ stack: ["a"], values: [value] }, { stack: ["a"], values: [2 ** 53 - 1] }] }));
  assert.deepEqual([...profile.values], [value, 2 ** 53 - 1]);
});
