// The tab of the resident memory: by holder, by size class, fragmentation and lifetimes.

import { decode } from "../data/decode.ts";
import { presentAddress } from "../data/kinds.ts";
import { histogram, readMetrics } from "../data/metrics.ts";
import { sampleCount, typeIndex, type Profile } from "../data/profile.ts";
import { address, getBytes, getText, reason } from "../data/request.ts";
import { short } from "../data/text.ts";
import { makeTree, nodeName, type Tree } from "../data/tree.ts";
import { bytes, clock, count, seconds, share } from "../data/units.ts";
import { el, setText } from "../dom.ts";
import { state } from "../state.ts";
import { showBars, type Bar } from "./bars.ts";
import { FlamePanel } from "./flame_panel.ts";
import type { View } from "./view.ts";

const MAX_HOLDERS = 40;

/** A part of the tab that is read from one page; on failure, the reason is in its place. */
class Part {
  readonly note = el("p", { class: "note" });
  readonly table = el("table", { class: "bars" });
  readonly body: HTMLElement;
  readonly root: HTMLElement;

  constructor(title: string, ...more: Node[]) {
    this.table.setAttribute("aria-label", title);
    this.body = el("div", {}, this.table, ...more);
    this.root = el("section", { class: "card" }, el("h2", {}, title), this.note, this.body);
  }

  async read(show: () => Promise<string>): Promise<void> {
    setText(this.note, "Reading ...");
    try {
      const text = await show();
      this.body.hidden = false;
      setText(this.note, text);
    } catch (error) {
      this.body.hidden = true;
      setText(this.note, `Not available: ${short(reason(error), 500)}`);
    }
  }
}

/** The resident memory. */
export class Memory implements View {
  readonly root: HTMLElement;
  private isRead = false;
  private readonly flame = new FlamePanel({
    zoomed: (zoom) => state.set({ zoom }),
    searched: (search) => state.set({ search }),
    selected: () => undefined,
  });
  private readonly holders = new Part("Resident memory by holder", this.flame.root);
  private readonly classes = new Part("Blocks in use by size");
  private readonly lifetimes = new Part("Lifetimes of freed blocks");
  private readonly fragmentation = new Part("Fragmentation");

  constructor() {
    const again = el("button", { type: "button", class: "primary", click: () => this.read() }, "Read again");
    this.root = el(
      "div",
      {},
      el("div", { class: "tools" }, again),
      this.holders.root,
      el("div", { class: "pair" }, this.classes.root, this.lifetimes.root),
      this.fragmentation.root,
    );
  }

  update(): void {
    if (!this.isRead) this.read();
    else this.flame.restore(state.get("zoom"), state.get("search"));
  }

  private read(): void {
    this.isRead = true;
    void this.holders.read(() => this.readHolders());
    void this.classes.read(() => this.readClasses());
    void this.lifetimes.read(() => this.readLifetimes());
    void this.fragmentation.read(() => this.readFragmentation());
  }

  private async readHolders(): Promise<string> {
    const profile = await decode(await getBytes(presentAddress("memory")));
    const type = typeIndex(profile, "memory_space");
    const tree = makeTree(profile, { type, label: "", hide: false, inverted: false });
    this.holders.body.hidden = false;
    showBars(this.holders.table, ["Holder", "Resident", "Share"], holderBars(tree));
    this.flame.show(tree, profile.types[type]!.unit, false, state.get("zoom"), state.get("search"));
    return `${bytes(tree.net[0]!)} resident at ${clock(profile.time || Date.now() / 1000)}.`;
  }

