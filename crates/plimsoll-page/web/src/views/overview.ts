// The tab of charts over time.

import { files } from "../data/files.ts";
import { History, type Column } from "../data/history.ts";
import { keptKind } from "../data/kinds.ts";
import { short } from "../data/text.ts";
import { bytes, clock, count, day, seconds } from "../data/units.ts";
import { el, fill, select, setText } from "../dom.ts";
import { Chart, type ChartData, type Level } from "../draw/chart.ts";
import type { Live } from "../live.ts";
import { state, type Window } from "../state.ts";
import { Owners } from "./owners.ts";
import type { View } from "./view.ts";

/** The ranges, in seconds; 0 is the whole history. */
const RANGES: [name: string, text: string, seconds: number][] = [
  ["10m", "10 min", 600],
  ["3h", "3 h", 10_800],
  ["2d", "2 d", 172_800],
  ["all", "all", 0],
];

/** The shortest range of the charts, in seconds, for new processes. */
const MIN_RANGE = 60;

/** The limit is drawn if the heap is within this part of it; otherwise it is a text. */
const NEAR_LIMIT = 6;

const perSecond = (format: (value: number) => string) => (value: number) => `${format(value)}/s`;

/** The overview. */
export class Overview implements View {
  readonly root: HTMLElement;
  private readonly ranges = new Map<string, HTMLButtonElement>();
  private readonly reset = el("button", { type: "button", click: () => brush(undefined) }, "Reset window");
  private readonly windowText = el("span", { class: "window" });
  private readonly maxima = el("p", { class: "note maxima" });
  /** The content of the list of maxima. Its links stay while it is the same, so that a click meets its link. */
  private maximaKey = "";
  private readonly grid = el("div", { class: "charts" });
  private readonly owners = new Owners();
  private readonly histories = (files ?? []).filter(({ hasHistory }) => hasHistory === true);
  private readonly file = select("File", this.histories.map(({ name, title }) => [name, short(title, 200)]), (file) => state.set({ file, from: "", to: "" }, true));
  private readonly from = el("input", { type: "datetime-local", step: 1, "aria-label": "Start of the window", change: () => this.typed() });
  private readonly to = el("input", { type: "datetime-local", step: 1, "aria-label": "End of the window", change: () => this.typed() });

  private readonly heap = new Chart("Heap in use", [{ label: "in use", colour: "--c1", isFilled: true }], bytes, { isBytes: true, isTall: true }, brush);
  private readonly resident = new Chart(
    "Resident memory by owner",
    [
      { label: "other", colour: "--c3", isFilled: true },
      { label: "Plimsoll", colour: "--c2", isFilled: true },
      { label: "heap in use, as counted", colour: "--c1", isFilled: true },
      { label: "declared by the program", colour: "--c4", isDashed: true },
    ],
    bytes,
    { isBytes: true },
    brush,
  );
  private readonly rates = new Chart(
    "Allocations and frees",
    [
      { label: "allocated", colour: "--c1" },
      { label: "freed", colour: "--c4", isDashed: true },
    ],
    perSecond(bytes),
    { isBytes: true },
    brush,
  );
  private readonly objects = new Chart("Objects in use", [{ label: "objects", colour: "--c1", isFilled: true }], count, {}, brush);
  private readonly tasks = new Chart(
    "Threads and tasks",
    [
      { label: "threads", colour: "--c1" },
      { label: "tasks running", colour: "--c2" },
      { label: "runnable", colour: "--c4" },
      { label: "waiting", colour: "--c3" },
    ],
    count,
    {},
    brush,
  );
  private readonly locks = new Chart("Lock waits", [{ label: "waits", colour: "--c4" }], perSecond(count), {}, brush);
  private readonly pauses = new Chart("Collector pauses", [{ label: "paused", colour: "--c5" }], perSecond(seconds), { isBroad: true }, brush);
  private readonly cpu = new Chart("CPU", [{ label: "processors in use", colour: "--c2", isFilled: true }], (value) => value.toFixed(2), {}, brush);

