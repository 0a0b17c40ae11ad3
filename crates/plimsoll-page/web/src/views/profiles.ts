// The tab of profiles.

import { decode } from "../data/decode.ts";
import { difference } from "../data/diff.ts";
import { fileOf, files } from "../data/files.ts";
import { folded } from "../data/folded.ts";
import { keptKind, KINDS, kindOf, profileAddress, readProfile, type Reading } from "../data/kinds.ts";
import { labelSuggestions, sampleCount, typeIndex, type Profile } from "../data/profile.ts";
import { reason } from "../data/request.ts";
import { short } from "../data/text.ts";
import { hashText, makeTree } from "../data/tree.ts";
import { age, clock, exact, value } from "../data/units.ts";
import { checkbox, download, el, fill, select, setText, textField } from "../dom.ts";
import { flameSvg } from "../draw/svg.ts";
import { state } from "../state.ts";
import { FlamePanel } from "./flame_panel.ts";
import { FunctionsPanel } from "./functions_panel.ts";
import type { View } from "./view.ts";

const DEFAULT_SECONDS = 10;

/** A profile that was read. */
interface Loaded {
  kind: string;
  address: string;
  time: number;
  raw: Uint8Array<ArrayBuffer>;
  profile: Profile;
}

/** The profiles. */
export class Profiles implements View {
  readonly root: HTMLElement;
  private loaded: Loaded | undefined;
  private base: Loaded | undefined;
  private isComparing = false;
  private request: AbortController | undefined;
  /** The address that was read last, with success or not. */
  private attempted = "";
  /** The time that stands for the end of a window where none is selected. */
  private moment = Math.floor(Date.now() / 1000);
  /** The parameters for which tree and table were made. */
  private derived = "";
  private readonly status = el("p", { class: "note", role: "status" });
  private readonly windowText = el("span");
  private readonly windowNote = el(
    "p",
    { class: "note", hidden: true },
    this.windowText,
    el("button", { type: "button", click: () => state.set({ kind: keptKind(state.get("kind")), reading: "window", zoom: "", type: "" }, true) }, "Show the change in it"),
  );
  private readonly error = el("pre", { class: "error", role: "alert", hidden: true });
  private readonly comments = el("details", { class: "comments", hidden: true });
  private readonly results = el("div", { class: "results" });
  private readonly suggestions = el("datalist", { id: "labels" });

  private readonly kind = select(files === undefined ? "Profile" : "File", KINDS.map(({ name, title }) => [name, files === undefined ? `${title} (${name})` : short(title, 200)]), (kind) =>
    state.set({ kind, type: "", zoom: "", fn: "", label: "", reading: "", at: "" }, true),
  );
  private readonly reading = select("Reading", [], (reading) => state.set({ reading, zoom: "" }, true));
  private readonly type = select("Values", [], (type) => state.set({ type, zoom: "" }));
  private readonly label = textField("Label", (label) => state.set({ label, zoom: "" }), { list: "labels", placeholder: "key=value" });
  private readonly seconds = el("input", {
    type: "number",
    min: 1,
    max: 3600,
    change: () => state.set({ seconds: this.seconds.value }),
  });
  private readonly secondsField = el("label", { class: "field narrow" }, el("span", {}, "Seconds"), this.seconds);
  private readonly invert = checkbox("Inverted", (isOn) => state.set({ invert: isOn ? "1" : "", zoom: "" }));
  private readonly hide = checkbox("Hide start-up and runtime frames", (isOn) => state.set({ hide: isOn ? "" : "0", zoom: "" }));
  private readonly read = el("button", { type: "button", class: "primary", click: () => this.readAgain() }, "Read");
  private readonly stop = el("button", { type: "button", hidden: true, click: () => this.request?.abort() }, "Stop");
  private readonly keep = el("button", { type: "button", disabled: true, click: () => this.keepBase() }, "Keep as base");
  private readonly compare = el("button", { type: "button", disabled: true, "aria-pressed": "false", click: () => this.toggleCompare() }, "Compare");
  private readonly saves: HTMLButtonElement[] = [];

