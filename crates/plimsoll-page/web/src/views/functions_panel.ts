// The table of functions, and the callers and callees of the chosen one. It is also the text
// alternative of the flame graph.

import { functionTable, neighbours, total, type FunctionRow, type Neighbour } from "../data/functions.ts";
import type { Profile } from "../data/profile.ts";
import { short } from "../data/text.ts";
import { share, signed, value } from "../data/units.ts";
import { el, fill, setText } from "../dom.ts";
import { Table } from "../draw/table.ts";

/** A profile with the choices by which it is shown. */
interface Content {
  profile: Profile;
  options: { type: number; label: string; hide: boolean };
  isDifference: boolean;
}

/** The panel. */
export class FunctionsPanel {
  readonly root: HTMLElement;
  private content: Content | undefined;
  private rows: FunctionRow[] = [];
  private whole = 0;
  private chosen = -1;
  private search = "";
  private readonly table: Table<FunctionRow>;
  private readonly callers: Table<Neighbour>;
  private readonly callees: Table<Neighbour>;
  private readonly title = el("h2", {}, "Callers and callees");
  private readonly place = el("p", { class: "note" }, "Select a function in the table or in the flame graph.");
  private readonly pair: HTMLElement;

  /** `choose` runs when a function is chosen in a table. */
  constructor(private readonly choose: (func: number) => void) {
    this.table = new Table<FunctionRow>(
      "Functions",
      [
        { title: "Flat", kind: "number", cell: (row) => this.value(row.flat), order: (row) => row.flat, falling: true },
        { title: "Flat %", kind: "number wide", cell: (row) => this.share(row.flat) },
        { title: "Cum", kind: "number", cell: (row) => this.value(row.cum), order: (row) => row.cum, falling: true },
        { title: "Cum %", kind: "number wide", cell: (row) => this.share(row.cum) },
        { title: "Function", kind: "name", cell: (row) => this.name(row.func), order: (row) => this.name(row.func) },
      ],
      {
        sort: 0,
        empty: "No function has a value.",
        choose: (row) => choose(row.func),
        isChosen: (row) => row.func === this.chosen,
      },
    );
    this.callers = this.neighbourTable("Callers");
    this.callees = this.neighbourTable("Callees");
    this.pair = el("div", { class: "pair", hidden: true }, this.callers.root, this.callees.root);
    this.root = el(
      "div",
      { class: "functions" },
      el("section", { class: "card" }, el("h2", {}, "Functions"), this.table.root),
      el("section", { class: "card" }, this.title, this.place, this.pair),
    );
  }

  private neighbourTable(title: string): Table<Neighbour> {
    return new Table<Neighbour>(
      title,
      [
        { title: "Value", kind: "number", cell: (row) => this.value(row.value), order: (row) => Math.abs(row.value), falling: true },
        { title, kind: "name", cell: (row) => this.name(row.func), order: (row) => this.name(row.func) },
      ],
      { sort: 0, empty: "None.", choose: (row) => this.choose(row.func) },
    );
  }

  /** Shows the functions of a profile. */
  show(content: Content, search: string): void {
    this.content = content;
    this.rows = functionTable(content.profile, content.options);
    this.whole = total(content.profile, content.options);
    this.search = search.toLowerCase();
    this.showRows();
    this.select(-1);
  }

  /** Shows only the functions whose name contains `search`. */
  filter(search: string): void {
    if (this.search === search.toLowerCase()) return;
    this.search = search.toLowerCase();
    this.showRows();
  }

  private showRows(): void {
    const functions = this.content?.profile.functions ?? [];
    const rows = this.rows.filter(({ func }) => functions[func]!.name.toLowerCase().includes(this.search));
    this.table.show(rows);
  }

  /** Shows the callers and callees of a function; -1 for none. */
  select(func: number): void {
    if (this.content === undefined || (func === this.chosen && func >= 0)) return;
    this.chosen = func;
    this.pair.hidden = func < 0;
    this.table.refresh();
    if (func < 0) {
      setText(this.title, "Callers and callees");
      setText(this.place, "Select a function in the table or in the flame graph.");
      return;
    }
    const { profile, options } = this.content;
    const { name, file, line } = profile.functions[func]!;
    const { callers, callees } = neighbours(profile, options, func);
    const row = this.rows.find((each) => each.func === func);
    setText(this.title, short(name, 10_000));
    const values = row === undefined ? "" : `flat ${this.value(row.flat)}, cum ${this.value(row.cum)}`;
    fill(this.place, values, file === "" ? "" : `; ${short(file)}${line > 0 ? `:${line}` : ""}`);
    this.callers.show(callers);
    this.callees.show(callees);
  }

  /** Returns the share of the sum. The sum of a difference is no whole. */
  private share(number: number): string {
    return this.content!.isDifference ? "-" : share(number, this.whole);
  }

  private name(func: number): string {
    return short(this.content?.profile.functions[func]?.name ?? "");
  }

  private value(number: number): string {
    const { profile, options, isDifference } = this.content!;
    const { unit } = profile.types[options.type]!;
    return isDifference ? signed(number, unit) : value(number, unit);
  }
}
