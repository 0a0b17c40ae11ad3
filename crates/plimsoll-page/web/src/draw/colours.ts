// Colours of flame graphs and charts.

import { CATEGORIES, WITHOUT_CRATE } from "../data/names.ts";
import { hashText } from "../data/tree.ts";

/** A box's colours. */
export interface Paint {
  fill: string;
  text: string;
}

const HUES = [28, 200, 95, 265, 48, 172, 330, 222, 140, 8, 300, 70];
const NEUTRAL = new Set(["std", "core", "alloc", "hashbrown", CATEGORIES, WITHOUT_CRATE, ""]);

function paint(hue: number, saturation: number, isDark: boolean): Paint {
  return isDark
    ? { fill: `hsl(${hue} ${saturation * 0.62}% 33%)`, text: "#f2f2ee" }
    : { fill: `hsl(${hue} ${saturation}% 78%)`, text: "#1d2021" };
}

/** The hues of the crates so far. While hues are left, no two crates share one. */
const hues = new Map<string, number>();

function hueOf(crate: string): number {
  let hue = hues.get(crate);
  if (hue === undefined) {
    const preferred = hashText(crate) % HUES.length;
    const taken = new Set(hues.values());
    const order = HUES.map((_, index) => HUES[(preferred + index) % HUES.length]!);
    hue = order.find((each) => !taken.has(each)) ?? HUES[preferred]!;
    hues.set(crate, hue);
  }
  return hue;
}

/** Returns the colours of a crate. The first crates to be coloured get different ones. */
export function cratePaint(crate: string, isDark: boolean): Paint {
  if (NEUTRAL.has(crate)) return paint(40, 14, isDark);
  return paint(hueOf(crate), 52, isDark);
}

/** Returns the colours of a part of a difference: `balance` is from -1, shrunk, to 1, grown. */
export function balancePaint(balance: number, isDark: boolean): Paint {
  return paint(balance >= 0 ? 14 : 212, Math.round(8 + 70 * Math.abs(balance)), isDark);
}