  private readonly flame = new FlamePanel({
    zoomed: (zoom) => state.set({ zoom }),
    searched: (search) => state.set({ search }),
    selected: (func) => this.choose(func),
  });
  private readonly functions = new FunctionsPanel((func) => this.choose(func));

  constructor() {
    const save = (text: string, click: () => void) => {
      const button = el("button", { type: "button", disabled: true, click }, text);
      this.saves.push(button);
      return button;
    };
    this.root = el(
      "div",
      {},
      el("div", { class: "tools" }, this.kind.root, this.reading.root, this.secondsField, this.read, this.stop, this.type.root, this.label.root, this.suggestions),
      el(
        "div",
        { class: "tools" },
        this.invert.root,
        this.hide.root,
        this.keep,
        this.compare,
        el("span", { class: "group", role: "group", "aria-label": "Save" }, "Save ", save("pprof", () => this.savePprof()), save("folded", () => this.saveFolded()), save("SVG", () => this.saveSvg())),
      ),
      this.windowNote,
      this.status,
      this.error,
      this.results,
      this.comments,
    );
    fill(this.results, el("section", { class: "card" }, this.flame.root), this.functions.root);
    this.results.hidden = true;
  }

  update(): void {
    const kind = kindOf(state.get("kind"));
    const reading = this.wanted();
    this.kind.input.value = kind.name;
    const readings: [string, string][] = [];
    if (kind.isRecorded === true) readings.push(["seconds", "the next seconds"]);
    else readings.push(["now", files === undefined ? "now" : "at the end"]);
    if (kind.hasDifference === true) readings.push(["seconds", "change in the next seconds"]);
    if (kind.isKept === true) {
      readings.push(["at", reading.at > 0 ? `at ${clock(reading.at)}` : "at the end of the window"]);
      readings.push(["window", "change in the window"]);
    }
    this.reading.setOptions(readings);
    this.reading.root.hidden = readings.length < 2;
    this.read.hidden = files !== undefined;
    this.reading.input.value = reading.mode;
    const { window } = state;
    this.windowNote.hidden = window === undefined || reading.mode === "window" || keptKind("") === "";
    if (window !== undefined) setText(this.windowText, `Selected window: ${clock(window.from)} to ${clock(window.to)}. `);
    this.secondsField.hidden = reading.mode !== "seconds";
    if (document.activeElement !== this.seconds) this.seconds.value = String(reading.seconds);
    if (document.activeElement !== this.label.input) this.label.input.value = state.get("label");
    this.invert.input.checked = state.get("invert") === "1";
    this.hide.input.checked = state.get("hide") !== "0";
    setText(this.read, reading.mode === "seconds" ? "Record" : "Read again");
    const address = profileAddress(kind.name, reading);
    if (this.loaded?.address === address) {
      this.derive();
    } else if (this.attempted !== address) {
      this.showNothing(reading);
      this.attempted = address;
      if (reading.mode !== "seconds") void this.load();
    }
  }

  private wanted(): Reading {
    const kind = kindOf(state.get("kind"));
    const asked = state.get("reading");
    const window = state.window;
    let mode: Reading["mode"] = kind.isRecorded === true ? "seconds" : "now";
    if (asked === "seconds" && kind.hasDifference === true) mode = "seconds";
    if ((asked === "at" || asked === "window") && kind.isKept === true) mode = asked;
    return {
      mode,
      seconds: Math.min(3600, Math.max(1, Math.round(Number(state.get("seconds")) || DEFAULT_SECONDS))),
      at: Number(state.get("at")) || (window?.to ?? (mode === "at" ? this.moment : 0)),
      from: window?.from ?? this.moment - 600,
      to: window?.to ?? this.moment,
    };
  }

  private readAgain(): void {
    this.moment = Math.floor(Date.now() / 1000);
    void this.load();
  }

