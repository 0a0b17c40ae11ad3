// The kinds of profiles, and the addresses of their readings.

import { embedded, files } from "./files.ts";
import { address, getBytes } from "./request.ts";

/** A kind of profile. */
export interface Kind {
  name: string;
  title: string;
  /** Whether the server records it for some seconds. */
  isRecorded?: boolean;
  /** Whether the server gives the difference over some seconds. */
  hasDifference?: boolean;
  /** Whether the server keeps readings of the past. */
  isKept?: boolean;
}

/** The kinds of a running program. It answers with a reason for those that it lacks. */
const OF_PROGRAMS: Kind[] = [
  { name: "heap", title: "Heap in use", hasDifference: true, isKept: true },
  { name: "allocs", title: "Allocations", hasDifference: true, isKept: true },
  { name: "peak", title: "Heap at the peak" },
  { name: "lifetimes", title: "Lifetimes of freed blocks", hasDifference: true, isKept: true },
  { name: "memory", title: "Resident memory by holder" },
  { name: "fragmentation", title: "Fragmentation" },
  { name: "mmap", title: "Mappings", hasDifference: true, isKept: true },
  { name: "profile", title: "CPU time", isRecorded: true, isKept: true },
  { name: "wall", title: "Elapsed time", isRecorded: true },
  { name: "block", title: "Waits", hasDifference: true, isKept: true },
  { name: "mutex", title: "Lock holders", hasDifference: true, isKept: true },
  { name: "goroutine", title: "Threads and tasks" },
  { name: "goroutineleak", title: "Leaked threads and tasks" },
  { name: "longpoll", title: "Long polls", hasDifference: true, isKept: true },
  { name: "threadcreate", title: "Creation of threads" },
];

/** All kinds that the page offers. Each file is a kind of its own. */
export const KINDS: Kind[] = files?.map(({ name, title, hasHistory }) => ({ name, title, isKept: hasHistory === true })) ?? OF_PROGRAMS;

/** Returns the kind with that name; the first one if the name is unknown. */
export function kindOf(name: string): Kind {
  return KINDS.find((kind) => kind.name === name) ?? KINDS[0]!;
}

/** The state of a profile to read. */
export interface Reading {
  /** `now`; `seconds` for a recording or the difference over some seconds; `at` for a time in the past; `window` for the difference over a window. */
  mode: "now" | "seconds" | "at" | "window";
  seconds: number;
  at: number;
  from: number;
  to: number;
}

/** Returns the address of a reading. */
export function profileAddress(kind: string, reading: Reading): string {
  const query: Record<string, number> = {};
  if (reading.mode === "seconds") query.seconds = reading.seconds;
  if (reading.mode === "at") query.at = reading.at;
  if (reading.mode === "window") {
    query.from = reading.from;
    query.to = reading.to;
  }
  return address(files === undefined ? `../pprof/${kind}` : `profiles/${kind}`, query);
}

/** Reads the profile of a kind from the document or from `address`. */
export async function readProfile(kind: string, address: string, timeout?: number, signal?: AbortSignal): Promise<Uint8Array<ArrayBuffer>> {
  return embedded(kind) ?? getBytes(address, timeout, signal);
}

/** Returns the kind with that name, if the server keeps its past readings; else the heap profile, of one of several files. */
export function keptKind(name: string): string {
  const kept = KINDS.filter(({ isKept }) => isKept === true);
  return (kept.find((kind) => kind.name === name) ?? kept[0])?.name ?? "";
}

/** Returns the address of the present state of a profile. */
export function presentAddress(kind: string): string {
  return address(`../pprof/${kind}`);
}