  private async readClasses(): Promise<string> {
    const metrics = readMetrics(await getText(address("../../metrics")));
    const allocated = histogram(metrics, "plimsoll_gc_heap_allocs_by_size_bytes");
    const freed = new Map(histogram(metrics, "plimsoll_gc_heap_frees_by_size_bytes").map((bucket) => [bucket.bound, bucket.count]));
    if (allocated.length === 0) throw new Error("the program reports no size classes.");
    const bars = allocated
      .map(({ bound, count: made }): Bar => {
        const used = made - (freed.get(bound) ?? 0);
        const name = Number.isFinite(bound) ? `up to ${bytes(bound)}` : "larger";
        return { name, size: used, texts: [count(used), count(made)] };
      })
      .filter(({ texts }) => texts[1] !== "0");
    showBars(this.classes.table, ["Size", "In use", "Ever allocated"], bars);
    const sum = bars.reduce((total, { size }) => total + size, 0);
    return `${count(sum)} blocks in use, exact.`;
  }

  private async readLifetimes(): Promise<string> {
    const profile = await decode(await getBytes(presentAddress("lifetimes")));
    const { sums, whole } = byLifetime(profile);
    const bars = [...sums]
      .sort(([a], [b]) => a - b)
      .map(([decade, [space, objects]]): Bar => ({
        name: decade < 0 ? "unknown" : decade === 0 ? "below 1 µs" : `from ${seconds(decade / 1e9)}`,
        size: space,
        texts: [bytes(space), share(space, whole), count(objects)],
      }));
    showBars(this.lifetimes.table, ["Lifetime", "Freed", "Share", "Objects"], bars);
    return "Sampled blocks that were freed, by the time between allocation and free.";
  }

  private async readFragmentation(): Promise<string> {
    const profile = await decode(await getBytes(presentAddress("fragmentation")));
    const type = typeIndex(profile, "");
    const tree = makeTree(profile, { type, label: "", hide: true, inverted: true });
    const bars = topNodes(tree, 15).map((node): Bar => ({
      name: short(nodeName(tree, node), 200),
      size: tree.width[node]!,
      texts: [bytes(tree.net[node]!), share(tree.width[node]!, tree.width[0]!)],
    }));
    if (bars.length === 0) throw new Error(["the profile is empty.", ...profile.comments].join(" "));
    showBars(this.fragmentation.table, ["Blocks of", "Free space kept", "Share"], bars);
    return "Free space in the allocator's pages, by the code whose blocks keep these pages in use. Estimated.";
  }
}

function topNodes(tree: Tree, limit: number): number[] {
  return [...tree.children.subarray(tree.first[0]!, tree.first[1]!)].slice(0, limit);
}

/** Returns the categories, with their parts below them. */
function holderBars(tree: Tree): Bar[] {
  const bars: Bar[] = [];
  const put = (node: number, indent: string) => {
    bars.push({
      name: indent + short(nodeName(tree, node), 200),
      size: tree.width[node]!,
      texts: [bytes(tree.net[node]!), share(tree.width[node]!, tree.width[0]!)],
    });
  };
  for (const node of topNodes(tree, MAX_HOLDERS)) {
    put(node, "");
    for (const part of tree.children.subarray(tree.first[node]!, tree.first[node + 1]!)) {
      const isCategory = nodeName(tree, part).startsWith("[");
      if (isCategory && bars.length < MAX_HOLDERS) put(part, "\u2003");
    }
  }
  return bars;
}

/** Returns freed bytes and objects by the lower bound of the lifetime in nanoseconds; -1 if unknown. */
function byLifetime(profile: Profile): { sums: Map<number, [number, number]>; whole: number } {
  const types = profile.types.length;
  const space = typeIndex(profile, "freed_space");
  const objects = typeIndex(profile, "freed_objects");
  const decades = profile.labelSets.map((set) => {
    const value = set.find(({ key }) => key === "lifetime")?.value;
    return typeof value === "number" ? value : -1;
  });
  const sums = new Map<number, [number, number]>();
  let whole = 0;
  for (let sample = 0; sample < sampleCount(profile); sample++) {
    const decade = decades[profile.labels[sample]!]!;
    const sum = sums.get(decade) ?? [0, 0];
    sum[0] += profile.values[sample * types + space]!;
    sum[1] += profile.values[sample * types + objects]!;
    whole += profile.values[sample * types + space]!;
    sums.set(decade, sum);
  }
  return { sums, whole };
}
