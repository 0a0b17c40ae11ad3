// The decoder of pprof's format. Damaged or hostile bytes give an error; sizes are limited, so that
// none of them takes long.

import { inflate } from "./inflate.ts";
import type { Func, Label, Profile, SampleType } from "./profile.ts";
import { Message } from "./proto.ts";

/** The limit of frames in all stacks together, with inlined ones. */
const MAX_FRAMES = 10_000_000;
/** The limit of frames in one stack. */
const MAX_DEPTH = 5_000;
const MAX_TYPES = 64;

/** Tables of a profile, before their references are resolved. */
interface Tables {
  strings: string[];
  /** Pairs of string indices: type and unit. */
  types: [number, number][];
  samples: Message[];
  /** For each location, its lines as function and line in turn, from the innermost. */
  locations: Map<number, number[]>;
  addresses: Map<number, { mapping: number; address: number }>;
  mappings: Map<number, { start: number; offset: number; file: number }>;
  functions: Map<number, { name: number; file: number; line: number }>;
  comments: number[];
  time: number;
  duration: number;
  defaultType: number;
}

/** Decodes a profile, gzipped or not. */
export async function decode(bytes: Uint8Array<ArrayBuffer>): Promise<Profile> {
  return decodePlain(await inflate(bytes));
}

/** Decodes a profile that is not compressed. */
export function decodePlain(bytes: Uint8Array): Profile {
  const tables = readTables(new Message(bytes));
  if (tables.types.length === 0) throw new Error("not a profile: it has no sample types");
  if (tables.types.length > MAX_TYPES) throw new Error("not a profile: it has too many sample types");
  return new Resolver(tables).profile();
}

function readTables(message: Message): Tables {
  const tables: Tables = {
    strings: [],
    types: [],
    samples: [],
    locations: new Map(),
    addresses: new Map(),
    mappings: new Map(),
    functions: new Map(),
    comments: [],
    time: 0,
    duration: 0,
    defaultType: 0,
  };
  const utf8 = new TextDecoder("utf-8");
  while (message.next()) {
    switch (message.field) {
      case 1:
        tables.types.push(readType(message.message()));
        break;
      case 2:
        tables.samples.push(message.message());
        break;
      case 3:
        readMapping(message.message(), tables);
        break;
      case 4:
        readLocation(message.message(), tables);
        break;
      case 5:
        readFunction(message.message(), tables);
        break;
      case 6:
        tables.strings.push(utf8.decode(message.slice()));
        break;
      case 9:
        tables.time = message.number / 1e9;
        break;
      case 10:
        tables.duration = message.number / 1e9;
        break;
      case 13:
        message.numbers((index) => tables.comments.push(index));
        break;
      case 14:
        tables.defaultType = message.number;
        break;
    }
  }
  return tables;
}

function readType(message: Message): [number, number] {
  const type: [number, number] = [0, 0];
  while (message.next()) {
    if (message.field === 1) type[0] = message.number;
    if (message.field === 2) type[1] = message.number;
  }
  return type;
}

function readMapping(message: Message, tables: Tables): void {
  let id = 0;
  const result = { start: 0, offset: 0, file: 0 };
  while (message.next()) {
    if (message.field === 1) id = message.number;
    if (message.field === 2) result.start = message.number;
    if (message.field === 4) result.offset = message.number;
    if (message.field === 5) result.file = message.number;
  }
  tables.mappings.set(id, result);
}

function readLocation(message: Message, tables: Tables): void {
  let id = 0;
  let mapping = 0;
  let address = 0;
  const lines: number[] = [];
  while (message.next()) {
    if (message.field === 1) id = message.number;
    if (message.field === 2) mapping = message.number;
    if (message.field === 3) address = message.number;
    if (message.field === 4) {
      const line = message.message();
      let func = 0;
      let number = 0;
      while (line.next()) {
        if (line.field === 1) func = line.number;
        if (line.field === 2) number = line.number;
      }
      lines.push(func, number);
    }
  }
  tables.locations.set(id, lines);
  tables.addresses.set(id, { mapping, address });
}

function readFunction(message: Message, tables: Tables): void {
  let id = 0;
  const result = { name: 0, file: 0, line: 0 };
  while (message.next()) {
    if (message.field === 1) id = message.number;
    if (message.field === 2) result.name = message.number;
    if (message.field === 4) result.file = message.number;
    if (message.field === 5) result.line = message.number;
  }
  tables.functions.set(id, result);
}

class Resolver {
  private readonly functions: Func[] = [];
  private readonly byName = new Map<string, number>();
  private readonly byId = new Map<number, number>();
  private readonly byLocation = new Map<number, Int32Array>();
  private readonly labelSets: Label[][] = [[]];
  private readonly byLabels = new Map<string, number>([["", 0]]);

  constructor(private readonly tables: Tables) {}

