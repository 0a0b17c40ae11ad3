// Synthetic answers of the pages that are no profiles.

import { HOSTILE, random } from "./profiles.mjs";

export const SERIES = [
  "heap_bytes", "heap_objects", "allocated_bytes", "freed_bytes", "allocated_objects", "freed_objects", "resident_bytes", "limit_bytes",
  "plimsoll_bytes", "threads", "tasks_running", "tasks_runnable", "tasks_waiting", "lock_waits", "lock_wait_seconds", "gc_cycles",
  "gc_pause_seconds", "cpu_seconds",
];

const MIB = 1024 * 1024;
const LIMIT = 1024 * MIB;

/** Returns the point of a time: smooth functions of it, so that every step agrees. */
function point(time, started) {
  const age = Math.max(0, time - started);
  const wave = Math.sin(time / 4000) * 90 + Math.sin(time / 310) * 30 + Math.sin(time / 23) * 9;
  const heap = Math.round((320 + wave + age / 900) * MIB);
  const made = age * 42 * MIB + Math.sin(time / 200) * 900 * MIB + 2000 * MIB;
  const noise = Math.sin(time * 12.9898) * 0.5 + 0.5;
  const waiting = Math.round(400 + 120 * Math.sin(time / 700) + noise * 30);
  return [
    time, heap, Math.round(heap / 310), Math.round(made), Math.round(made - heap), Math.round(made / 300), Math.round((made - heap) / 300),
    Math.round(heap * 1.18 + 42 * MIB), LIMIT, Math.round(6.5 * MIB), 12 + Math.round(3 * Math.sin(time / 900)), Math.round(noise * 4),
    Math.round(noise * 7), waiting, Math.round(age * 31 + 500 * Math.sin(time / 500) + 500), age * 0.04 + Math.sin(time / 500) + 1,
    Math.floor(age / 20), age * 0.0011, age * 1.6 + Math.sin(time / 90) * 20 + 20,
  ];
}

/** Returns the history between two times. */
export function history({ now, started, pid, from, to, program }) {
  const steps = [
    [1, 600],
    [10, 10_800],
    [60, 172_800],
  ].map(([seconds, span]) => {
    const begin = Math.max(started, now - span);
    const points = [];
    for (let time = Math.ceil(begin / seconds) * seconds; time <= now; time += seconds) {
      if (time > (from ?? -Infinity) && time <= (to ?? Infinity)) points.push(point(time, started));
    }
    return { seconds, points };
  });
  const maxima = [1, 2, 3]
    .map((id) => ({ time: now - id * 200, heap_bytes: point(now - id * 200, started)[1], id }))
    .filter(({ time }) => time >= started && time > (from ?? -Infinity));
  return { version: 1, now, started, program, pid, series: SERIES, steps, maxima };
}

/** Returns a list of threads and tasks, with leaks and hostile names. */
export function threads(number, total) {
  const next = random(3);
  const states = ["waiting", "running", "runnable", "waiting", "waiting"];
  const waits = ["mutex", "channel", "sleep", "epoll", "condvar"];
  const frame = (name, line) => ({ function: name, file: "src/service.rs", line });
  const list = Array.from({ length: number }, (_, index) => {
    const isTask = index >= 20;
    const state = states[Math.floor(next() * states.length)];
    const isWaiting = state === "waiting";
    return {
      kind: isTask ? "task" : "thread",
      id: isTask ? 10_000_001 + index : 100 + index,
      name: isTask ? `connection ${index}` : `tokio-worker-${index}`,
      state,
      wait: isWaiting ? waits[Math.floor(next() * waits.length)] : null,
      seconds: isWaiting ? Math.round(next() ** 4 * 9e6) / 1000 : null,
      labels: isTask ? { tenant: ["acme", "globex"][index % 2], span: "request" } : {},
      leak: index === 25 || index === 26 ? "deadlock" : index % 400 === 399 ? "forgotten" : null,
      creator: isTask ? "src/accept.rs:41" : null,
      stack: [frame("tokio::sync::mutex::Mutex<T>::lock", 12), frame("search::store::Store::get", 88), frame("search::service::handle", 240)],
    };
  });
  HOSTILE.forEach((hostile, index) => {
    if (typeof hostile === "string" && list[30 + index] !== undefined) {
      list[30 + index].name = hostile;
      list[30 + index].labels = { [hostile.slice(0, 200)]: hostile };
      list[30 + index].stack[0].function = hostile;
      list[30 + index].seconds = 9_000 + index;
      list[30 + index].state = "waiting";
    }
  });
  return { version: 1, threads: list, locks: locks(list), total: Math.max(total, number), shown: number };
}

