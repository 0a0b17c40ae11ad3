// A chart over time, on uPlot.

import uPlot from "uplot";
import { colour, dark, el, fill, setText } from "../dom.ts";
import { clock, day } from "../data/units.ts";
import type { Window } from "../state.ts";

const HEIGHT = 160;
const SYNC = "time";

/** A series of a chart. */
export interface Line {
  label: string;
  /** A colour of the style sheet. */
  colour: string;
  isFilled?: boolean;
  isDashed?: boolean;
}

/** A level that is drawn across the chart. */
export interface Level {
  value: number;
  label: string;
  /** The label on narrow charts. */
  shortLabel: string;
  colour: string;
  /** Whether the level is drawn as the mark of a load line. */
  isLoadLine: boolean;
}

/** The data of a chart. */
export interface ChartData {
  times: number[];
  /** The drawn values of each line. */
  columns: (number | null)[][];
  /** The values of the legend, if they differ from the drawn ones. */
  legend?: (number | null)[][];
  levels?: Level[];
  window: Window;
}

function two(number: number): string {
  return String(number).padStart(2, "0");
}

/** Formats the marks of the time axis, by their distance. */
function timeMarks(_: uPlot, splits: number[], _axis: number, _space: number, increment: number): string[] {
  return splits.map((unix) => {
    const date = new Date(unix * 1000);
    const time = `${two(date.getHours())}:${two(date.getMinutes())}`;
    if (increment < 60) return `${time}:${two(date.getSeconds())}`;
    if (increment >= 86_400 || time === "00:00") return day(unix).slice(5);
    return time;
  });
}

/** Distances of marks on an axis of bytes: 1, 2, 4, ... */
const BYTE_STEPS = Array.from({ length: 50 }, (_, power) => 2 ** power);

/** A chart with its title and a legend that shows the values under the pointer, or the newest. */
export class Chart {
  readonly root: HTMLElement;
  private readonly place = el("div", { class: "chart-place" });
  private readonly legend = el("div", { class: "legend" });
  private readonly values: HTMLElement[] = [];
  private readonly note = el("span", { class: "chart-note" });
  private plot: uPlot | undefined;
  private data: ChartData | undefined;

  constructor(
    title: string,
    private readonly lines: Line[],
    private readonly format: (value: number) => string,
    private readonly options: { isBytes?: boolean; isTall?: boolean; isBroad?: boolean },
    private readonly brushed: (window: Window | undefined) => void,
  ) {
    this.root = el(
      "figure",
      { class: `chart${options.isTall === true ? " tall" : options.isBroad === true ? " broad" : ""}` },
      el("figcaption", {}, el("h2", {}, title), this.note),
      this.legend,
      this.place,
    );
    fill(
      this.legend,
      ...lines.map((line) => {
        const swatch = el("i", { class: "swatch" });
        swatch.style.background = `var(${line.colour})`;
        const value = el("b", {}, "-");
        this.values.push(value);
        return el("span", {}, swatch, `${line.label} `, value);
      }),
    );
    new ResizeObserver(() => this.resize()).observe(this.place);
    dark.addEventListener("change", () => {
      this.plot?.destroy();
      this.plot = undefined;
      this.draw();
    });
  }

  /** Shows data. */
  show(data: ChartData, note = ""): void {
    this.data = data;
    setText(this.note, note);
    this.draw();
  }

  private resize(): void {
    const width = this.place.clientWidth;
    if (this.plot === undefined) this.draw();
    else if (width > 0 && this.plot.width !== width) this.plot.setSize({ width, height: this.height });
  }

  private get height(): number {
    return this.options.isTall === true ? HEIGHT * 1.4 : HEIGHT;
  }

  private draw(): void {
    const { data } = this;
    const width = this.place.clientWidth;
    if (data === undefined || width === 0) return;
    const aligned = [data.times, ...data.columns] as uPlot.AlignedData;
    if (this.plot === undefined) this.plot = new uPlot(this.uplotOptions(width), aligned, this.place);
    else this.plot.setData(aligned, false);
    // Sets the range of both axes: the other one follows.
    this.plot.setScale("x", { min: data.window.from, max: data.window.to });
    this.showValues();
  }

