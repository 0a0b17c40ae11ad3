// The tab of growth: which allocation sites leak, and whose memory in use rose between two readings.

import { decode } from "../data/decode.ts";
import { fileOf, files } from "../data/files.ts";
import { keptKind, presentAddress, profileAddress } from "../data/kinds.ts";
import { getBytes, reason } from "../data/request.ts";
import { sites, type Site } from "../data/sites.ts";
import { short } from "../data/text.ts";
import { age, bytes, clock, count } from "../data/units.ts";
import { el, select, setText } from "../dom.ts";
import { Table } from "../draw/table.ts";
import { state } from "../state.ts";
import { place, sign, sparkline } from "./growth_cells.ts";
import { Verdicts } from "./verdicts.ts";
import type { View } from "./view.ts";

const INTERVAL = 5;
const MAX_READINGS = 120;

/** A reading of the heap by site. */
interface Reading {
  time: number;
  sites: Map<string, Site>;
}

/** The growth of one site. */
interface Row {
  site: Site;
  grown: number;
  objects: number;
  perHour: number;
  history: number[];
}

/** The growth by site. */
export class Growth implements View {
  readonly root: HTMLElement;
  private readings: Reading[] = [];
  private timer = 0;
  private isTaking = false;
  private readWindow = "";
  /** The start of the process of the readings. */
  private process = 0;
  private readonly verdicts = new Verdicts();
  private readonly differences: HTMLElement;
  private readonly note = el("p", { class: "note", role: "status" });
  private readonly source = select("Show", [["verdicts", "verdicts of the process"], ["readings", "readings of this page"], ["window", "the selected window"]], (source) => state.set({ source }));
  private readonly take = el("button", { type: "button", class: "primary", click: () => this.toggle() }, "Take readings");
  private readonly clear = el("button", { type: "button", click: () => this.forget() }, "Clear readings");
  private readonly table = new Table<Row>(
    "Growth by site",
    [
      { title: "Grown", kind: "number", cell: (row) => sign(row.grown, bytes), order: (row) => row.grown, falling: true },
      { title: "Per hour", kind: "number", cell: (row) => sign(row.perHour, bytes), order: (row) => row.perHour, falling: true },
      { title: "Objects", kind: "number wide", cell: (row) => sign(row.objects, count), order: (row) => row.objects, falling: true },
      { title: "Trend", kind: "spark wide", cell: (row) => sparkline(row.history) },
      { title: "Site", kind: "name", cell: (row) => short(row.site.name), order: (row) => row.site.name },
      { title: "Place", kind: "text wide", cell: (row) => place(row.site) },
    ],
    { sort: 0, empty: "No site has grown so far." },
  );

  /** `started` returns the start of the process; readings of a former process do not count. */
  constructor(private readonly started: () => number) {
    this.differences = el(
      "div",
      {},
      this.note,
      el(
        "section",
        { class: "card" },
        el("h2", {}, "Growth of the heap by site"),
        el("p", { class: "note" }, "Memory in use at the end less that at the start, estimated from samples. A site that grows is no proof of a leak: caches and buffers grow until they are full."),
        this.table.root,
      ),
    );
    this.root = el("div", {}, el("div", { class: "tools" }, this.source.root, this.take, this.clear), this.verdicts.root, this.differences);
  }

  update(): void {
    const source = this.wanted();
    if (files !== undefined) this.source.setOptions([["verdicts", "verdicts at the end"], ["window", "the selected window"]]);
    this.source.input.value = source;
    this.source.root.hidden = files !== undefined && !this.hasVerdicts();
    this.take.hidden = this.clear.hidden = source !== "readings";
    const areVerdicts = source === "verdicts";
    this.verdicts.root.hidden = !areVerdicts;
    this.differences.hidden = areVerdicts;
    if (areVerdicts) {
      this.stop();
      this.verdicts.show();
    } else if (source === "window") {
      this.stop();
      void this.showWindow();
    } else {
      this.readWindow = "";
      this.showReadings();
    }
  }

