// The flame graph on a canvas, from the root at the top. It draws the visible part only.

import { colour, dark, el, setText } from "../dom.ts";
import { crateOf, shortName } from "../data/names.ts";
import { short, visible } from "../data/text.ts";
import { nodeName, type Tree } from "../data/tree.ts";
import { share, signed, value } from "../data/units.ts";
import { balancePaint, cratePaint, type Paint } from "./colours.ts";
import { boxAt, boxOf, layout, type Layout } from "./layout.ts";

const ROW = 20;
const MINIMUM = 0.7;
const MARGIN = 5;
const MAX_HEIGHT = 560;

/** Reactions of the owner of a flame graph. */
export interface FlameEvents {
  zoomed: (node: number) => void;
  selected: (node: number) => void;
}

/** A flame graph. */
export class FlameGraph {
  readonly root: HTMLElement;
  /** The node that fills the width. */
  zoom = 0;
  /** Milliseconds that the last drawing took, for tests. */
  drawingTime = 0;
  private readonly canvas = el("canvas", {
    tabindex: 0,
    role: "application",
    "aria-roledescription": "flame graph",
    "aria-label": "Flame graph. Arrow keys select a frame, Enter zooms, Escape resets.",
  });
  private readonly spacer = el("div", { class: "flame-space" });
  private readonly scroller = el("div", { class: "flame-scroll" }, this.canvas, this.spacer);
  private readonly tip = el("div", { class: "flame-tip", hidden: true });
  private readonly live = el("p", { class: "flame-line", role: "status" });
  private tree: Tree | undefined;
  private boxes: Layout | undefined;
  private unit = "";
  private isDifference = false;
  private selection = -1;
  private hover = -1;
  private matches: Uint8Array | undefined;
  private names: string[] = [];
  private shorts: string[] = [];
  private paints: Paint[] = [];
  private characterWidth = 0;
  private isPending = false;
  private palette = { chip: "", mark: "", markText: "", mono: "", muted: "", text: "" };

  constructor(private readonly events: FlameEvents) {
    this.root = el("div", { class: "flame" }, this.scroller, this.tip, this.live);
    this.canvas.addEventListener("mousemove", (event) => this.pointAt(event));
    this.canvas.addEventListener("mouseleave", () => this.leave());
    this.canvas.addEventListener("click", (event) => this.click(event));
    this.canvas.addEventListener("keydown", (event) => this.key(event));
    this.canvas.addEventListener("focus", () => this.draw());
    this.canvas.addEventListener("blur", () => this.draw());
    this.scroller.addEventListener("scroll", () => this.drawSoon());
    new ResizeObserver(() => this.arrange()).observe(this.scroller);
    dark.addEventListener("change", () => {
      this.paintFunctions();
      this.draw();
    });
  }

  /** Shows a tree. `isDifference` colours by growth. */
  show(tree: Tree, unit: string, isDifference: boolean, zoom: number): void {
    this.tree = tree;
    this.unit = unit;
    this.isDifference = isDifference;
    this.selection = -1;
    this.hover = -1;
    this.names = tree.functions.map(({ name }) => short(name, 400));
    this.shorts = tree.functions.map(({ name }) => short(shortName(name), 120));
    this.paintFunctions();
    this.zoom = zoom;
    this.arrange();
    this.describe(zoom);
  }

  /** Highlights the functions whose name contains `text`; returns the width of their stacks. */
  search(text: string): number {
    const { tree } = this;
    const wanted = text.toLowerCase();
    if (tree === undefined || wanted === "") {
      this.matches = undefined;
      this.draw();
      return 0;
    }
    this.matches = Uint8Array.from(tree.functions, ({ name }) => (name.toLowerCase().includes(wanted) ? 1 : 0));
    const isInside = new Uint8Array(tree.func.length);
    let sum = 0;
    for (let node = 1; node < tree.func.length; node++) {
      const isOuter = isInside[tree.parent[node]!] === 1;
      const isMatch = this.matches[tree.func[node]!] === 1;
      if (isMatch && !isOuter) sum += tree.width[node]!;
      if (isMatch || isOuter) isInside[node] = 1;
    }
    this.draw();
    return sum;
  }

  /** Shows `node` over the whole width. */
  zoomTo(node: number): void {
    if (this.tree === undefined) return;
    this.zoom = node;
    this.selection = node;
    this.arrange();
    this.describe(node);
    this.events.zoomed(node);
  }

