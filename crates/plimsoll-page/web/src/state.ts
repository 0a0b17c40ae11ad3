// The state of the page in the hash of its address, so that a link opens the same view:
// `#tab?name=value&name=value`.

/** The tabs, by their names in the hash. */
export const TABS = ["overview", "profiles", "memory", "threads", "growth"] as const;
export type Tab = (typeof TABS)[number];

/** The parameters that all tabs share: window, range, and the file of the history. */
const KEPT = ["from", "to", "range", "file"];

/** Later times are no times of a process. */
const LAST_TIME = 1e11;

/** A window of time, in seconds since 1970. */
export interface Window {
  from: number;
  to: number;
}

/** The tab and its parameters. */
export interface State {
  tab: Tab;
  values: Map<string, string>;
}

/** Reads a hash. An unknown tab is the first one. */
export function parseHash(hash: string): State {
  const [name = "", query = ""] = hash.replace(/^#/, "").split(/\?(.*)/s, 2);
  const tab = TABS.find((each) => each === name) ?? "overview";
  return { tab, values: new Map(new URLSearchParams(query)) };
}

/** Writes a hash. */
export function formatHash({ tab, values }: State): string {
  const query = new URLSearchParams([...values].filter(([, value]) => value !== "")).toString();
  return query === "" ? `#${tab}` : `#${tab}?${query}`;
}

/** Reads a window of at least a second. Other texts are no window: charts of endless ranges would not end. */
export function parseWindow(begin: string, end: string): Window | undefined {
  const from = Number(begin);
  const to = Number(end);
  return from > 0 && to >= from + 1 && to < LAST_TIME ? { from, to } : undefined;
}

type Listener = () => void;

/** The state of this page. Changes go to the address, and to every listener. */
class Store {
  private state = parseHash(location.hash);
  private readonly listeners: Listener[] = [];

  constructor() {
    addEventListener("hashchange", () => {
      if (formatHash(this.state) === location.hash) return;
      this.state = parseHash(location.hash);
      this.notify();
    });
  }

  get tab(): Tab {
    return this.state.tab;
  }

  get(name: string): string {
    return this.state.values.get(name) ?? "";
  }

  get window(): Window | undefined {
    return parseWindow(this.get("from"), this.get("to"));
  }

  /** Calls `listener` after every change. */
  listen(listener: Listener): void {
    this.listeners.push(listener);
  }

  /** Changes parameters; an empty value removes one. `isStep` adds an entry to the browser's history. */
  set(changes: Record<string, string>, isStep = false): void {
    this.change(this.state.tab, changes, isStep);
  }

  /** Shows a tab. The window stays; parameters of other tabs end. `isStep` adds an entry to the browser's history. */
  open(tab: Tab, changes: Record<string, string> = {}, isStep = true): void {
    const kept = new Map([...this.state.values].filter(([name]) => KEPT.includes(name)));
    this.state = { tab, values: kept };
    this.change(tab, changes, isStep);
  }

  /** Returns the hash of a tab with the present window, for a link. */
  link(tab: Tab, changes: Record<string, string> = {}): string {
    const values = new Map([...this.state.values].filter(([name]) => KEPT.includes(name)));
    for (const [name, value] of Object.entries(changes)) values.set(name, value);
    return formatHash({ tab, values });
  }

  private change(tab: Tab, changes: Record<string, string>, isStep: boolean): void {
    const values = new Map(this.state.values);
    for (const [name, value] of Object.entries(changes)) {
      if (value === "") values.delete(name);
      else values.set(name, value);
    }
    this.state = { tab, values };
    const hash = formatHash(this.state);
    if (isStep) history.pushState(null, "", hash);
    else history.replaceState(null, "", hash);
    this.notify();
  }

  private notify(): void {
    for (const listener of this.listeners) listener();
  }
}

export const state = new Store();
