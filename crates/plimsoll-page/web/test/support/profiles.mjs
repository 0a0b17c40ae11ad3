// Synthetic profiles, the same at every run.

/** Names that try to break the page. */
export const HOSTILE = [
  "<img src=x onerror=window.broken=1><script>window.broken=1</script>",
  "app::\u001b[31mred\u001b[0m::escape",
  `app::long::${"x".repeat(10_240)}`,
  Uint8Array.from([0x61, 0x70, 0x70, 0x3a, 0x3a, 0xff, 0xfe, 0xc3, 0x28]),
  "app::\u202egnp.exe\u202c::direction",
  "constructor",
  "__proto__",
];

/** A generator of pseudo-random numbers in [0, 1). */
export function random(seed) {
  let state = seed >>> 0;
  return () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return state / 4294967296;
  };
}

const CRATES = ["search", "hyper", "tokio", "serde_json", "alloc", "std", "tantivy", "bytes", "regex_automata", "rustls", "h2"];
const WORDS = ["index", "query", "parse", "encode", "decode", "read", "write", "merge", "score", "flush", "grow", "insert", "lookup", "poll", "next"];
const START = ["std::rt::lang_start", "main", "__libc_start_main"];

function name(next, variety) {
  const crate = CRATES[Math.floor(next() ** 2 * CRATES.length)];
  const word = () => WORDS[Math.floor(next() * WORDS.length)];
  const number = Math.floor(next() * variety);
  return next() < 0.2 ? `<${crate}::${word()}::Reader<T> as core::iter::Iterator>::${word()}_${number}` : `${crate}::${word()}::${word()}_${number}`;
}

/** Returns samples whose tree of calls has about `nodes` nodes. */
export function samples(nodes, { seed = 1, values = (bytes) => [2, bytes * 2, 1, bytes], scale = 1 } = {}) {
  const next = random(seed);
  const names = Array.from({ length: Math.max(60, Math.floor(nodes / 25)) }, () => name(next, 40));
  const result = [];
  const stacks = [[]];
  let made = 0;
  while (made < nodes) {
    const from = stacks[Math.floor(next() * stacks.length)];
    const keep = Math.floor(next() * from.length);
    const stack = from.slice(0, keep);
    const more = 1 + Math.floor(next() * 14);
    for (let i = 0; i < more && stack.length < 60; i++) stack.push(names[Math.floor(next() ** 1.5 * names.length)]);
    made += stack.length - keep;
    stacks.push(stack);
    const bytes = Math.floor(64 * 2 ** (next() * 14) * scale);
    const labels = { tenant: ["acme", "globex", "initech"][Math.floor(next() * 3)], bytes: 64 };
    result.push({ stack: [...stack].reverse().concat(START), values: values(bytes), labels });
  }
  return result;
}

const HEAP = [
  ["alloc_objects", "count"],
  ["alloc_space", "bytes"],
  ["inuse_objects", "count"],
  ["inuse_space", "bytes"],
];

/** Returns the heap profile of about `nodes` nodes, with hostile names. */
export function heap(nodes, { time, scale = 1, seed = 1 }) {
  const all = samples(nodes, { seed, scale });
  for (const hostile of HOSTILE) {
    all.push({ stack: ["alloc::vec::Vec<T>::push", hostile, "app::handler", ...START], values: [4, 4e6, 2, 2e6 * scale], labels: { tenant: "<b>bold</b>" } });
  }
  const comments = ["plimsoll: lost: 0 events", "<i>a comment</i>"];
  return { types: HEAP, samples: all, comments, time, defaultType: "inuse_space" };
}

/** Returns a profile of another kind, of about 600 nodes. */
export function other(kind, { time, seconds }) {
  const one = (type, unit, factor) => ({ types: [["samples", "count"], [type, unit]], values: (bytes) => [1, bytes * factor], duration: seconds });
  const shapes = {
    allocs: { types: HEAP, defaultType: "alloc_space" },
    peak: { types: [["peak_objects", "count"], ["peak_space", "bytes"]], values: (bytes) => [1, bytes] },
    mmap: { types: HEAP, defaultType: "inuse_space" },
    profile: one("cpu", "nanoseconds", 1e4),
    wall: one("time", "nanoseconds", 1e5),
    block: { types: [["contentions", "count"], ["delay", "nanoseconds"]], values: (bytes) => [3, bytes * 1e3] },
    mutex: { types: [["contentions", "count"], ["delay", "nanoseconds"]], values: (bytes) => [3, bytes * 1e3] },
    goroutine: { types: [["goroutine", "count"]], values: () => [1] },
    threadcreate: { types: [["threadcreate", "count"]], values: () => [1] },
    longpoll: { types: [["polls", "count"], ["delay", "nanoseconds"]], values: (bytes) => [1, bytes * 1e4] },
  };
  const shape = shapes[kind];
  if (shape === undefined) return undefined;
  const all = samples(600, { seed: kind.length * 7, ...(shape.values === undefined ? {} : { values: shape.values }) });
  return { types: shape.types, samples: all, time, duration: shape.duration ?? 0, defaultType: shape.defaultType ?? "" };
}

/** Returns the lifetimes of freed blocks. */
export function lifetimes(time) {
  const all = samples(300, { seed: 5, values: (bytes) => [3, bytes] }).map((sample, index) => ({
    ...sample,
    labels: { lifetime: index % 9 === 0 ? 0 : 10 ** (3 + (index % 8)) },
  }));
  return { types: [["freed_objects", "count"], ["freed_space", "bytes"]], samples: all, time };
}

/** Returns the resident memory by holder. */
export function memory(time) {
  const mib = 1024 * 1024;
  const rows = [
    [["search::index::Index::add", "[heap: blocks in use]", "[heap]"], 180],
    [["search::cache::insert", "[heap: blocks in use]", "[heap]"], 96],
    [["[heap: free, held by the allocator]", "[heap]"], 34],
    [["search::worker", "[thread tokio-worker]", "[thread stacks]"], 4],
    [["/usr/bin/search", "[files: code and constants]", "[files]"], 11],
    [["/lib/libc.so.6", "[files: code and constants]", "[files]"], 2],
    [["[plimsoll]"], 6],
    [["[unexplained]"], 3],
  ];
  return { types: [["memory_space", "bytes"]], samples: rows.map(([stack, size]) => ({ stack, values: [size * mib] })), time };
}