  private paintFunctions(): void {
    const isDark = dark.matches;
    const byCrate = new Map<string, Paint>();
    this.paints = (this.tree?.functions ?? []).map(({ name }) => {
      const crate = crateOf(name);
      let paint = byCrate.get(crate);
      if (paint === undefined) {
        paint = cratePaint(crate, isDark);
        byCrate.set(crate, paint);
      }
      return paint;
    });
  }

  /** Reads the colours of the style sheet, which takes too long for each box. */
  private readPalette(): void {
    this.palette = {
      chip: colour("--chip"),
      mark: colour("--mark"),
      markText: colour("--mark-text"),
      mono: colour("--mono"),
      muted: colour("--muted"),
      text: colour("--text"),
    };
  }

  private arrange(): void {
    const width = this.scroller.clientWidth;
    if (this.tree === undefined || width === 0) return;
    const begin = performance.now();
    this.boxes = layout(this.tree, this.zoom, width, MINIMUM);
    const height = this.boxes.rows.length * ROW + 1;
    this.spacer.style.height = `${height}px`;
    const visibleHeight = Math.max(6 * ROW, Math.min(height, MAX_HEIGHT, Math.round(innerHeight * 0.62)));
    this.scroller.style.height = `${visibleHeight}px`;
    // The canvas stays in view while its rows scroll below it.
    this.canvas.style.marginBottom = `${-visibleHeight}px`;
    this.draw();
    this.drawingTime = performance.now() - begin;
    this.root.dataset.drawingTime = this.drawingTime.toFixed(1);
  }

  private drawSoon(): void {
    if (this.isPending) return;
    this.isPending = true;
    requestAnimationFrame(() => {
      this.isPending = false;
      this.draw();
    });
  }

