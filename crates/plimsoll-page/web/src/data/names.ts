// Parts of function names: the crate, a short form, the functions of start-up and runtimes.

/** Removes the sugar before the first path: `<&mut a::B as c::D>::e` begins with `a::B`. */
function head(name: string): string {
  return name.replace(/^(?:[<&*(\[]|mut |const |dyn |impl |'\w+ )+/, "");
}

/** The crate of frames in brackets, which are no functions. */
export const CATEGORIES = "categories";
/** The crate of functions without a path. */
export const WITHOUT_CRATE = "C and others";

/** Returns the crate of a function: the first segment of its path. */
export function crateOf(name: string): string {
  if (name.startsWith("[")) return CATEGORIES;
  if (name.startsWith("/")) return "files";
  const start = head(name.slice(0, 400));
  const colons = start.indexOf("::");
  const word = /^[\w$.@-]+/.exec(start)?.[0] ?? "";
  return colons > 0 && word.length === colons ? word : WITHOUT_CRATE;
}

/** Returns the position after the bracket that closes the one at the start of the text; 0 if none does. */
function closing(text: string): number {
  let depth = 0;
  for (let i = 0; i < text.length; i++) {
    if (text[i] === "<") depth += 1;
    if (text[i] === ">" && text[i - 1] !== "-") depth -= 1;
    if (depth === 0) return i + 1;
  }
  return 0;
}

/** Returns the text without all that is inside angle brackets. */
function withoutArguments(text: string): string {
  let depth = 0;
  let flat = "";
  for (let i = 0; i < text.length; i++) {
    if (text[i] === "<") depth += 1;
    else if (text[i] === ">" && text[i - 1] !== "-") depth = Math.max(0, depth - 1);
    else if (depth === 0) flat += text[i];
  }
  return flat;
}

/** Returns the name without its type arguments, in its last two segments: `Reader::next` for `<a::Reader<T> as b::Iterator>::next`. */
export function shortName(name: string): string {
  if (name.startsWith("[") || name.length > 2000) return name;
  let flat = withoutArguments(name);
  const end = name.startsWith("<") ? closing(name) : 0;
  if (end > 0) flat = withoutArguments(name.slice(1, end - 1)).split(" as ")[0] + withoutArguments(name.slice(end));
  const parts = flat.split("::").filter((part) => part !== "");
  const kept = parts.slice(-2).join("::");
  return kept === "" ? name : kept;
}

const RUNTIME_PREFIXES = [
  "std::rt::",
  "std::sys::",
  "std::panic::",
  "std::panicking::",
  "std::thread::",
  "core::ops::function::",
  "core::panic::",
  "tokio::runtime::",
  "tokio::task::local::",
  "tokio::park::",
  "tokio::loom::",
  "tokio::util::",
  "async_executor::",
  "async_task::",
  "__libc_start",
  "__rust_try",
  "__rust_begin_short_backtrace",
  "___rust_try",
];
const RUNTIME_NAMES = new Set(["_start", "main", "clone3", "__clone3", "clone", "__clone", "start_thread", "lang_start"]);

/** Returns whether a function only starts others: of start-up, of threads, of an executor. */
export function isRuntime(name: string): boolean {
  if (RUNTIME_NAMES.has(name)) return true;
  const starts = (text: string) => RUNTIME_PREFIXES.some((prefix) => text.startsWith(prefix));
  const path = head(name);
  if (starts(path)) return true;
  const trait = /^<[^]{0,400}? as ([^]{0,100})/.exec(name)?.[1];
  return trait !== undefined && starts(trait);
}

const LIBRARY = new Set(["std", "alloc", "core", "hashbrown", WITHOUT_CRATE, "plimsoll"]);

/** Returns whether a function belongs to the standard library or to a crate of Plimsoll, so that its caller is the site. */
export function isLibrary(name: string): boolean {
  const crate = crateOf(name);
  return LIBRARY.has(crate) || crate.startsWith("plimsoll_") || isRuntime(name);
}