/** Returns a deadlock of two tasks, a chain of three locks, and a lock with many waiters and a hostile name. */
function locks(list) {
  const party = (index) => ({ kind: list[index].kind, id: list[index].id });
  const held = (name, owner, waiters, more = {}) => ({
    object: "lock", name, owner: owner === null ? null : party(owner), deadlock: null, waiting: waiters.length, waiters: waiters.map(party), ...more,
  });
  if (list.length < 100) return [];
  return [
    held("accounts", 25, [26], { deadlock: "probable deadlock" }),
    held("ledger", 26, [25], { deadlock: "probable deadlock" }),
    held("<img src=x onerror=alert(1)>", null, Array.from({ length: 60 }, (_, index) => 40 + index), { waiting: 4000 }),
    held("cache", 3, [4, 5]),
    held("", 4, [6]),
    held("", 7, [4], { object: "end" }),
  ];
}

/** Returns the resident memory by owner. */
export function owners() {
  const rows = [["heap: blocks in use", 340, true], ["heap: held or fragmented", 61, true], ["stacks", 4, true], ["plimsoll", 6.5, true], ["files: code and constants", 13, true], ["account <b>cache</b>", 24, false]];
  return {
    rows: rows.map(([name, mib, measured]) => ({ name, sys: Math.round(mib * 1.2 * MIB), resident: Math.round(mib * MIB), measured })),
    explained: 448 * MIB,
    unexplained: 3 * MIB,
    kernel: { resident: 451 * MIB, proportional: 440 * MIB, anonymous: 400 * MIB, lazily_freed: 0, swapped: 0 },
    of_which: [],
  };
}

/** Returns the text of `/metrics`. */
export function metrics({ now, started }) {
  const values = point(now, started);
  const lines = [
    `plimsoll_memory_classes_heap_objects_bytes ${values[1]}`,
    `plimsoll_gc_heap_objects ${values[2]}`,
    `plimsoll_gc_heap_allocs_bytes_total ${values[3]}`,
    `plimsoll_gc_heap_frees_bytes_total ${values[4]}`,
    `plimsoll_gc_heap_allocs_objects_total ${values[5]}`,
    `plimsoll_gc_heap_frees_objects_total ${values[6]}`,
    `plimsoll_memory_classes_other_bytes 2621440`,
    `plimsoll_memory_classes_metadata_mcache_inuse_bytes 40192`,
    `plimsoll_threads ${values[10]}`,
    `plimsoll_tasks_running_tasks ${values[11]}`,
    `plimsoll_tasks_runnable_tasks ${values[12]}`,
    `plimsoll_tasks_waiting_tasks ${values[13]}`,
    `plimsoll_sync_lock_waits_total ${values[14]}`,
    `plimsoll_sync_mutex_wait_seconds_total ${values[15]}`,
    `plimsoll_gc_cycles_total ${values[16]}`,
    `plimsoll_gc_completed_pauses_seconds_total ${values[17]}`,
    `plimsoll_cpu_classes_user_cpu_seconds_total ${values[18]}`,
    `plimsoll_cpu_classes_gc_cpu_seconds_total 0.0`,
  ];
  for (const [name, factor] of [["allocs", 1], ["frees", 0.97]]) {
    let sum = 0;
    for (let size = 8; size <= 32_768; size *= 2) {
      sum += Math.round((4e6 / Math.sqrt(size)) * factor);
      lines.push(`plimsoll_gc_heap_${name}_by_size_bytes_bucket{le="${size}.0"} ${sum}`);
    }
    lines.push(`plimsoll_gc_heap_${name}_by_size_bytes_bucket{le="+Inf"} ${sum + 40}`);
  }
  return `${lines.join("\n")}\n`;
}

/** Returns the growth of sites: one leaks, one is unsteady, one has a hostile name. */
export function growth() {
  const course = (slope) => Array.from({ length: 60 }, (_, at) => [1_700_000_000 + 10 * at, 1_000_000 + slope * at]);
  const site = (verdict, name, slope, lifetime) => ({
    verdict, bytes: 1_000_000 + 60 * slope, bytes_per_second: slope / 10, error: 12.5, chance: verdict === "not significant" ? 1 : 3.2e-9,
    window: 320, mallocs: 5000, frees: lifetime === null ? 0 : 4900, lifetime, course: course(slope),
    stack: [{ function: "alloc::vec::Vec<T,A>::push", file: "", line: 0 }, { function: name, file: "src/cache.rs", line: 42 }, { function: "app::main", file: "src/main.rs", line: 7 }],
  });
  return {
    version: 1, readings: 128, readings_needed: 64, observed: 1280, bytes_per_second: 5000, seconds_to_limit: 7300, total: 3,
    sites: [site("leaking", "app::session::remember", 50_000, null), site("unsteady", "app::cache::<img src=x onerror=alert(1)>", 1000, 60), site("not significant", "app::\u001b[31mred", 0, 0.001)],
  };
}
