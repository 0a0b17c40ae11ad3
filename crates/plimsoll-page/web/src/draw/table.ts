// A table that shows only the rows in view, with columns that sort.

import { el, fill } from "../dom.ts";

const ROW = 28;
const EXTRA = 8;

/** A column of a table. */
export interface TableColumn<T> {
  title: string;
  /** The class of the column; `number` aligns right, `wide` hides on narrow screens, `name` takes the rest. */
  kind: string;
  /** The contents of a cell. */
  cell: (row: T) => Node | string;
  /** The value by which rows are sorted; columns without it do not sort. */
  order?: (row: T) => number | string;
  /** Whether the first click sorts from the largest. */
  falling?: boolean;
}

/** A table of any number of rows. */
export class Table<T> {
  readonly root: HTMLElement;
  private readonly body = el("tbody");
  private readonly table: HTMLTableElement;
  private readonly heads: HTMLElement[] = [];
  private rows: T[] = [];
  private sortColumn: number;
  private isFalling: boolean;
  private readonly empty: HTMLElement;
  private firstRow = -1;
  private lastRow = -1;

  constructor(
    label: string,
    private readonly columns: TableColumn<T>[],
    private readonly options: {
      sort?: number;
      empty?: string;
      /** Runs when a row is chosen. */
      choose?: (row: T) => void;
      isChosen?: (row: T) => boolean;
      sorted?: (column: number, isFalling: boolean) => void;
    } = {},
  ) {
    this.sortColumn = options.sort ?? -1;
    this.isFalling = columns[this.sortColumn]?.falling ?? false;
    const head = el("tr", { "aria-rowindex": 1 });
    columns.forEach((column, index) => {
      const content =
        column.order === undefined
          ? column.title
          : el("button", { type: "button", class: "sort", click: () => this.sortBy(index) }, column.title);
      const cell = el("th", { scope: "col", class: column.kind }, content);
      this.heads.push(cell);
      head.append(cell);
    });
    this.empty = el("p", { class: "note empty", hidden: true }, options.empty ?? "No rows.");
    this.table = el("table", { "aria-label": label }, el("thead", {}, head), this.body);
    this.root = el("div", { class: "table", tabindex: 0, role: "group", "aria-label": `${label}, scrolls` }, this.table, this.empty);
    this.root.addEventListener("scroll", () => this.render(false));
    new ResizeObserver(() => this.render(false)).observe(this.root);
    this.showSort();
  }

  /** Replaces the rows. */
  show(rows: T[]): void {
    this.rows = [...rows];
    this.sort();
    this.render(true);
  }

  /** Draws the rows in view again. */
  refresh(): void {
    this.render(true);
  }

  /** Sorts by a column. */
  sortBy(column: number, isFalling?: boolean): void {
    const wanted = this.columns[column];
    if (wanted?.order === undefined) return;
    this.isFalling = isFalling ?? (column === this.sortColumn ? !this.isFalling : (wanted.falling ?? false));
    this.sortColumn = column;
    this.sort();
    this.showSort();
    this.root.scrollTop = 0;
    this.render(true);
    if (isFalling === undefined) this.options.sorted?.(column, this.isFalling);
  }

  private sort(): void {
    const order = this.columns[this.sortColumn]?.order;
    if (order === undefined) return;
    const sign = this.isFalling ? -1 : 1;
    const keyed = this.rows.map((row) => [order(row), row] as const);
    keyed.sort(([a], [b]) => (a < b ? -sign : a > b ? sign : 0));
    this.rows = keyed.map(([, row]) => row);
  }

  private showSort(): void {
    this.heads.forEach((head, index) => {
      if (index === this.sortColumn) head.setAttribute("aria-sort", this.isFalling ? "descending" : "ascending");
      else head.removeAttribute("aria-sort");
    });
  }

  private render(isChanged: boolean): void {
    const height = this.root.clientHeight || 400;
    const first = Math.max(0, Math.floor(this.root.scrollTop / ROW) - EXTRA);
    const last = Math.min(this.rows.length, Math.ceil((this.root.scrollTop + height) / ROW) + EXTRA);
    if (!isChanged && first === this.firstRow && last === this.lastRow) return;
    this.firstRow = first;
    this.lastRow = last;
    this.table.setAttribute("aria-rowcount", String(this.rows.length + 1));
    this.empty.hidden = this.rows.length > 0;
    const focused = this.body.contains(document.activeElement) ? document.activeElement?.closest("tr")?.getAttribute("aria-rowindex") : undefined;
    const rows = this.rows.slice(first, last).map((row, index) => this.row(row, first + index));
    fill(this.body, this.space(first), ...rows, this.space(this.rows.length - last));
    if (focused) this.body.querySelector<HTMLElement>(`tr[aria-rowindex="${focused}"] button`)?.focus();
  }

  private space(rows: number): Node | null {
    if (rows === 0) return null;
    // One cell, without a span: columns that are hidden on narrow screens would come back.
    const cell = el("td");
    cell.style.height = `${rows * ROW}px`;
    return el("tr", { class: "space", "aria-hidden": "true" }, cell);
  }

  private row(row: T, index: number): Node {
    const { choose, isChosen } = this.options;
    const line = el("tr", { "aria-rowindex": index + 2, class: isChosen?.(row) ? "chosen" : undefined });
    for (const column of this.columns) {
      const content = column.cell(row);
      const cell = el("td", { class: column.kind });
      if (choose !== undefined && column.kind.includes("name")) {
        const button = el("button", { type: "button", class: "link", click: () => choose(row) }, content);
        if (typeof content === "string") button.title = content;
        cell.append(button);
      } else {
        cell.append(content);
        if (typeof content === "string" && !column.kind.includes("number")) cell.title = content;
      }
      line.append(cell);
    }
    return line;
  }
}