  private showNothing(reading: Reading): void {
    this.request?.abort();
    this.loaded = undefined;
    this.derived = "";
    this.results.hidden = true;
    this.comments.hidden = true;
    this.error.hidden = true;
    for (const button of [...this.saves, this.keep]) button.disabled = true;
    setText(this.status, reading.mode === "seconds" ? `Press Record to record for ${reading.seconds} s.` : "");
  }

  private async load(): Promise<void> {
    this.request?.abort();
    const request = new AbortController();
    this.request = request;
    const kind = kindOf(state.get("kind")).name;
    const reading = this.wanted();
    const address = profileAddress(kind, reading);
    const isLong = reading.mode === "seconds";
    this.attempted = address;
    setText(this.status, isLong ? `Recording for ${reading.seconds} s ...` : "Reading ...");
    this.stop.hidden = !isLong;
    this.error.hidden = true;
    try {
      const raw = await readProfile(kind, address, 60 + (isLong ? reading.seconds : 0), request.signal);
      const profile = await decode(raw);
      if (this.request !== request) return;
      this.loaded = { kind, address, time: profile.time || (files === undefined ? Date.now() / 1000 : 0), raw, profile };
      if (!this.isComparable()) this.isComparing = false;
      this.derived = "";
      this.derive();
    } catch (error) {
      if (this.request !== request) return;
      this.loaded = undefined;
      this.results.hidden = true;
      setText(this.status, request.signal.aborted ? "Stopped." : "The profile cannot be shown.");
      this.error.hidden = request.signal.aborted;
      setText(this.error, short(reason(error), 2000));
    } finally {
      if (this.request === request) {
        this.request = undefined;
        this.stop.hidden = true;
      }
    }
  }

  /** Returns whether the base has the kind of the shown profile. Files may have the same kind; their sample types tell. */
  private isComparable(): boolean {
    return this.base !== undefined && (files !== undefined || this.base.kind === this.loaded?.kind);
  }

  /** Returns the index of the sample type to show. */
  private wantedType(profile: Profile): number {
    return typeIndex(profile, state.get("type") || (fileOf(this.loaded!.kind)?.sampleType ?? ""));
  }

  /** Returns the shown profile, less the base while comparing. */
  private current(): { profile: Profile; isDifference: boolean } {
    const { loaded, base } = this;
    const mode = this.wanted().mode;
    if (this.isComparing && base !== undefined) {
      return { profile: difference(base.profile, loaded!.profile), isDifference: true };
    }
    const isChange = mode === "window" || fileOf(loaded!.kind)?.isDifference === true || (mode === "seconds" && kindOf(loaded!.kind).isRecorded !== true);
    return { profile: loaded!.profile, isDifference: isChange };
  }

  /** Makes tree and tables of the loaded profile, if a parameter changed. */
  private derive(): void {
    const { loaded } = this;
    if (loaded === undefined) return;
    const search = state.get("search");
    const key = JSON.stringify([loaded.address, loaded.time, this.isComparing, state.get("type"), state.get("label"), state.get("invert"), state.get("hide")]);
    if (key === this.derived) {
      this.flame.restore(state.get("zoom"), search);
      this.functions.filter(search);
      return;
    }
    this.derived = key;
    try {
      this.show(search);
    } catch (error) {
      this.results.hidden = true;
      this.error.hidden = false;
      setText(this.status, this.isComparing ? "The profiles cannot be compared." : "The profile cannot be shown.");
      setText(this.error, short(reason(error), 2000));
      this.isComparing = false;
    }
  }

