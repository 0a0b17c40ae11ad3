// The tab of threads and tasks.

import { address, getJson, reason } from "../data/request.ts";
import { short, visible } from "../data/text.ts";
import { age, count, exact, seconds } from "../data/units.ts";
import { checkbox, el, fill, select, setText, textField } from "../dom.ts";
import { Table } from "../draw/table.ts";
import { state } from "../state.ts";
import { chains, keyOf, type Held, type Party } from "./locks.ts";
import type { View } from "./view.ts";

const INTERVAL = 5_000;
const MAX_LEAKS = 50;
const MAX_LOCKS = 100;

/** A thread or a task. */
interface Entry {
  kind: "thread" | "task";
  id: number;
  name: string;
  state: string;
  wait: string | null;
  seconds: number | null;
  labels: Record<string, string>;
  leak: string | null;
  creator: string | null;
  stack: { function: string; file: string; line: number }[];
  /** All texts in lower case, for the filter. */
  text?: string;
}

interface Answer {
  version: number;
  threads: Entry[];
  locks: Held[];
  total: number;
  shown: number;
}

/** The names of the columns in the address of the page. */
const COLUMNS = ["name", "state", "wait", "age", "labels", "leak", "id"];

function labels(entry: Entry): string {
  return Object.entries(entry.labels ?? {})
    .map(([key, value]) => `${key}=${value}`)
    .join(" ");
}

function searched(entry: Entry): string {
  entry.text ??= [entry.kind, entry.id, entry.name, entry.state, entry.wait, labels(entry), entry.leak, entry.creator, ...entry.stack.map((frame) => frame.function)]
    .join("\n")
    .toLowerCase();
  return entry.text;
}

/** The threads and tasks. */
export class Threads implements View {
  readonly root: HTMLElement;
  private entries: Entry[] = [];
  private total = 0;
  private chosen: Entry | undefined;
  private isRead = false;
  private isReading = false;
  private timer = 0;
  private readonly note = el("p", { class: "note", role: "status" });
  private readonly leaks = el("section", { class: "card leaks", hidden: true });
  private readonly locks = el("section", { class: "card locks", hidden: true });
  private readonly detail = el("section", { class: "card detail", "aria-label": "Stack" });
  private readonly filter = textField("Filter", (filter) => state.set({ filter }), { placeholder: "name, label, function" });
  private readonly show = select("Show", [["", "threads and tasks"], ["thread", "threads"], ["task", "tasks"]], (only) => state.set({ only }));
  private readonly again = el("button", { type: "button", class: "primary", click: () => void this.read() }, "Read again");
  private readonly auto = checkbox("Every 5 s", (isOn) => state.set({ auto: isOn ? "1" : "" }));
  private readonly table = new Table<Entry>(
    "Threads and tasks",
    [
      { title: "Name", kind: "name plain", cell: (row) => short(row.name), order: (row) => row.name },
      { title: "State", kind: "word wide", cell: (row) => short(row.state), order: (row) => row.state },
      { title: "Wait", kind: "word", cell: (row) => short(row.wait ?? "-"), order: (row) => row.wait ?? "" },
      { title: "For", kind: "number", cell: (row) => (row.seconds === null ? "-" : seconds(row.seconds)), order: (row) => row.seconds ?? -1, falling: true },
      { title: "Labels", kind: "text wide", cell: (row) => short(labels(row)), order: labels },
      { title: "Leak", kind: "word wide", cell: (row) => short(row.leak ?? "-"), order: (row) => row.leak ?? "", falling: true },
      { title: "Number", kind: "number wide", cell: (row) => String(row.id), order: (row) => row.id },
    ],
    {
      sort: 3,
      empty: "No thread or task matches.",
      choose: (row) => this.choose(row),
      isChosen: (row) => row.id === this.chosen?.id && row.kind === this.chosen.kind,
      sorted: (column, isFalling) => state.set({ sort: (isFalling ? "-" : "") + COLUMNS[column]! }),
    },
  );

  constructor() {
    this.root = el(
      "div",
      {},
      el("div", { class: "tools" }, this.filter.root, this.show.root, this.again, this.auto.root),
      this.note,
      this.leaks,
      this.locks,
      el("div", { class: "split" }, el("section", { class: "card" }, el("h2", {}, "Threads and tasks"), this.table.root), this.detail),
    );
    this.showDetail();
  }

  update(): void {
    if (document.activeElement !== this.filter.input) this.filter.input.value = state.get("filter");
    this.show.input.value = state.get("only");
    this.auto.input.checked = state.get("auto") === "1";
    const sort = state.get("sort");
    const column = COLUMNS.indexOf(sort.replace(/^-/, ""));
    if (column >= 0) this.table.sortBy(column, sort.startsWith("-"));
    if (!this.isRead) void this.read();
    else this.showRows();
    this.schedule();
  }

  private schedule(): void {
    clearTimeout(this.timer);
    if (state.get("auto") !== "1") return;
    this.timer = setTimeout(() => {
      if (state.tab === "threads" && !document.hidden) void this.read();
      if (state.tab === "threads") this.schedule();
    }, INTERVAL);
  }