  profile(): Profile {
    const { tables } = this;
    const types: SampleType[] = tables.types.map(([type, unit]) => ({
      type: this.string(type),
      unit: this.string(unit),
    }));
    const samples = tables.samples.length;
    const starts = new Int32Array(samples + 1);
    const values = new Float64Array(samples * types.length);
    const labels = new Int32Array(samples);
    let frames = new Int32Array(1024);
    let used = 0;
    for (let sample = 0; sample < samples; sample++) {
      const message = tables.samples[sample]!;
      let valueCount = 0;
      let depth = 0;
      let set = "";
      const own: Label[] = [];
      while (message.next()) {
        if (message.field === 1) {
          message.numbers((location) => {
            const part = this.location(location);
            const kept = Math.min(part.length, MAX_DEPTH - depth);
            if (kept <= 0) return;
            if (used + kept > MAX_FRAMES) throw new Error("the profile has too many frames");
            if (used + kept > frames.length) {
              const larger = new Int32Array(Math.max(frames.length * 2, used + kept));
              larger.set(frames);
              frames = larger;
            }
            frames.set(kept === part.length ? part : part.subarray(0, kept), used);
            used += kept;
            depth += kept;
          });
        } else if (message.field === 2) {
          message.numbers((value) => {
            if (valueCount < types.length) values[sample * types.length + valueCount] = value;
            valueCount += 1;
          });
        } else if (message.field === 3) {
          const label = this.label(message.message());
          own.push(label);
          set += JSON.stringify([label.key, label.value]);
        }
      }
      if (valueCount !== types.length) throw new Error("not a profile: a sample lacks values");
      starts[sample + 1] = used;
      labels[sample] = this.labelSet(set, own);
    }
    return {
      types,
      defaultType: this.string(tables.defaultType),
      functions: this.functions,
      frames: frames.subarray(0, used),
      starts,
      values,
      labels,
      labelSets: this.labelSets,
      comments: tables.comments.slice(0, 100).map((index) => this.string(index)),
      time: tables.time,
      duration: tables.duration,
    };
  }

  private string(index: number): string {
    const text = this.tables.strings[index];
    if (text === undefined) {
      if (index === 0) return "";
      throw new Error("not a profile: a string is missing");
    }
    return text;
  }

  private labelSet(key: string, set: Label[]): number {
    let index = this.byLabels.get(key);
    if (index === undefined) {
      index = this.labelSets.length;
      this.labelSets.push(set);
      this.byLabels.set(key, index);
    }
    return index;
  }

  private label(message: Message): Label {
    let key = 0;
    let text = 0;
    let number = 0;
    let unit = 0;
    while (message.next()) {
      if (message.field === 1) key = message.number;
      if (message.field === 2) text = message.number;
      if (message.field === 3) number = message.number;
      if (message.field === 4) unit = message.number;
    }
    return {
      key: this.string(key),
      value: text === 0 ? number : this.string(text),
      unit: this.string(unit),
    };
  }

  private location(id: number): Int32Array {
    let frames = this.byLocation.get(id);
    if (frames === undefined) {
      const lines = this.tables.locations.get(id);
      if (lines === undefined) throw new Error("not a profile: a location is missing");
      if (lines.length === 0) {
        frames = Int32Array.of(this.named(this.addressName(id), "", 0));
      } else {
        frames = new Int32Array(Math.min(lines.length / 2, MAX_DEPTH));
        for (let i = 0; i < frames.length; i++) frames[i] = this.func(lines[2 * i]!, lines[2 * i + 1]!);
      }
      this.byLocation.set(id, frames);
    }
    return frames;
  }

  /** The name of a location without functions, as in the command: module+0xoffset. */
  private addressName(id: number): string {
    const { mapping, address } = this.tables.addresses.get(id) ?? { mapping: 0, address: 0 };
    const code = this.tables.mappings.get(mapping);
    const file = code === undefined ? "" : this.string(code.file).split("/").at(-1)!;
    if (address === 0) return file === "" ? "[unknown]" : `[${file}]`;
    if (code === undefined || file === "") return `0x${address.toString(16)}`;
    const offset = address - code.start + code.offset;
    return offset < 0 ? `0x${address.toString(16)}` : `${file}+0x${offset.toString(16)}`;
  }

  private func(id: number, line: number): number {
    let index = this.byId.get(id);
    if (index === undefined) {
      const entry = this.tables.functions.get(id);
      if (entry === undefined) throw new Error("not a profile: a function is missing");
      index = this.named(this.string(entry.name), this.string(entry.file), entry.line || line);
      this.byId.set(id, index);
    }
    return index;
  }

  private named(name: string, file: string, line: number): number {
    const known = this.byName.get(name);
    if (known !== undefined) return known;
    const index = this.functions.length;
    this.functions.push({ name, file, line });
    this.byName.set(name, index);
    return index;
  }
}