  private show(search: string): void {
    const begin = performance.now();
    const { profile, isDifference } = this.current();
    const type = this.wantedType(profile);
    const options = { type, label: state.get("label"), hide: state.get("hide") !== "0" };
    const { unit } = profile.types[type]!;
    const tree = makeTree(profile, { ...options, inverted: state.get("invert") === "1" });
    this.results.hidden = false;
    this.error.hidden = true;
    this.type.setOptions(profile.types.map((each) => [each.type, `${short(each.type, 60)} (${short(each.unit, 30)})`]));
    this.type.input.value = profile.types[type]!.type;
    this.flame.show(tree, unit, isDifference, state.get("zoom"), search);
    this.functions.show({ profile, options, isDifference }, search);
    const chosen = state.get("fn");
    if (chosen !== "") this.functions.select(profile.functions.findIndex(({ name }) => hashText(name).toString(16) === chosen));
    this.results.dataset.derivingTime = (performance.now() - begin).toFixed(1);
    this.results.dataset.nodes = String(tree.func.length);
    fill(this.suggestions, ...labelSuggestions(profile).map((text) => el("option", { value: text })));
    this.showStatus(profile, value(tree.net[0]!, unit), isDifference);
  }

  private showStatus(profile: Profile, sum: string, isDifference: boolean): void {
    const { loaded, base } = this;
    const verb = files === undefined ? "read at" : "of";
    const parts = [`${isDifference ? "change " : ""}${sum}`, `${exact(sampleCount(profile))} samples`];
    if (loaded!.time > 0) parts.push(`${verb} ${clock(loaded!.time)}`);
    if (profile.duration > 0) parts.push(`over ${age(profile.duration)}`);
    if (this.isComparing) parts.push(`less the base, ${this.baseName()}`);
    setText(this.status, `${kindOf(loaded!.kind).title}: ${parts.join(", ")}.`);
    for (const button of [...this.saves, this.keep]) button.disabled = false;
    const isComparable = base !== undefined && this.isComparable();
    this.compare.disabled = !isComparable;
    this.compare.setAttribute("aria-pressed", String(this.isComparing));
    setText(this.compare, isComparable ? `Compare with ${this.baseName()}` : "Compare");
    this.comments.open = sampleCount(profile) === 0;
    this.comments.hidden = profile.comments.length === 0;
    fill(this.comments, el("summary", {}, "Comments of the profile"), ...profile.comments.map((text) => el("p", {}, short(text, 2000))));
  }

  /** Returns the name of the base: its time, or its file. */
  private baseName(): string {
    return files === undefined ? clock(this.base!.time) : short(kindOf(this.base!.kind).title, 60);
  }

  private keepBase(): void {
    this.base = this.loaded;
    this.isComparing = false;
    this.derived = "";
    this.derive();
  }

  /** Shows the difference to the base, of a new reading if the base is the shown one. */
  private toggleCompare(): void {
    this.isComparing = !this.isComparing;
    this.derived = "";
    if (this.isComparing && this.base === this.loaded && this.wanted().mode === "now" && files === undefined) void this.load();
    else this.derive();
  }

  private choose(func: number): void {
    this.functions.select(func);
    const name = this.flame.tree?.functions[func]?.name ?? "";
    state.set({ fn: name === "" ? "" : hashText(name).toString(16) });
  }

  private fileName(ending: string): string {
    const { kind, time } = this.loaded!;
    if (files !== undefined) return `${kindOf(kind).title.split("/").at(-1)!}.${ending}`;
    return `${kind}-${new Date(time * 1000).toISOString().slice(0, 19).replaceAll(":", "")}.${ending}`;
  }

  private savePprof(): void {
    download(this.fileName("pb.gz"), "application/octet-stream", this.loaded!.raw);
  }

  private saveFolded(): void {
    const { profile } = this.current();
    const tree = makeTree(profile, { type: this.wantedType(profile), label: state.get("label"), hide: state.get("hide") !== "0", inverted: false });
    download(this.fileName("folded.txt"), "text/plain", folded(tree));
  }

  private saveSvg(): void {
    const { profile, isDifference } = this.current();
    const unit = profile.types[this.wantedType(profile)]!.unit;
    download(this.fileName("svg"), "image/svg+xml", flameSvg(this.flame.tree!, this.flame.zoom, unit, isDifference));
  }
}
