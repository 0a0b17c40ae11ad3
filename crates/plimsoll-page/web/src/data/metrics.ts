// The page `/metrics`: a reader of its text, and readings of a program that keeps no history.

import type { Column, HistoryAnswer, Point } from "./history.ts";

/** The values by name, with the labels as they are written. */
export type Metrics = Map<string, number>;

/** Reads the text of Prometheus. Lines that are no metric are skipped. */
export function readMetrics(text: string): Metrics {
  const metrics: Metrics = new Map();
  for (const line of text.split("\n")) {
    if (line === "" || line.startsWith("#")) continue;
    const name = /^[\w:]+(?:\{[^}]*\})?/.exec(line)?.[0];
    if (name === undefined) continue;
    const value = Number(line.slice(name.length).trim().split(" ")[0]!.replace("+Inf", "Infinity"));
    if (!Number.isNaN(value)) metrics.set(name, value);
  }
  return metrics;
}

/** A bar of a histogram: the number of values above the previous bound, up to this one. */
export interface Bucket {
  bound: number;
  count: number;
}

/** Returns the buckets of a histogram, not cumulative. */
export function histogram(metrics: Metrics, name: string): Bucket[] {
  const buckets: Bucket[] = [];
  for (const [key, value] of metrics) {
    if (!key.startsWith(`${name}_bucket{`)) continue;
    const bound = /le="([^"]*)"/.exec(key)?.[1];
    if (bound !== undefined) buckets.push({ bound: Number(bound.replace("+Inf", "Infinity")), count: value });
  }
  buckets.sort((a, b) => a.bound - b.bound);
  for (let i = buckets.length - 1; i > 0; i--) buckets[i]!.count -= buckets[i - 1]!.count;
  return buckets;
}

/** The metrics of each column: their values are added. */
const SOURCES: [Column, string[]][] = [
  ["heap_bytes", ["memory_classes_heap_objects_bytes"]],
  ["heap_objects", ["gc_heap_objects"]],
  ["allocated_bytes", ["gc_heap_allocs_bytes_total"]],
  ["freed_bytes", ["gc_heap_frees_bytes_total"]],
  ["allocated_objects", ["gc_heap_allocs_objects_total"]],
  ["freed_objects", ["gc_heap_frees_objects_total"]],
  ["threads", ["threads"]],
  ["tasks_running", ["tasks_running_tasks"]],
  ["tasks_runnable", ["tasks_runnable_tasks"]],
  ["tasks_waiting", ["tasks_waiting_tasks"]],
  ["lock_waits", ["sync_lock_waits_total"]],
  ["lock_wait_seconds", ["sync_mutex_wait_seconds_total"]],
  ["gc_cycles", ["gc_cycles_total"]],
  ["gc_pause_seconds", ["gc_completed_pauses_seconds_total"]],
  ["cpu_seconds", ["cpu_classes_user_cpu_seconds_total", "cpu_classes_gc_cpu_seconds_total"]],
];

/** Returns a reading in the form of the page `history`. */
export function reading(metrics: Metrics, time: number, started: number): HistoryAnswer {
  const point: Point = [time];
  for (const [, names] of SOURCES) {
    const values = names.map((name) => metrics.get(`plimsoll_${name}`));
    point.push(values.some((value) => value === undefined) ? null : values.reduce((a, b) => a! + b!, 0)!);
  }
  return {
    version: 1,
    now: time,
    started,
    program: "",
    pid: 0,
    series: SOURCES.map(([column]) => column),
    steps: [{ seconds: 1, points: [point] }],
    maxima: [],
  };
}
