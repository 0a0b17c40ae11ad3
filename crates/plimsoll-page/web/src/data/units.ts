// Numbers as text: SI units for counts and times, IEC units for bytes.

const IEC = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
const SI = ["", "k", "M", "G", "T", "P"];

/** Returns a number with three significant digits at least, and no more than one decimal. */
function digits(value: number): string {
  const size = Math.abs(value);
  if (size >= 100 || Number.isInteger(value)) return value.toFixed(0);
  return value.toFixed(size >= 10 ? 1 : 2);
}

function scaled(value: number, base: number, units: string[]): [string, string] {
  let index = 0;
  let rest = value;
  while (Math.abs(rest) >= base * 0.9995 && index < units.length - 1) {
    rest /= base;
    index += 1;
  }
  return [digits(rest), units[index]!];
}

/** Formats a number of bytes, such as `1.50 MiB`. */
export function bytes(value: number): string {
  if (!Number.isFinite(value)) return "-";
  return scaled(value, 1024, IEC).join(" ");
}

/** Formats a count: exactly up to 99,999, then such as `1.23 M`. */
export function count(value: number): string {
  if (!Number.isFinite(value)) return "-";
  if (Math.abs(value) < 100_000) {
    return Number.isInteger(value) ? exact(value) : digits(value);
  }
  return scaled(value, 1000, SI).join(" ");
}

/** Formats a whole number with separators. */
export function exact(value: number): string {
  return Math.round(value).toString().replace(/\B(?=(\d{3})+(?!\d))/g, ",");
}

/** Formats a duration in seconds, in the largest unit that has one digit at least. */
export function seconds(value: number): string {
  if (!Number.isFinite(value)) return "-";
  const size = Math.abs(value);
  if (size === 0) return "0 s";
  if (size < 1e-6) return `${digits(value * 1e9)} ns`;
  if (size < 1e-3) return `${digits(value * 1e6)} µs`;
  if (size < 1) return `${digits(value * 1e3)} ms`;
  if (size < 120) return `${digits(value)} s`;
  if (size < 7200) return `${digits(value / 60)} min`;
  if (size < 172_800) return `${digits(value / 3600)} h`;
  return `${digits(value / 86_400)} d`;
}

/** Formats an age in two units, such as `2 d 3 h`. */
export function age(value: number): string {
  const total = Math.max(0, Math.floor(value));
  const parts: [number, string][] = [
    [Math.floor(total / 86_400), "d"],
    [Math.floor(total / 3600) % 24, "h"],
    [Math.floor(total / 60) % 60, "min"],
    [total % 60, "s"],
  ];
  const first = parts.findIndex(([number]) => number > 0);
  if (first < 0) return "0 s";
  return parts
    .slice(first, first + 2)
    .map(([number, unit]) => `${number} ${unit}`)
    .join(" ");
}

/** Formats a value of a profile by the unit of its sample type. */
export function value(number: number, unit: string): string {
  switch (unit) {
    case "bytes":
      return bytes(number);
    case "nanoseconds":
      return seconds(number / 1e9);
    case "microseconds":
      return seconds(number / 1e6);
    case "milliseconds":
      return seconds(number / 1e3);
    case "seconds":
      return seconds(number);
    case "count":
    case "":
      return count(number);
    default:
      return `${count(number)} ${unit}`;
  }
}

/** Formats a value with its sign, for differences. */
export function signed(number: number, unit: string): string {
  return (number > 0 ? "+" : "") + value(number, unit);
}

/** Formats a share of a whole. */
export function share(part: number, whole: number): string {
  if (whole === 0) return "-";
  const percent = (100 * part) / whole;
  const size = Math.abs(percent);
  return `${percent.toFixed(size >= 99.95 || size === 0 ? 0 : size >= 0.095 ? 1 : 2)} %`;
}

function two(number: number): string {
  return String(number).padStart(2, "0");
}

/** Formats the time of day, with the date if it is not today. */
export function clock(unix: number, now = Date.now() / 1000): string {
  const date = new Date(unix * 1000);
  const time = `${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}`;
  const same = date.toDateString() === new Date(now * 1000).toDateString();
  return same ? time : `${day(unix)} ${time}`;
}

/** Formats a date. */
export function day(unix: number): string {
  const date = new Date(unix * 1000);
  return `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())}`;
}
