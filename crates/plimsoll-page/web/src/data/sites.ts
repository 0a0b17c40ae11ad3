// Memory by allocation site: the innermost function that is not of the standard library.

import { isLibrary } from "./names.ts";
import { sampleCount, typeIndex, type Func, type Profile } from "./profile.ts";

/** The memory of one site. */
export interface Site {
  name: string;
  file: string;
  line: number;
  bytes: number;
  objects: number;
}

/** Returns the memory in use by site. */
export function sites(profile: Profile): Map<string, Site> {
  const types = profile.types.length;
  const space = typeIndex(profile, "inuse_space");
  const objects = typeIndex(profile, "inuse_objects");
  const library = profile.functions.map(({ name }) => isLibrary(name));
  const result = new Map<string, Site>();
  for (let sample = 0; sample < sampleCount(profile); sample++) {
    const begin = profile.starts[sample]!;
    const end = profile.starts[sample + 1]!;
    let at = begin;
    while (at < end - 1 && library[profile.frames[at]!]) at += 1;
    if (at < end && library[profile.frames[at]!]) at = begin;
    const func: Func = (end > begin ? profile.functions[profile.frames[at]!] : undefined) ?? { name: "[no stack]", file: "", line: 0 };
    let site = result.get(func.name);
    if (site === undefined) {
      site = { name: func.name, file: func.file, line: func.line, bytes: 0, objects: 0 };
      result.set(func.name, site);
    }
    site.bytes += profile.values[sample * types + space]!;
    site.objects += profile.values[sample * types + objects]!;
  }
  return result;
}
