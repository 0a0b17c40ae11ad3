// The difference of two profiles of one kind.

import { labelText, sampleCount, type Func, type Label, type Profile } from "./profile.ts";

/** Returns `profile` less `base`: samples of the base count negatively. Both must have the same sample types. */
export function difference(base: Profile, profile: Profile): Profile {
  const types = profile.types.map(({ type }) => type).join();
  if (base.types.map(({ type }) => type).join() !== types) {
    throw new Error("the base has other sample types than the profile");
  }
  const functions: Func[] = [...profile.functions];
  const byName = new Map(functions.map(({ name }, index) => [name, index]));
  const functionOf = base.functions.map((func) => {
    let index = byName.get(func.name);
    if (index === undefined) {
      index = functions.length;
      functions.push(func);
      byName.set(func.name, index);
    }
    return index;
  });
  const labelSets: Label[][] = [...profile.labelSets];
  const key = (set: Label[]) => JSON.stringify(set.map((label) => [label.key, labelText(label)]));
  const byKey = new Map(labelSets.map((set, index) => [key(set), index]));
  const labelsOf = base.labelSets.map((set) => {
    const known = byKey.get(key(set));
    if (known !== undefined) return known;
    labelSets.push(set);
    return labelSets.length - 1;
  });
  const frames = new Int32Array(profile.frames.length + base.frames.length);
  frames.set(profile.frames);
  base.frames.forEach((func, index) => (frames[profile.frames.length + index] = functionOf[func]!));
  const starts = new Int32Array(sampleCount(profile) + sampleCount(base) + 1);
  starts.set(profile.starts);
  base.starts.forEach((start, index) => (starts[sampleCount(profile) + index] = profile.frames.length + start));
  const values = new Float64Array(profile.values.length + base.values.length);
  values.set(profile.values);
  base.values.forEach((value, index) => (values[profile.values.length + index] = -value));
  const labels = new Int32Array(profile.labels.length + base.labels.length);
  labels.set(profile.labels);
  base.labels.forEach((set, index) => (labels[profile.labels.length + index] = labelsOf[set]!));
  return { ...profile, functions, labelSets, frames, starts, values, labels };
}
