// A table with bars: names, values and their size.

import { el, fill } from "../dom.ts";

/** A row of the table. */
export interface Bar {
  name: string;
  size: number;
  texts: string[];
}

/** Fills a table with bars as long as their sizes. */
export function showBars(table: HTMLTableElement, heads: string[], bars: Bar[]): void {
  const largest = Math.max(1e-9, ...bars.map(({ size }) => Math.abs(size)));
  const head = el("tr", {}, ...heads.map((text, index) => el("th", { scope: "col", class: index === 0 ? "name" : "number" }, text)), el("td"));
  const rows = bars.map(({ name, size, texts }) => {
    const bar = el("div", { class: "bar" });
    bar.style.width = `${(100 * Math.abs(size)) / largest}%`;
    return el("tr", {}, el("th", { scope: "row" }, name), ...texts.map((text) => el("td", { class: "number" }, text)), el("td", { class: "bar-cell" }, bar));
  });
  fill(table, el("thead", {}, head), el("tbody", {}, ...rows));
}
