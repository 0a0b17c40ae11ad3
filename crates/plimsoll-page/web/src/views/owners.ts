// The table of the resident memory by owner.

import { bytes, share } from "../data/units.ts";
import { address, getJson, reason } from "../data/request.ts";
import { short } from "../data/text.ts";
import { el, setText } from "../dom.ts";
import { Table } from "../draw/table.ts";

interface Row {
  name: string;
  sys?: number;
  resident: number;
  measured: boolean;
}

interface Answer {
  rows: Row[];
  unexplained?: number;
  kernel?: { resident: number };
}

const INTERVAL = 10_000;

/** The table, read again every ten seconds while it is in view. */
export class Owners {
  readonly root: HTMLElement;
  private readonly note = el("p", { class: "note" });
  private whole = 0;
  private last = -Infinity;
  private readonly table = new Table<Row>(
    "Resident memory by owner",
    [
      { title: "Owner", kind: "name plain", cell: (row) => short(row.name), order: (row) => row.name },
      { title: "Resident", kind: "number", cell: (row) => bytes(row.resident), order: (row) => row.resident, falling: true },
      { title: "Share", kind: "number", cell: (row) => share(row.resident, this.whole) },
      { title: "Mapped", kind: "number wide", cell: (row) => (row.sys === undefined ? "-" : bytes(row.sys)), order: (row) => row.sys ?? -1, falling: true },
    ],
    { sort: 1, empty: "No reading yet." },
  );

  constructor() {
    this.root = el("section", { class: "card" }, el("h2", {}, "Owners of the resident memory now"), this.table.root, this.note);
  }

  /** Reads the table, unless the last reading is new. */
  async read(): Promise<void> {
    const now = performance.now();
    if (now - this.last < INTERVAL) return;
    this.last = now;
    try {
      const answer = await getJson<Answer>(address("memory", { format: "json" }));
      const rows = [...answer.rows];
      if (answer.unexplained !== undefined) rows.push({ name: "unexplained", resident: answer.unexplained, measured: true });
      this.whole = answer.kernel?.resident ?? rows.reduce((sum, row) => sum + row.resident, 0);
      this.table.show(rows);
      setText(this.note, `Resident memory: ${bytes(this.whole)}.`);
    } catch (error) {
      setText(this.note, `The owners cannot be read: ${reason(error)}.`);
    }
  }
}