  private async read(): Promise<void> {
    if (this.isReading) return;
    this.isReading = true;
    this.isRead = true;
    this.again.disabled = true;
    if (this.entries.length === 0) setText(this.note, "Reading ...");
    try {
      const answer = await getJson<Answer>(address("threads"));
      if (answer.version !== 1 || !Array.isArray(answer.threads) || !Array.isArray(answer.locks)) throw new Error("the list has an unknown format");
      this.entries = answer.threads;
      this.total = answer.total;
      const chosen = state.get("entry");
      this.chosen = this.entries.find((entry) => keyOf(entry) === chosen);
      this.showLeaks();
      this.showLocks(answer.locks);
      this.showRows();
      this.showDetail();
    } catch (error) {
      setText(this.note, `The threads cannot be read: ${short(reason(error), 500)}.`);
    }
    this.isReading = false;
    this.again.disabled = false;
  }

  private showRows(): void {
    const wanted = state.get("filter").trim().toLowerCase();
    const only = state.get("only");
    const rows = this.entries.filter((entry) => (only === "" || entry.kind === only) && (wanted === "" || searched(entry).includes(wanted)));
    this.table.show(rows);
    const read = this.total > this.entries.length ? `the first ${exact(this.entries.length)} of ${exact(this.total)}` : exact(this.total);
    const states = new Map<string, number>();
    for (const entry of rows) states.set(entry.state, (states.get(entry.state) ?? 0) + 1);
    const text = [...states].sort((a, b) => b[1] - a[1]).slice(0, 6).map(([name, number]) => `${count(number)} ${short(name, 30)}`);
    setText(this.note, `${exact(rows.length)} shown; ${read} read. ${text.join(", ")}`);
  }

  private showLeaks(): void {
    const leaked = this.entries.filter((entry) => entry.leak !== null);
    leaked.sort((a, b) => Number(b.leak === "deadlock") - Number(a.leak === "deadlock") || (b.seconds ?? 0) - (a.seconds ?? 0));
    this.leaks.hidden = leaked.length === 0;
    const items = leaked.slice(0, MAX_LEAKS).map((entry) => {
      const wait = entry.seconds === null ? "" : ` for ${age(entry.seconds)}`;
      return el(
        "li",
        {},
        el("b", { class: "tag" }, short(entry.leak!, 60)),
        " ",
        el("button", { type: "button", class: "link", click: () => this.choose(entry) }, short(`${entry.kind} ${entry.name}`, 120)),
        ` waits${wait}${entry.wait === null ? "" : `: ${short(entry.wait, 60)}`}`,
      );
    });
    const more = leaked.length > MAX_LEAKS ? el("p", { class: "note" }, `${exact(leaked.length - MAX_LEAKS)} more in the list.`) : null;
    fill(this.leaks, el("h2", {}, `Deadlocks and leaks: ${exact(leaked.length)}`), el("ul", {}, ...items), more);
  }

  private showLocks(locks: Held[]): void {
    this.locks.hidden = locks.length === 0;
    const entries = new Map(this.entries.map((entry) => [keyOf(entry), entry]));
    const link = (party: Party): HTMLElement => {
      const entry = entries.get(keyOf(party));
      if (entry === undefined) return el("span", {}, `${party.kind} ${party.id}`);
      return el("button", { type: "button", class: "link", click: () => this.choose(entry) }, short(`${entry.kind} ${entry.name}`, 120));
    };
    const first = locks.slice(0, MAX_LOCKS);
    const more = locks.length > first.length ? el("p", { class: "note" }, `${exact(locks.length - first.length)} more.`) : null;
    fill(this.locks, el("h2", {}, `Locks with waiters: ${exact(locks.length)}`), chains(first, link), more);
  }

  private choose(entry: Entry): void {
    this.chosen = entry;
    state.set({ entry: keyOf(entry) });
    this.showDetail();
  }

  private showDetail(): void {
    const entry = this.chosen;
    if (entry === undefined) {
      fill(this.detail, el("h2", {}, "Stack"), el("p", { class: "note" }, "Select a thread or a task."));
      return;
    }
    const facts: [string, string][] = [
      ["Kind", `${entry.kind} ${entry.id}`],
      ["State", entry.wait === null ? entry.state : `${entry.state}, ${entry.wait}`],
      ["For", entry.seconds === null ? "unknown" : age(entry.seconds)],
      ["Labels", labels(entry) || "none"],
      ["Created by", entry.creator ?? "unknown"],
    ];
    if (entry.leak !== null) facts.push(["Leak", entry.leak]);
    const list = el("dl", {}, ...facts.flatMap(([name, text]) => [el("dt", {}, name), el("dd", {}, short(text, 1000))]));
    const frames = entry.stack.map((frame) =>
      el("li", {}, el("code", {}, short(frame.function, 2000)), el("span", { class: "place" }, frame.file === "" ? "" : visible(`${short(frame.file, 300)}:${frame.line}`))),
    );
    const stack = frames.length > 0 ? el("ol", { class: "stack" }, ...frames) : el("p", { class: "note" }, "No stack.");
    fill(this.detail, el("h2", {}, short(entry.name, 10_000) || "no name"), list, stack);
  }
}
