import assert from "node:assert/strict";
import { test } from "node:test";
import { history as answer, metrics } from "../support/answers.mjs";
import { source } from "./source.mjs";

const units = await source("data/units.ts");
const { visible, short } = await source("data/text.ts");
const { crateOf, shortName, isRuntime } = await source("data/names.ts");
const { History } = await source("data/history.ts");
const { readMetrics, histogram, reading } = await source("data/metrics.ts");

test("bytes have IEC units and counts SI units", () => {
  assert.equal(units.bytes(0), "0 B");
  assert.equal(units.bytes(1023), "1023 B");
  assert.equal(units.bytes(1024), "1 KiB");
  assert.equal(units.bytes(1536), "1.50 KiB");
  assert.equal(units.bytes(1024 ** 2 - 1), "1.00 MiB");
  assert.equal(units.bytes(-3 * 1024 ** 3), "-3 GiB");
  assert.equal(units.bytes(NaN), "-");
  assert.equal(units.count(99_999), "99,999");
  assert.equal(units.count(1_234_567), "1.23 M");
  assert.equal(units.count(0.25), "0.25");
  assert.equal(units.exact(1234567), "1,234,567");
});

test("durations have the largest unit that fits", () => {
  assert.equal(units.seconds(0), "0 s");
  assert.equal(units.seconds(12e-9), "12 ns");
  assert.equal(units.seconds(1.5e-3), "1.50 ms");
  assert.equal(units.seconds(90), "90 s");
  assert.equal(units.seconds(7200), "2 h");
  assert.equal(units.age(93_784), "1 d 2 h");
  assert.equal(units.age(0.5), "0 s");
  assert.equal(units.value(2e9, "nanoseconds"), "2 s");
  assert.equal(units.signed(2048, "bytes"), "+2 KiB");
  assert.equal(units.share(1, 3), "33.3 %");
  assert.equal(units.share(1, 0), "-");
});

test("control characters become visible, and long text short", () => {
  assert.equal(visible("a\u001b[31mb\u0000\u007f"), "a\u241b[31mb\u2400\u2421");
  assert.equal(visible("\u202e"), "\ufffd");
  assert.equal(short("x".repeat(10_240), 10).length, 10);
});

test("the crate is the first segment of the path", () => {
  assert.equal(crateOf("search::index::add"), "search");
  assert.equal(crateOf("<search::Index as core::ops::Drop>::drop"), "search");
  assert.equal(crateOf("<&mut dyn hyper::Body as a::B>::c"), "hyper");
  assert.equal(crateOf("malloc"), "C and others");
  assert.equal(crateOf("[heap]"), "categories");
  assert.equal(crateOf("/usr/lib/libc.so.6"), "files");
  assert.equal(crateOf(""), "C and others");
});

test("short names have no type arguments", () => {
  assert.equal(shortName("a::b::C<d::E, f::G>::h"), "C::h");
  assert.equal(shortName("<a::b::C<T> as d::E<U>>::h"), "C::h");
  assert.equal(shortName("a::call::<fn(u8) -> u8>"), "a::call");
  assert.equal(shortName("main"), "main");
});

test("start-up and runtimes are recognized", () => {
  for (const name of ["std::rt::lang_start", "clone3", "__libc_start_main_impl", "tokio::runtime::task::raw::poll", "<F as core::ops::function::FnOnce<()>>::call_once"]) {
    assert.ok(isRuntime(name), name);
  }
  for (const name of ["app::main", "tokio::sync::Mutex::lock", "std::fs::read", "<app::Start as app::Run>::run"]) assert.ok(!isRuntime(name), name);
});

const NOW = 1_764_030_000;
const BASE = { now: NOW, started: NOW - 200_000, pid: 1, program: "x" };

test("the history has each time from the finest step", () => {
  const history = new History();
  history.add(answer(BASE));
  const times = History.times(history.points());
  for (let i = 1; i < times.length; i++) assert.ok(times[i] > times[i - 1]);
  assert.equal(times.at(-1) - times.at(-2), 1);
  assert.equal(times[1] - times[0], 60);
  assert.ok(times.length > 4000 && times.length < 5000);
});

test("new points extend the history without repetition", () => {
  const history = new History();
  history.add(answer(BASE));
  const before = history.points().length;
  const last = history.last;
  history.add(answer({ ...BASE, now: NOW + 5, from: last - 3 }));
  assert.equal(history.points().length, before + 5);
  assert.equal(history.last, NOW + 5);
});

test("another start or process number is another process", () => {
  const history = new History();
  const first = answer(BASE);
  assert.ok(!history.isOther(first));
  history.add(first);
  assert.ok(!history.isOther(first));
  assert.ok(history.isOther({ ...first, pid: 2 }));
  assert.ok(history.isOther({ ...first, started: NOW - 1 }));
});

test("rates are increases per second, and absent where values are", () => {
  const history = new History();
  const points = [[10, 100], [12, 140], [13, null], [14, 10], [15, 5]];
  history.add({ ...BASE, version: 1, series: ["lock_waits"], steps: [{ seconds: 1, points }], maxima: [] });
  assert.deepEqual(history.rate(history.points(), "lock_waits"), [null, 20, null, null, null]);
  assert.deepEqual(history.column(history.points(), "heap_bytes"), [null, null, null, null, null]);
});

test("metrics give a reading and histograms", () => {
  const read = readMetrics(metrics({ now: NOW, started: NOW - 100 }) + "garbage\n\n# TYPE x counter\nx{a=\"b\"} 1e3 123\n");
  assert.equal(read.get('x{a="b"}'), 1000);
  const point = reading(read, NOW, NOW - 5);
  assert.ok(point.steps[0].points[0][1] > 0);
  const buckets = histogram(read, "plimsoll_gc_heap_allocs_by_size_bytes");
  assert.equal(buckets[0].bound, 8);
  assert.equal(buckets.at(-1).bound, Infinity);
  assert.equal(buckets.at(-1).count, 40);
});
