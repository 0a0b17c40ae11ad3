// A small encoder of pprof's format, for synthetic profiles.

import { gzipSync } from "node:zlib";

function varint(out, number) {
  let rest = BigInt.asUintN(64, BigInt(number));
  while (rest > 127n) {
    out.push(Number(rest & 127n) | 128);
    rest >>= 7n;
  }
  out.push(Number(rest));
}

/** Writes protobuf fields. */
export class Writer {
  parts = [];
  size = 0;

  put(bytes) {
    this.parts.push(bytes);
    this.size += bytes.length;
  }

  number(field, number) {
    const out = [];
    varint(out, field * 8);
    varint(out, number);
    this.put(Uint8Array.from(out));
  }

  bytes(field, bytes) {
    const out = [];
    varint(out, field * 8 + 2);
    varint(out, bytes.length);
    this.put(Uint8Array.from(out));
    this.put(bytes);
  }

  packed(field, numbers) {
    const out = [];
    for (const number of numbers) varint(out, number);
    this.bytes(field, Uint8Array.from(out));
  }

  message(field, write) {
    const inner = new Writer();
    write(inner);
    this.bytes(field, inner.finish());
  }

  finish() {
    const whole = new Uint8Array(this.size);
    let offset = 0;
    for (const part of this.parts) {
      whole.set(part, offset);
      offset += part.length;
    }
    return whole;
  }
}

/**
 * Encodes a profile. A sample has `stack`, names from the innermost, `values`, and `labels`, whose values are
 * texts or numbers. A name may be bytes that are not UTF-8. A frame that is a list has its inlined functions first.
 */
export function encode({ types, samples, comments = [], time = 0, duration = 0, defaultType = "", file = "src/main.rs" }) {
  const strings = [new Uint8Array()];
  const byText = new Map([["", 0]]);
  const text = (value) => {
    const key = typeof value === "string" ? value : `bytes ${Buffer.from(value).toString("hex")}`;
    if (!byText.has(key)) {
      byText.set(key, strings.length);
      strings.push(typeof value === "string" ? new TextEncoder().encode(value) : value);
    }
    return byText.get(key);
  };
  const writer = new Writer();
  for (const [type, unit] of types) {
    writer.message(1, (inner) => {
      inner.number(1, text(type));
      inner.number(2, text(unit));
    });
  }
  const functions = new Map();
  const functionId = (name) => {
    const id = text(name);
    if (!functions.has(id)) functions.set(id, functions.size + 1);
    return functions.get(id);
  };
  const locations = new Map();
  const locationId = (frame) => {
    const lines = (Array.isArray(frame) ? frame : [frame]).map(functionId);
    const key = lines.join();
    if (!locations.has(key)) locations.set(key, { id: locations.size + 1, lines });
    return locations.get(key).id;
  };
  for (const { stack, values, labels = {} } of samples) {
    writer.message(2, (inner) => {
      inner.packed(1, stack.map(locationId));
      inner.packed(2, values);
      for (const [key, value] of Object.entries(labels)) {
        inner.message(3, (label) => {
          label.number(1, text(key));
          if (typeof value === "number") {
            label.number(3, value);
            label.number(4, text("bytes"));
          } else label.number(2, text(value));
        });
      }
    });
  }
  for (const { id, lines } of locations.values()) {
    writer.message(4, (inner) => {
      inner.number(1, id);
      inner.number(3, 4096 + id * 16);
      lines.forEach((func, index) => {
        inner.message(4, (line) => {
          line.number(1, func);
          line.number(2, 10 + index);
        });
      });
    });
  }
  for (const [name, id] of functions) {
    writer.message(5, (inner) => {
      inner.number(1, id);
      inner.number(2, name);
      inner.number(4, text(file));
      inner.number(5, 7);
    });
  }
  const commentIds = comments.map(text);
  const defaultId = text(defaultType);
  for (const string of strings) writer.bytes(6, string);
  writer.number(9, Math.round(time * 1e9));
  writer.number(10, Math.round(duration * 1e9));
  for (const id of commentIds) writer.number(13, id);
  writer.number(14, defaultId);
  return writer.finish();
}

/** Encodes and compresses a profile. */
export function encodeGzip(profile) {
  return gzipSync(encode(profile));
}
