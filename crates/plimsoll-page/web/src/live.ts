// Keeps the history up to date: polls the server each second while the page is visible. The history of a file is read once.

import { files } from "./data/files.ts";
import { History, type HistoryAnswer } from "./data/history.ts";
import { reading, readMetrics } from "./data/metrics.ts";
import { address, getJson, getText, reason, StatusError } from "./data/request.ts";

const INTERVAL = 1_000;
const TIMEOUT = 10;
/** The number of readings of metrics between two requests for a history that the server lacks. */
const METRICS_READINGS = 15;

/** The connection to the server. */
export interface Connection {
  /** `ended` is the history of a file. */
  kind: "starting" | "live" | "paused" | "lost" | "ended";
  /** The reason of a lost connection. */
  text: string;
  /** The reason why the server keeps no history; empty if it does. */
  noHistory: string;
  /** The time of the last restart that the page saw, in seconds since 1970; 0 for none. */
  restarted: number;
}

type Listener = () => void;

/** The history of the process and the state of the connection. */
export class Live {
  readonly history = new History();
  readonly connection: Connection = { kind: "starting", text: "", noHistory: "", restarted: 0 };
  private readonly listeners: Listener[] = [];
  private timer = 0;
  private isPolling = false;
  /** The file whose history was read. */
  private file: string | undefined;
  /** The time of the first reading of metrics. */
  private metricsSince = 0;
  private metricsLeft = 0;

  /** Calls `listener` after each reading and each change of the connection. */
  listen(listener: Listener): void {
    this.listeners.push(listener);
  }

  /** Reads the history of the file with that name; nothing for an empty name. */
  async readFile(name: string): Promise<void> {
    if (name === this.file) return;
    this.file = name;
    this.history.reset();
    try {
      if (name !== "") {
        const answer = await this.request(`history/${name}`, {});
        if (name !== this.file) return;
        this.history.add(answer);
      }
      this.connect("ended");
    } catch (error) {
      this.connect("lost", reason(error));
    }
  }

  /** Begins to poll a running program. */
  start(): void {
    if (files !== undefined) return;
    document.addEventListener("visibilitychange", () => {
      if (document.hidden) {
        clearTimeout(this.timer);
        if (this.connection.kind === "live") this.connect("paused");
      } else void this.poll();
    });
    void this.poll();
  }

  private connect(kind: Connection["kind"], text = ""): void {
    this.connection.kind = kind;
    this.connection.text = text;
    for (const listener of this.listeners) listener();
  }

  private async poll(): Promise<void> {
    if (this.isPolling || document.hidden) return;
    this.isPolling = true;
    clearTimeout(this.timer);
    try {
      await this.read();
      this.connect("live");
    } catch (error) {
      this.connect("lost", reason(error));
    }
    this.isPolling = false;
    this.timer = setTimeout(() => void this.poll(), INTERVAL);
  }

  private async read(): Promise<void> {
    const { history, connection } = this;
    const { isLong } = history;
    let answer: HistoryAnswer;
    if (connection.noHistory !== "" && this.metricsLeft > 0) {
      this.metricsLeft -= 1;
      answer = await this.readMetrics(connection.noHistory);
      if (isLong) history.thin();
    } else {
      try {
        answer = await this.answer(isLong ? 0 : history.last);
        if (isLong) history.reset();
      } catch (error) {
        if (!(error instanceof StatusError) || error.status !== 404) throw error;
        this.metricsLeft = METRICS_READINGS;
        answer = await this.readMetrics(error.message);
      }
    }
    if (history.isOther(answer)) {
      connection.restarted = answer.started;
      history.reset();
      if (connection.noHistory === "") answer = await this.answer(0);
    }
    history.add(answer);
  }

  private async answer(last: number): Promise<HistoryAnswer> {
    const query = last > 0 && this.connection.noHistory === "" ? { from: last } : {};
    const answer = await this.request("history", query);
    if (this.connection.noHistory !== "") this.history.reset();
    this.connection.noHistory = "";
    return answer;
  }

  private async request(path: string, query: Record<string, number>): Promise<HistoryAnswer> {
    const answer = await getJson<HistoryAnswer>(address(path, query), TIMEOUT);
    if (answer?.version !== 1 || !Array.isArray(answer.steps)) throw new Error("the history has an unknown format");
    return answer;
  }

  private async readMetrics(noHistory: string): Promise<HistoryAnswer> {
    if (this.connection.noHistory === "") {
      this.history.reset();
      this.metricsSince = Date.now() / 1000;
    }
    this.connection.noHistory = noHistory;
    const text = await getText(address("../../metrics"), TIMEOUT);
    return reading(readMetrics(text), Date.now() / 1000, this.metricsSince);
  }
}