  private draw(): void {
    const { tree, boxes, canvas } = this;
    const width = this.scroller.clientWidth;
    const height = this.scroller.clientHeight;
    const context = canvas.getContext("2d");
    if (tree === undefined || boxes === undefined || context === null || width === 0) return;
    const ratio = devicePixelRatio || 1;
    if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
      canvas.width = Math.round(width * ratio);
      canvas.height = Math.round(height * ratio);
      canvas.style.width = `${width}px`;
      canvas.style.height = `${height}px`;
    }
    this.readPalette();
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, width, height);
    context.font = `11px ${this.palette.mono}`;
    context.textBaseline = "middle";
    this.characterWidth = context.measureText("M").width;
    const top = this.scroller.scrollTop;
    const last = Math.min(boxes.rows.length - 1, Math.floor((top + height) / ROW));
    for (let row = Math.floor(top / ROW); row <= last; row++) {
      for (const box of boxes.rows[row]!) this.drawBox(context, tree, boxes, box, row * ROW - top);
    }
    const marked = this.selection >= 0 ? boxOf(tree, boxes, this.selection) : -1;
    if (marked >= 0) {
      context.strokeStyle = this.palette.text;
      context.lineWidth = 2;
      context.strokeRect(boxes.x[marked]! + 1, boxes.row[marked]! * ROW - top + 1, Math.max(2, boxes.width[marked]! - 2), ROW - 2);
    }
  }

  private drawBox(context: CanvasRenderingContext2D, tree: Tree, boxes: Layout, box: number, y: number): void {
    const node = boxes.node[box]!;
    const x = boxes.x[box]!;
    const width = boxes.width[box]!;
    const inner = width > 3 ? width - 1 : Math.max(width * 0.8, 0.5);
    if (node < 0) {
      context.globalAlpha = 0.35;
      context.fillStyle = this.palette.muted;
      context.fillRect(x, y, inner, ROW - 1);
      context.globalAlpha = 1;
      return;
    }
    const func = tree.func[node]!;
    let paint: Paint = node === 0 ? { fill: this.palette.chip, text: this.palette.text } : this.paints[func]!;
    if (this.isDifference && node > 0) paint = balancePaint(tree.net[node]! / (tree.width[node]! || 1), dark.matches);
    const isMatch = node > 0 && this.matches?.[func] === 1;
    if (isMatch) paint = { fill: this.palette.mark, text: this.palette.markText };
    context.globalAlpha = this.matches !== undefined && !isMatch ? 0.45 : this.isAbove(tree, node) ? 0.6 : 1;
    context.fillStyle = paint.fill;
    context.fillRect(x, y, inner, ROW - 1);
    if (node === this.hover) {
      context.fillStyle = paint.text;
      context.globalAlpha = 0.15;
      context.fillRect(x, y, inner, ROW - 1);
    }
    context.globalAlpha = 1;
    const room = Math.floor((width - 2 * MARGIN) / this.characterWidth);
    if (room >= 3) {
      context.fillStyle = paint.text;
      context.fillText(this.fit(node, func, room), x + MARGIN, y + ROW / 2, width - 2 * MARGIN);
    }
  }

  private isAbove(tree: Tree, node: number): boolean {
    return tree.depth[node]! < tree.depth[this.zoom]!;
  }

  private fit(node: number, func: number, room: number): string {
    const name = node === 0 ? `all: ${this.number(0)}` : this.names[func]!;
    if (name.length <= room) return name;
    const text = node === 0 ? name : this.shorts[func]!;
    return text.length <= room ? text : `${text.slice(0, room - 1)}…`;
  }

  /** Returns the value of a node, with its sign in a difference. */
  private number(node: number): string {
    const net = this.tree!.net[node]!;
    return this.isDifference ? signed(net, this.unit) : value(net, this.unit);
  }

  /** Returns the function, the value and the share of a node. */
  private text(node: number): string {
    const tree = this.tree!;
    const part = this.isDifference ? "" : `, ${share(tree.width[node]!, tree.width[0]!)}`;
    const func = tree.functions[tree.func[node]!];
    const place = func !== undefined && func.file !== "" ? `, ${short(func.file, 120)}${func.line > 0 ? `:${func.line}` : ""}` : "";
    return `${short(nodeName(tree, node), 300)}: ${this.number(node)}${part}${place}`;
  }

  private describe(node: number): void {
    setText(this.live, node >= 0 && this.tree !== undefined ? this.text(node) : "");
  }

  private boxUnder(event: MouseEvent): number {
    if (this.boxes === undefined) return -1;
    const area = this.canvas.getBoundingClientRect();
    const row = Math.floor((event.clientY - area.top + this.scroller.scrollTop) / ROW);
    return boxAt(this.boxes, row, event.clientX - area.left);
  }

  private pointAt(event: MouseEvent): void {
    const box = this.boxUnder(event);
    const node = box >= 0 ? this.boxes!.node[box]! : -1;
    this.canvas.style.cursor = node >= 0 ? "pointer" : "default";
    if (node !== this.hover) {
      this.hover = node;
      this.drawSoon();
      if (node >= 0) setText(this.tip, visible(this.text(node)));
    }
    this.tip.hidden = node < 0;
    const area = this.root.getBoundingClientRect();
    const x = Math.min(event.clientX - area.left + 12, Math.max(0, area.width - this.tip.offsetWidth - 4));
    this.tip.style.transform = `translate(${x}px, ${event.clientY - area.top + 18}px)`;
  }

  private leave(): void {
    this.hover = -1;
    this.tip.hidden = true;
    this.drawSoon();
  }

  private click(event: MouseEvent): void {
    const box = this.boxUnder(event);
    const node = box >= 0 ? this.boxes!.node[box]! : -1;
    if (node < 0) return;
    this.zoomTo(node);
    this.events.selected(node);
  }

  private key(event: KeyboardEvent): void {
    const { tree, boxes } = this;
    if (tree === undefined || boxes === undefined) return;
    const from = this.selection >= 0 ? this.selection : this.zoom;
    switch (event.key) {
      case "ArrowUp":
        this.select(tree.parent[from]! >= 0 ? tree.parent[from]! : from);
        break;
      case "ArrowDown":
        this.select(tree.first[from]! < tree.first[from + 1]! ? tree.children[tree.first[from]!]! : from);
        break;
      case "ArrowLeft":
      case "ArrowRight": {
        const row = boxes.rows[tree.depth[from]!] ?? [];
        const at = row.indexOf(boxOf(tree, boxes, from)) + (event.key === "ArrowRight" ? 1 : -1);
        const node = boxes.node[row[at] ?? -1] ?? -1;
        this.select(node >= 0 ? node : from);
        break;
      }
      case "Enter":
        this.zoomTo(from);
        this.events.selected(from);
        break;
      case "Escape":
        this.zoomTo(0);
        break;
      default:
        return;
    }
    event.preventDefault();
  }

  private select(node: number): void {
    if (boxOf(this.tree!, this.boxes!, node) < 0) return;
    this.selection = node;
    const y = this.tree!.depth[node]! * ROW;
    const { scrollTop, clientHeight } = this.scroller;
    if (y < scrollTop) this.scroller.scrollTop = y;
    else if (y + ROW > scrollTop + clientHeight) this.scroller.scrollTop = y + ROW - clientHeight;
    this.describe(node);
    this.events.selected(node);
    this.draw();
  }
}