  constructor(private readonly live: Live) {
    const group = el("div", { class: "segments", role: "group", "aria-label": "Range" });
    for (const [name, text] of RANGES) {
      const button = el("button", { type: "button", click: () => state.set({ range: name, from: "", to: "" }) }, text);
      this.ranges.set(name, button);
      group.append(button);
    }
    const typed = el("details", { class: "typed" }, el("summary", {}, "Set window"), el("span", {}, this.from, " to ", this.to));
    this.root = el(
      "div",
      {},
      el("div", { class: "tools" }, this.histories.length > 1 ? this.file.root : "", group, this.windowText, this.reset, typed),
      this.grid,
      this.maxima,
      files === undefined ? this.owners.root : "",
    );
    fill(this.grid, ...[this.heap, this.resident, this.rates, this.objects, this.tasks, this.locks, this.cpu, this.pauses].map(({ root }) => root));
  }

  update(): void {
    this.file.input.value = keptKind(state.get("file"));
    this.tick();
  }

  tick(): void {
    const { history } = this.live;
    const window = this.window();
    this.showTools(window);
    if (files === undefined) void this.owners.read();
    const all = history.points();
    if (all.length === 0) return;
    // The neighbours of the window belong to it, so that lines lead to its edges.
    let begin = all.findIndex((point) => point[0]! >= window.from);
    if (begin < 0) begin = all.length - 1;
    let end = all.findLastIndex((point) => point[0]! <= window.to) + 1;
    begin = Math.max(0, begin - 1);
    end = Math.min(all.length, end + 1);
    const points = all.slice(begin, end);
    const times = History.times(points);
    const column = (name: Column) => history.column(points, name);
    const rate = (name: Column) => history.rate(points, name);
    const data = (...columns: (number | null)[][]): ChartData => ({ times, columns, window });

    const heap = column("heap_bytes");
    this.showHeap(data(heap), column("limit_bytes").at(-1) ?? null);
    this.showResident(data(), heap, column("plimsoll_bytes"), column("resident_bytes"), column("declared_bytes"));
    const allocations = rate("allocated_objects");
    this.rates.show(data(rate("allocated_bytes"), rate("freed_bytes")), note(newest(allocations), (value) => `${count(value)} allocations/s`));
    this.objects.show(data(column("heap_objects")));
    this.tasks.show(data(column("threads"), column("tasks_running"), column("tasks_runnable"), column("tasks_waiting")));
    this.locks.show(data(rate("lock_waits")), note(newest(rate("lock_wait_seconds")), (value) => `${seconds(value)} waited each second`));
    this.cpu.show(data(rate("cpu_seconds")));
    const cycles = column("gc_cycles");
    const hasCollector = cycles.some((value) => value !== null && value > 0);
    this.pauses.root.hidden = !hasCollector;
    if (hasCollector) this.pauses.show(data(rate("gc_pause_seconds")), note(newest(cycles), (value) => `${count(value)} cycles`));
    this.showMaxima(window);
  }

  private window(): Window {
    const { history } = this.live;
    const now = history.now || Date.now() / 1000;
    if (state.window !== undefined) return state.window;
    const range = RANGES.find(([name]) => name === state.get("range")) ?? RANGES[0]!;
    const first = history.points()[0]?.[0] ?? 0;
    const from = range[2] === 0 ? first : Math.max(first, now - range[2]);
    return { from: Math.min(from, now - MIN_RANGE), to: now };
  }

  private showTools(window: Window): void {
    const isWindow = state.window !== undefined;
    const range = isWindow ? "" : state.get("range") || RANGES[0]![0];
    for (const [name, button] of this.ranges) button.setAttribute("aria-pressed", String(name === range));
    this.reset.hidden = !isWindow;
    setText(this.windowText, isWindow ? `${clock(window.from)} to ${clock(window.to)}` : "Drag across a chart to select a window.");
    if (!document.activeElement?.matches("input[type=datetime-local]")) {
      this.from.value = local(window.from);
      this.to.value = local(window.to);
    }
  }

