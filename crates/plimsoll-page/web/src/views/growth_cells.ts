// Cells of the tables of growth.

import { short } from "../data/text.ts";
import { bytes } from "../data/units.ts";
import { svg } from "../dom.ts";

/** Formats a number with its sign. */
export function sign(value: number, format: (value: number) => string): string {
  return (value > 0 ? "+" : "") + format(value);
}

/** Returns the file and line of a place. */
export function place({ file, line }: { file: string; line: number }): string {
  return file === "" ? "-" : `${short(file, 200)}${line > 0 ? `:${line}` : ""}`;
}

/** Draws the course of values as a small line. */
export function sparkline(values: number[]): Node | string {
  if (values.length < 3) return "-";
  const low = Math.min(...values);
  const span = Math.max(...values) - low || 1;
  const points = values.map((value, index) => {
    const x = (index / (values.length - 1)) * 78 + 1;
    return `${x.toFixed(1)},${(17 - ((value - low) / span) * 16).toFixed(1)}`;
  });
  const text = `from ${bytes(values[0]!)} to ${bytes(values.at(-1)!)}`;
  return svg("svg", { width: 80, height: 18, viewBox: "0 0 80 18", role: "img", "aria-label": text, class: "sparkline" }, svg("polyline", { points: points.join(" ") }));
}
