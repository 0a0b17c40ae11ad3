// A flame graph with its search and the crates in it.

import { crateOf } from "../data/names.ts";
import { short } from "../data/text.ts";
import { nodeByHash, type Tree } from "../data/tree.ts";
import { share, signed } from "../data/units.ts";
import { dark, el, fill, setText, textField } from "../dom.ts";
import { balancePaint, cratePaint } from "../draw/colours.ts";
import { FlameGraph } from "../draw/flame.ts";

const MAX_CRATES = 10;

/** Reactions of the owner; each change goes to the address of the page. */
export interface PanelEvents {
  zoomed: (hash: string) => void;
  searched: (text: string) => void;
  selected: (func: number) => void;
}

/** The panel. */
export class FlamePanel {
  readonly root: HTMLElement;
  tree: Tree | undefined;
  private unit = "";
  private isDifference = false;
  private readonly graph: FlameGraph;
  private readonly reset = el("button", { type: "button", click: () => this.graph.zoomTo(0) }, "Reset zoom");
  private readonly share = el("output", { class: "found" });
  private readonly crates = el("div", { class: "crates" });
  private readonly search = textField("Search functions", (text) => this.find(text, true));

  constructor(private readonly events: PanelEvents) {
    this.graph = new FlameGraph({
      zoomed: (node) => {
        this.reset.disabled = node === 0;
        events.zoomed(node === 0 ? "" : this.tree!.hash[node]!.toString(16));
      },
      selected: (node) => {
        if (node > 0) events.selected(this.tree!.func[node]!);
      },
    });
    this.root = el(
      "div",
      { class: "flame-panel" },
      el("div", { class: "tools" }, this.search.root, this.share, this.reset),
      this.crates,
      this.graph.root,
    );
    dark.addEventListener("change", () => this.showLegend());
  }

  /** The node that fills the width. */
  get zoom(): number {
    return this.graph.zoom;
  }

  /** Shows a tree with the zoom and search of a link. */
  show(tree: Tree, unit: string, isDifference: boolean, zoom: string, search: string): void {
    this.tree = tree;
    this.unit = unit;
    this.isDifference = isDifference;
    const node = zoom === "" ? 0 : nodeByHash(tree, zoom);
    this.reset.disabled = node === 0;
    // The largest crates choose their colours first.
    this.showLegend();
    this.graph.show(tree, unit, isDifference, node);
    if (document.activeElement !== this.search.input) this.search.input.value = search;
    this.find(search, false);
  }

  /** Brings zoom and search to those of a link. */
  restore(zoom: string, search: string): void {
    if (this.tree === undefined) return;
    const node = zoom === "" ? 0 : nodeByHash(this.tree, zoom);
    if (node !== this.graph.zoom) this.graph.zoomTo(node);
    if (search !== this.search.input.value && document.activeElement !== this.search.input) {
      this.search.input.value = search;
      this.find(search, false);
    }
  }

  private find(text: string, isTyped: boolean): void {
    const sum = this.graph.search(text);
    const whole = this.tree?.width[0] ?? 0;
    setText(this.share, text === "" ? "" : sum > 0 ? `${share(sum, whole)} in stacks with a match` : "no match");
    if (isTyped) this.events.searched(text);
  }

  /** Shows the meaning of the colours. */
  private showLegend(): void {
    if (this.isDifference) this.showBalance();
    else this.showCrates();
  }

  /** Shows the sums of growth and of shrinkage. */
  private showBalance(): void {
    const { net, width } = this.tree!;
    const sums: [string, number, number][] = [
      ["grown", (width[0]! + net[0]!) / 2, 1],
      ["shrunk", (net[0]! - width[0]!) / 2, -1],
    ];
    const parts = sums.map(([name, sum, balance]) => chip(name, signed(sum, this.unit), balancePaint(balance, dark.matches).fill));
    fill(this.crates, ...parts);
  }

  /** Shows the crates by the value of the stacks that end in them. */
  private showCrates(): void {
    const { tree } = this;
    if (tree === undefined) return;
    const sums = new Map<string, number>();
    const crates = tree.functions.map(({ name }) => crateOf(name));
    for (let node = 1; node < tree.func.length; node++) {
      const value = Math.abs(tree.self[node]!);
      if (value > 0) sums.set(crates[tree.func[node]!]!, (sums.get(crates[tree.func[node]!]!) ?? 0) + value);
    }
    const largest = [...sums].sort((a, b) => b[1] - a[1]).slice(0, MAX_CRATES);
    const chips = largest.map(([crate, sum]) => chip(short(crate, 40), share(sum, tree.width[0]!), cratePaint(crate, dark.matches).fill));
    fill(this.crates, ...chips);
  }
}

/** A colour with its name and value. */
function chip(name: string, value: string, fillColour: string): HTMLElement {
  const swatch = el("i", { class: "swatch" });
  swatch.style.background = fillColour;
  return el("span", {}, swatch, `${name} `, el("b", {}, value));
}