  private typed(): void {
    const from = new Date(this.from.value).getTime() / 1000;
    const to = new Date(this.to.value).getTime() / 1000;
    if (to > from) brush({ from, to });
  }

  private showHeap(data: ChartData, limit: number | null): void {
    const heap = data.columns[0]!;
    let high = -1;
    heap.forEach((value, index) => {
      const isInside = data.times[index]! >= data.window.from && data.times[index]! <= data.window.to;
      if (isInside && value !== null && (high < 0 || value > heap[high]!)) high = index;
    });
    const levels: Level[] = [];
    const maximum = high < 0 ? 0 : heap[high]!;
    if (maximum > 0) levels.push({ value: maximum, label: `maximum ${bytes(maximum)} at ${clock(data.times[high]!)}`, shortLabel: `maximum ${bytes(maximum)}`, colour: "--muted", isLoadLine: false });
    const isNear = limit !== null && limit <= maximum * NEAR_LIMIT;
    if (isNear) levels.push({ value: limit, label: `limit ${bytes(limit)}`, shortLabel: `limit ${bytes(limit)}`, colour: "--load", isLoadLine: true });
    const text = limit === null ? "no memory limit" : isNear ? "" : `the limit, ${bytes(limit)}, is far above`;
    this.heap.show({ ...data, levels }, text);
  }

  private showResident(data: ChartData, heap: (number | null)[], own: (number | null)[], resident: (number | null)[], declared: (number | null)[]): void {
    // The heap may have more than is resident: pages that were never touched.
    const ownPart = own.map((value, i) => least(value, resident[i]!));
    const heapPart = heap.map((value, i) => least(value, resident[i] == null ? null : resident[i]! - (ownPart[i] ?? 0)));
    const lower = heapPart.map((value, i) => (value === null ? null : value + (ownPart[i] ?? 0)));
    const rest = resident.map((value, i) => (value === null ? null : value - (lower[i] ?? 0)));
    const legend = [rest, ownPart, heapPart, declared];
    this.resident.show({ ...data, columns: [resident, lower, heapPart, declared], legend }, note(newest(resident), (value) => `${bytes(value)} resident`));
  }

  private showMaxima(window: Window): void {
    const inside = this.live.history.maxima.filter(({ time }) => time >= window.from && time <= window.to);
    inside.sort((a, b) => b.heap_bytes - a.heap_bytes);
    const key = JSON.stringify([inside.slice(0, 8), state.link("profiles")]);
    if (key === this.maximaKey) return;
    this.maximaKey = key;
    const links = inside.slice(0, 8).map(({ time, heap_bytes }) =>
      el("a", { href: state.link("profiles", { kind: keptKind(state.get("file")), reading: "at", at: String(time) }) }, `${bytes(heap_bytes)} at ${clock(time)}`),
    );
    const parts = links.flatMap((link, index) => (index > 0 ? [", ", link] : [link]));
    fill(this.maxima, links.length > 0 ? "Profiles kept at maxima: " : "", ...parts);
  }
}

/** Selects a window for all tabs; without one, the range counts again. */
function brush(window: Window | undefined): void {
  state.set(window === undefined ? { from: "", to: "" } : { from: window.from.toFixed(1), to: Math.max(window.to, window.from + 1.1).toFixed(1) }, true);
}

function newest(values: (number | null)[]): number | null {
  return values.findLast((value) => value !== null) ?? null;
}

function note(value: number | null, format: (value: number) => string): string {
  return value === null ? "" : format(value);
}

function least(a: number | null, b: number | null | undefined): number | null {
  return a === null ? null : b === null || b === undefined ? a : Math.max(0, Math.min(a, b));
}

function local(unix: number): string {
  const time = new Date(unix * 1000).toTimeString().slice(0, 8);
  return `${day(unix)}T${time}`;
}
