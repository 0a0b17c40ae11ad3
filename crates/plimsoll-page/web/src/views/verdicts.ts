// The part of the tab of growth that shows which sites leak.

import { files } from "../data/files.ts";
import { readGrowth, siteOf, type Growth, type SiteGrowth } from "../data/growth.ts";
import { keptKind } from "../data/kinds.ts";
import { reason } from "../data/request.ts";
import { short } from "../data/text.ts";
import { age, bytes, count, seconds } from "../data/units.ts";
import { el, fill, setText } from "../dom.ts";
import { Table } from "../draw/table.ts";
import { state } from "../state.ts";
import { place, sign, sparkline } from "./growth_cells.ts";

const INTERVAL = 10_000;
const MAX_FRAMES = 100;

/** The verdicts on all sites. */
export class Verdicts {
  readonly root: HTMLElement;
  private timer = 0;
  private isReading = false;
  private chosen: SiteGrowth | undefined;
  private readonly note = el("p", { class: "note", role: "status" });
  private readonly detail = el("section", { class: "card", hidden: true, "aria-label": "Stack of the chosen site" });
  private readonly table = new Table<SiteGrowth>(
    "Verdicts by site",
    [
      { title: "Verdict", kind: "text", cell: (site) => (site.verdict === "leaking" ? el("span", { class: "tag" }, site.verdict) : site.verdict), order: ({ verdict }) => ["not significant", "unsteady", "leaking"].indexOf(verdict), falling: true },
      { title: "Per hour", kind: "number", cell: (site) => sign(site.bytes_per_second * 3600, bytes), order: (site) => site.bytes_per_second, falling: true },
      { title: "Error", kind: "number wide", cell: (site) => `\u00b1 ${bytes(site.error * 3600)}`, order: (site) => site.error, falling: true },
      { title: "In use", kind: "number", cell: (site) => bytes(site.bytes), order: (site) => site.bytes, falling: true },
      { title: "Lifetime", kind: "number wide", cell: (site) => (site.lifetime === null ? "never freed" : seconds(site.lifetime)), order: (site) => site.lifetime ?? Infinity, falling: true },
      { title: "Course", kind: "spark wide", cell: (site) => sparkline((site.course ?? []).map(([, value]) => value)) },
      { title: "Site", kind: "name", cell: (site) => short(siteOf(site.stack).function), order: (site) => siteOf(site.stack).function },
      { title: "Place", kind: "text wide", cell: (site) => place(siteOf(site.stack)) },
    ],
    { empty: "No verdict yet.", choose: (site) => this.choose(site), isChosen: (site) => site === this.chosen },
  );

  constructor() {
    this.root = el(
      "div",
      {},
      this.note,
      el(
        "section",
        { class: "card" },
        el("h2", {}, "Sites that leak"),
        el("p", { class: "note" }, "A site leaks if its memory grows steadily, beyond all earlier values, and chance explains that with a probability of at most 1 in 10,000. Unsteady growth slows down or came in steps, as in a cache that becomes full. Estimated from samples; the error is that of a 95 % confidence interval."),
        this.table.root,
      ),
      this.detail,
    );
  }

  /** Reads the verdicts, and again while they are shown. */
  show(): void {
    clearTimeout(this.timer);
    void this.read();
  }

  private async read(): Promise<void> {
    if (this.isReading) return;
    this.isReading = true;
    try {
      this.showGrowth(await readGrowth(keptKind(state.get("file"))));
    } catch (error) {
      setText(this.note, `The growth cannot be read: ${short(reason(error), 500)}`);
      this.table.show([]);
    } finally {
      this.isReading = false;
    }
    // The verdicts of a file do not change.
    if (files !== undefined) return;
    const isShown = () => state.tab === "growth" && !this.root.hidden;
    this.timer = setTimeout(() => isShown() && !document.hidden && this.show(), INTERVAL);
  }

  private showGrowth(growth: Growth): void {
    const leaks = growth.sites.filter(({ verdict }) => verdict === "leaking").length;
    const observed = `${count(growth.readings)} readings in ${age(growth.observed)}`;
    if (growth.readings < growth.readings_needed) {
      setText(this.note, `${observed}. Verdicts need ${growth.readings_needed} readings${left(growth)}.`);
    } else {
      const limit = growth.seconds_to_limit === null ? "" : `; the memory limit is reached in ${age(growth.seconds_to_limit)}`;
      const rate = leaks === 0 ? "" : `: ${sign(growth.bytes_per_second * 3600, bytes)} per hour${limit}`;
      setText(this.note, `${leaks} of ${count(growth.total)} sites leak${rate}. ${observed}.`);
    }
    this.table.show(growth.sites);
  }

  private choose(site: SiteGrowth): void {
    this.chosen = site;
    this.detail.hidden = false;
    const calls = site.stack.slice(0, MAX_FRAMES).map((frame) => el("li", {}, `${short(frame.function, 500)} ${place(frame)}`));
    const { window, mallocs, frees, chance } = site;
    const events = mallocs !== undefined && frees !== undefined ? `: ${count(mallocs)} allocations and ${count(frees)} frees, estimated` : "";
    const text = `In ${age(window)}${events}.${chance === undefined ? "" : ` Chance: ${chance.toPrecision(2)}.`}`;
    fill(this.detail, el("h2", {}, short(siteOf(site.stack).function, 500)), el("p", { class: "note" }, text), el("ol", { class: "stack" }, ...calls));
  }
}

/** The time until there are verdicts, at the rate of the readings so far. */
function left({ readings, readings_needed, observed }: Growth): string {
  if (readings < 2) return "";
  return `, in about ${age((observed / (readings - 1)) * (readings_needed - readings))}`;
}
