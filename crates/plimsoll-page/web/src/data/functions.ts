// Values by function: flat and cumulative, callers and callees.

import { hiddenFunctions, type TreeOptions } from "./tree.ts";
import { matchingLabels, sampleCount, type Profile } from "./profile.ts";

/** The values of one function. */
export interface FunctionRow {
  func: number;
  flat: number;
  cum: number;
}

/** A function that calls another, or is called by it, with the value of the stacks that contain the call. */
export interface Neighbour {
  func: number;
  value: number;
}

type Options = Omit<TreeOptions, "inverted">;

/** Calls `each` with every sample that counts, and with its visible frames from the innermost. */
function eachStack(profile: Profile, options: Options, each: (value: number, stack: number[]) => void): void {
  const matches = matchingLabels(profile, options.label);
  const hidden = hiddenFunctions(profile, options.hide);
  const types = profile.types.length;
  const stack: number[] = [];
  for (let sample = 0; sample < sampleCount(profile); sample++) {
    const value = profile.values[sample * types + options.type]!;
    if (value === 0 || !matches[profile.labels[sample]!]) continue;
    stack.length = 0;
    const begin = profile.starts[sample]!;
    for (let at = begin; at < profile.starts[sample + 1]!; at++) {
      const func = profile.frames[at]!;
      if (hidden[func] === 0 || at === begin) stack.push(func);
    }
    each(value, stack);
  }
}

/** Returns the values of every function. A recursive function counts once for each stack. */
export function functionTable(profile: Profile, options: Options): FunctionRow[] {
  const rows = new Map<number, FunctionRow>();
  const seenAt = new Int32Array(profile.functions.length).fill(-1);
  let round = 0;
  eachStack(profile, options, (value, stack) => {
    stack.forEach((func, index) => {
      let row = rows.get(func);
      if (row === undefined) {
        row = { func, flat: 0, cum: 0 };
        rows.set(func, row);
      }
      if (index === 0) row.flat += value;
      if (seenAt[func] !== round) {
        seenAt[func] = round;
        row.cum += value;
      }
    });
    round += 1;
  });
  return [...rows.values()];
}

/** Returns the callers and the callees of a function, by falling value. */
export function neighbours(
  profile: Profile,
  options: Options,
  func: number,
): { callers: Neighbour[]; callees: Neighbour[] } {
  const callers = new Map<number, number>();
  const callees = new Map<number, number>();
  const add = (map: Map<number, number>, seen: Set<number>, other: number, value: number) => {
    if (seen.has(other)) return;
    seen.add(other);
    map.set(other, (map.get(other) ?? 0) + value);
  };
  eachStack(profile, options, (value, stack) => {
    if (!stack.includes(func)) return;
    const up = new Set<number>();
    const down = new Set<number>();
    stack.forEach((each, index) => {
      if (each !== func) return;
      if (index + 1 < stack.length) add(callers, up, stack[index + 1]!, value);
      if (index > 0) add(callees, down, stack[index - 1]!, value);
    });
  });
  const rows = (map: Map<number, number>) =>
    [...map]
      .map(([other, value]) => ({ func: other, value }))
      .sort((a, b) => Math.abs(b.value) - Math.abs(a.value));
  return { callers: rows(callers), callees: rows(callees) };
}

/** Returns the sum of all values that count. */
export function total(profile: Profile, options: Options): number {
  let sum = 0;
  eachStack(profile, options, (value) => (sum += value));
  return sum;
}
