// Colours of flame graphs and charts.

import { hashText } from "../data/tree.ts";

/** A box's colours. */
export interface Paint {
  fill: string;
  text: string;
}

const HUES = [28, 200, 95, 265, 48, 172, 330, 222, 140, 8, 300, 70];
const NEUTRAL = new Set(["std", "core", "alloc", "hashbrown", "C and others", "[ ]", ""]);

function paint(hue: number, saturation: number, isDark: boolean): Paint {
  return isDark
    ? { fill: `hsl(${hue} ${saturation * 0.62}% 33%)`, text: "#f2f2ee" }
    : { fill: `hsl(${hue} ${saturation}% 78%)`, text: "#1d2021" };
}

/** Returns the colours of a crate. */
export function cratePaint(crate: string, isDark: boolean): Paint {
  if (NEUTRAL.has(crate)) return paint(40, 14, isDark);
  return paint(HUES[hashText(crate) % HUES.length]!, 52, isDark);
}

/** Returns the colours of a part of a difference: `balance` is from -1, shrunk, to 1, grown. */
export function balancePaint(balance: number, isDark: boolean): Paint {
  return paint(balance >= 0 ? 14 : 212, Math.round(8 + 70 * Math.abs(balance)), isDark);
}
