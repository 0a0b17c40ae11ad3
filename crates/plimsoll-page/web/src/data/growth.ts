// The verdicts on allocation sites: which grow, and which leak.

import { files } from "./files.ts";
import { isLibrary } from "./names.ts";
import { address, getJson } from "./request.ts";

/** A call of a stack. */
interface Frame {
  function: string;
  file: string;
  line: number;
}

/** The growth of an allocation site. */
export interface SiteGrowth {
  verdict: "leaking" | "unsteady" | "not significant";
  bytes: number;
  bytes_per_second: number;
  /** Half of the 95 % confidence interval of the growth. */
  error: number;
  /** The probability that chance alone causes such growth. Files lack it, and the other optional figures. */
  chance?: number;
  /** The length of the judged window in seconds. */
  window: number;
  mallocs?: number;
  frees?: number;
  /** The mean time in use in seconds. */
  lifetime: number | null;
  /** Times in seconds since 1970, each with the bytes in use. */
  course?: [number, number][];
  /** The calls, innermost first. */
  stack: Frame[];
}

/** The growth of all allocation sites. */
export interface Growth {
  readings: number;
  readings_needed: number;
  /** The time since the first reading in seconds. */
  observed: number;
  /** The growth of all leaking sites. */
  bytes_per_second: number;
  /** The time until the memory limit is reached. */
  seconds_to_limit: number | null;
  /** The number of sites, of which the first ones are listed. */
  total: number;
  sites: SiteGrowth[];
}

/** Reads the growth; that of the file with the name `file` on a page over files. */
export async function readGrowth(file: string): Promise<Growth> {
  const answer = await getJson<Growth & { version: number }>(address(files === undefined ? "growth" : `growth/${file}`));
  if (answer.version !== 1 || !Array.isArray(answer.sites)) throw new Error("the growth has an unknown format");
  return answer;
}

/** Returns the innermost call that is not of a library. */
export function siteOf(stack: Frame[]): Frame {
  return stack.find((frame) => !isLibrary(frame.function)) ?? stack[0] ?? { function: "[no stack]", file: "", line: 0 };
}
