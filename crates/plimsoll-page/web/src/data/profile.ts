// A profile in memory, in columns: samples are indices into stacks, stacks are indices of functions.

/** The meaning and the unit of a value. */
export interface SampleType {
  type: string;
  unit: string;
}

/** A label of a sample: its value is text, or a number with its unit. */
export interface Label {
  key: string;
  value: string | number;
  unit: string;
}

/** A function, merged by name. */
export interface Func {
  name: string;
  file: string;
  line: number;
}

/** A decoded profile. The sample `i` has the values `values[i * types.length ...]`. */
export interface Profile {
  types: SampleType[];
  defaultType: string;
  functions: Func[];
  /** The functions of all stacks, each from the innermost. */
  frames: Int32Array;
  /** For each sample, the start of its stack in `frames`; one more than samples. */
  starts: Int32Array;
  values: Float64Array;
  /** For each sample, its index in `labelSets`. */
  labels: Int32Array;
  labelSets: Label[][];
  comments: string[];
  /** Seconds since 1970; 0 if unknown. */
  time: number;
  /** Seconds; 0 if the profile is of one moment. */
  duration: number;
}

/** Returns the number of samples. */
export function sampleCount(profile: Profile): number {
  return profile.starts.length - 1;
}

/** Returns the index of a sample type by its name; the default one if absent. */
export function typeIndex(profile: Profile, name: string): number {
  const find = (wanted: string) => profile.types.findIndex(({ type }) => type === wanted);
  const index = find(name);
  if (index >= 0) return index;
  const byDefault = find(profile.defaultType);
  return byDefault >= 0 ? byDefault : profile.types.length - 1;
}

/** Returns the text of a label's value. */
export function labelText(label: Label): string {
  return typeof label.value === "number" ? String(label.value) : label.value;
}

/** Returns the label sets that match `key=value`; `key` alone matches any value. All match an empty filter. */
export function matchingLabels(profile: Profile, filter: string): boolean[] {
  const wanted = filter.trim();
  if (wanted === "") return profile.labelSets.map(() => true);
  const split = wanted.indexOf("=");
  const key = split < 0 ? wanted : wanted.slice(0, split).trim();
  const value = split < 0 ? undefined : wanted.slice(split + 1).trim();
  return profile.labelSets.map((set) =>
    set.some((label) => label.key === key && (value === undefined || labelText(label) === value)),
  );
}

/** Returns the most frequent labels as `key=value`, for suggestions. */
export function labelSuggestions(profile: Profile, limit = 200): string[] {
  const counts = new Map<string, number>();
  for (const set of profile.labelSets) {
    for (const label of set) {
      const text = `${label.key}=${labelText(label)}`;
      if (text.length <= 200) counts.set(text, (counts.get(text) ?? 0) + 1);
    }
  }
  return [...counts.keys()].sort((a, b) => counts.get(b)! - counts.get(a)!).slice(0, limit);
}
