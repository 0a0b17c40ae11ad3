// The history of a process: readings of the server, merged with those that arrive later.

/** The names of the columns that the page shows. */
export type Column =
  | "heap_bytes"
  | "heap_objects"
  | "allocated_bytes"
  | "freed_bytes"
  | "allocated_objects"
  | "freed_objects"
  | "resident_bytes"
  | "limit_bytes"
  | "plimsoll_bytes"
  | "threads"
  | "tasks_running"
  | "tasks_runnable"
  | "tasks_waiting"
  | "lock_waits"
  | "lock_wait_seconds"
  | "gc_cycles"
  | "gc_pause_seconds"
  | "cpu_seconds"
  | "declared_bytes"
  | "returned_bytes";

/** A time, and the values of the series in their order. */
export type Point = (number | null)[];

/** A kept reading of the heap at a maximum. */
export interface Maximum {
  time: number;
  heap_bytes: number;
  id: number;
}

/** The answer of the page `history`. */
export interface HistoryAnswer {
  version: number;
  now: number;
  started: number;
  program: string;
  pid: number;
  series: string[];
  steps: { seconds: number; points: Point[] }[];
  maxima: Maximum[];
}

/** With more points of the finest step, the page reads the whole history again. */
const MAX_FINE_POINTS = 7_200;

/** The history so far. */
export class History {
  now = 0;
  started = 0;
  program = "";
  pid = 0;
  maxima: Maximum[] = [];
  private series: string[] = [];
  private steps = new Map<number, Point[]>();
  private merged: Point[] | undefined;

  /** The time of the newest point; 0 without points. */
  get last(): number {
    let last = 0;
    for (const points of this.steps.values()) last = Math.max(last, points.at(-1)?.[0] ?? 0);
    return last;
  }

  /** Whether the process is another one than that of `answer`. */
  isOther(answer: HistoryAnswer): boolean {
    return this.started !== 0 && (this.started !== answer.started || this.pid !== answer.pid);
  }

  /** Whether reading the whole history again is cheaper than keeping all points. */
  get isLong(): boolean {
    const finest = Math.min(...this.steps.keys());
    return (this.steps.get(finest)?.length ?? 0) > MAX_FINE_POINTS;
  }

  /** Forgets all points. */
  reset(): void {
    this.steps.clear();
    this.maxima = [];
    this.merged = undefined;
    this.started = 0;
  }

  /** Removes every second point of the older half, where the server keeps no coarser ones. */
  thin(): void {
    for (const [seconds, points] of this.steps) {
      this.steps.set(seconds, points.filter((_, index) => index % 2 === 0 || index > points.length / 2));
    }
    this.merged = undefined;
  }

  /** Adds an answer: all of the history, or its newest points. */
  add(answer: HistoryAnswer): void {
    this.now = answer.now;
    this.started = answer.started;
    this.program = answer.program;
    this.pid = answer.pid;
    this.series = answer.series;
    for (const { seconds, points } of answer.steps) {
      const known = this.steps.get(seconds) ?? [];
      const begin = points[0]?.[0];
      if (begin !== undefined && begin !== null) {
        while (known.length > 0 && known.at(-1)![0]! >= begin) known.pop();
      }
      // An answer may have many points: `push(...points)` would exceed the stack.
      for (const point of points) known.push(point);
      this.steps.set(seconds, known);
    }
    for (const maximum of answer.maxima ?? []) {
      if (!this.maxima.some(({ id }) => id === maximum.id)) this.maxima.push(maximum);
    }
    this.merged = undefined;
  }

  /** Returns all points by time, each time from the finest step that has it. */
  points(): Point[] {
    if (this.merged === undefined) {
      let result: Point[] = [];
      for (const seconds of [...this.steps.keys()].sort((a, b) => a - b)) {
        const begin = result[0]?.[0] ?? Infinity;
        const older = this.steps.get(seconds)!.filter((point) => point[0]! < begin);
        result = older.concat(result);
      }
      this.merged = result;
    }
    return this.merged;
  }

  /** Returns the times of `points`. */
  static times(points: Point[]): number[] {
    return points.map((point) => point[0]!);
  }

  /** Returns one column of `points`. A column that the server lacks is `null` throughout. */
  column(points: Point[], name: Column): (number | null)[] {
    const index = this.series.indexOf(name) + 1;
    return points.map((point) => (index > 0 ? (point[index] ?? null) : null));
  }

  /** Returns the increase of a cumulative column, per second. */
  rate(points: Point[], name: Column): (number | null)[] {
    const values = this.column(points, name);
    return values.map((value, i) => {
      const before = i > 0 ? values[i - 1]! : null;
      if (value === null || before === null || value < before) return null;
      const elapsed = points[i]![0]! - points[i - 1]![0]!;
      return elapsed > 0 ? (value - before) / elapsed : null;
    });
  }
}