  private uplotOptions(width: number): uPlot.Options {
    const axis: uPlot.Axis = {
      stroke: colour("--muted"),
      font: `11px ${colour("--sans")}`,
      grid: { stroke: colour("--grid"), width: 1 },
      ticks: { stroke: colour("--grid"), width: 1, size: 4 },
    };
    return {
      width,
      height: this.height,
      legend: { show: false },
      padding: [8, 18, 0, 0],
      cursor: {
        sync: { key: SYNC },
        drag: { x: true, y: false, setScale: false },
        points: { show: true, size: 6 },
        bind: { dblclick: () => () => (this.brushed(undefined), null) },
      },
      scales: { x: { time: true }, y: { range: (_, __, high) => [0, this.top(high)] } },
      axes: [
        { ...axis, values: timeMarks, space: 60, size: 30 },
        {
          ...axis,
          size: 68,
          space: 32,
          values: (_, splits) => splits.map((value) => this.format(value)),
          ...(this.options.isBytes === true ? { incrs: BYTE_STEPS } : {}),
        },
      ],
      series: [
        {},
        ...this.lines.map(
          (line): uPlot.Series => ({
            label: line.label,
            stroke: colour(line.colour),
            width: 1.5,
            points: { show: false },
            spanGaps: false,
            ...(line.isFilled === true ? { fill: colour(`${line.colour}-fill`) } : {}),
            ...(line.isDashed === true ? { dash: [5, 4] } : {}),
          }),
        ),
      ],
      hooks: {
        draw: [(plot) => this.drawLevels(plot)],
        setCursor: [() => this.showValues()],
        setSelect: [(plot) => this.select(plot)],
      },
    };
  }

  /** Returns the upper end of the axis: above the values and the levels. */
  private top(high: number | null): number {
    const levels = (this.data?.levels ?? []).map(({ value }) => value);
    const top = Math.max(high ?? 0, ...levels);
    return top > 0 ? top * 1.12 : 1;
  }

  private select(plot: uPlot): void {
    const { left, width } = plot.select;
    if (width < 4) return;
    const from = plot.posToVal(left, "x");
    const to = plot.posToVal(left + width, "x");
    plot.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
    this.brushed({ from, to });
  }

  private showValues(): void {
    const { data, plot } = this;
    if (data === undefined) return;
    let index = plot?.cursor.idx ?? null;
    if (index === null) {
      index = data.times.length - 1;
      while (index > 0 && data.times[index]! > data.window.to) index -= 1;
    }
    (data.legend ?? data.columns).forEach((column, line) => {
      const value = column[index!];
      setText(this.values[line]!, value === null || value === undefined ? "-" : this.format(value));
    });
    const isUnderPointer = plot?.cursor.idx !== null && plot?.cursor.idx !== undefined;
    this.legend.title = isUnderPointer ? clock(data.times[index]!) : "newest";
  }

  private drawLevels(plot: uPlot): void {
    const { ctx, bbox } = plot;
    const ratio = devicePixelRatio || 1;
    for (const level of this.data?.levels ?? []) {
      const y = Math.round(plot.valToPos(level.value, "y", true));
      if (y < bbox.top) continue;
      ctx.save();
      ctx.strokeStyle = ctx.fillStyle = colour(level.colour);
      ctx.lineWidth = (level.isLoadLine ? 2 : 1) * ratio;
      if (!level.isLoadLine) ctx.setLineDash([4 * ratio, 4 * ratio]);
      ctx.beginPath();
      ctx.moveTo(bbox.left, y);
      ctx.lineTo(bbox.left + bbox.width, y);
      ctx.stroke();
      if (level.isLoadLine) {
        ctx.beginPath();
        ctx.arc(bbox.left + 18 * ratio, y, 7 * ratio, 0, 2 * Math.PI);
        ctx.stroke();
      }
      ctx.font = `${11 * ratio}px ${colour("--sans")}`;
      ctx.textAlign = "right";
      ctx.textBaseline = y - bbox.top < 16 * ratio ? "top" : "bottom";
      const isWide = ctx.measureText(level.label).width < bbox.width - 12 * ratio;
      ctx.fillText(isWide ? level.label : level.shortLabel, bbox.left + bbox.width - 4 * ratio, y + (ctx.textBaseline === "top" ? 3 : -3) * ratio);
      ctx.restore();
    }
  }
}