  private wanted(): string {
    if (files !== undefined && (!this.hasVerdicts() || state.get("source") === "readings")) return "window";
    return state.get("source") || (state.window === undefined ? "verdicts" : "window");
  }

  /** Whether there are verdicts: those of a file may be absent. */
  private hasVerdicts(): boolean {
    return files === undefined || fileOf(keptKind(state.get("file")))?.hasGrowth === true;
  }

  private toggle(): void {
    if (this.isTaking) this.stop();
    else {
      this.isTaking = true;
      setText(this.take, "Stop");
      void this.step();
    }
    this.showReadings();
  }

  private stop(): void {
    this.isTaking = false;
    clearTimeout(this.timer);
    setText(this.take, "Take readings");
  }

  private forget(): void {
    this.readings = [];
    this.showReadings();
  }

  private async step(): Promise<void> {
    try {
      const profile = await decode(await getBytes(presentAddress("heap")));
      if (this.process !== this.started()) this.readings = [];
      this.process = this.started();
      // Every second reading goes, so that the readings still begin where they began.
      if (this.readings.length >= MAX_READINGS) this.readings = this.readings.filter((_, index) => index % 2 === 0);
      this.readings.push({ time: Date.now() / 1000, sites: sites(profile) });
      if (state.tab === "growth" && this.wanted() === "readings") this.showReadings();
    } catch (error) {
      this.stop();
      setText(this.note, `The heap cannot be read: ${short(reason(error), 500)}`);
      return;
    }
    if (this.isTaking) this.timer = setTimeout(() => void this.step(), INTERVAL * 1000);
  }

  private showReadings(): void {
    const first = this.readings[0];
    const last = this.readings.at(-1);
    if (first === undefined || last === undefined || first === last) {
      const next = this.isTaking ? `The next one follows in ${INTERVAL} s.` : `Take readings: one each ${INTERVAL} s.`;
      setText(this.note, `${this.readings.length === 0 ? "No reading yet." : "One reading so far."} ${next}`);
      this.table.show([]);
      return;
    }
    const elapsed = last.time - first.time;
    const names = new Set([...first.sites.keys(), ...last.sites.keys()]);
    const rows = [...names].map((name): Row => {
      const begin = first.sites.get(name);
      const end = last.sites.get(name);
      const grown = (end?.bytes ?? 0) - (begin?.bytes ?? 0);
      return {
        site: (end ?? begin)!,
        grown,
        objects: (end?.objects ?? 0) - (begin?.objects ?? 0),
        perHour: (grown * 3600) / elapsed,
        history: this.readings.map((each) => each.sites.get(name)?.bytes ?? 0),
      };
    });
    this.showRows(rows, `${this.readings.length} readings from ${clock(first.time)} to ${clock(last.time)}, ${age(elapsed)}`);
  }

  private async showWindow(): Promise<void> {
    const { window } = state;
    if (window === undefined) {
      setText(this.note, "Select a window on a chart of the overview.");
      this.table.show([]);
      return;
    }
    const address = profileAddress(keptKind(state.get("file")), { mode: "window", seconds: 0, at: 0, ...window });
    if (address === this.readWindow) return;
    this.readWindow = address;
    setText(this.note, "Reading ...");
    try {
      const profile = await decode(await getBytes(address));
      if (address !== this.readWindow) return;
      const elapsed = window.to - window.from;
      const rows = [...sites(profile).values()].map((site): Row => ({
        site,
        grown: site.bytes,
        objects: site.objects,
        perHour: (site.bytes * 3600) / elapsed,
        history: [],
      }));
      this.showRows(rows, `Between the kept readings nearest to ${clock(window.from)} and ${clock(window.to)}`);
    } catch (error) {
      setText(this.note, `The server has no difference for the window: ${short(reason(error), 500)}`);
      this.table.show([]);
    }
  }

  private showRows(rows: Row[], text: string): void {
    const changed = rows.filter(({ grown }) => grown !== 0);
    const sum = changed.reduce((total, { grown }) => total + grown, 0);
    setText(this.note, `${text}: ${sign(sum, bytes)} in ${changed.length} sites.`);
    this.table.show(changed);
  }
}
