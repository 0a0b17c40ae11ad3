// Decompression of gzip, with a limit on the output.

const LIMIT = 256 * 1024 * 1024;

/** Returns the decompressed bytes. Bytes that are not gzip are returned unchanged. */
export async function inflate(bytes: Uint8Array<ArrayBuffer>, limit = LIMIT): Promise<Uint8Array<ArrayBuffer>> {
  if (bytes[0] !== 0x1f || bytes[1] !== 0x8b) return bytes;
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  const reader = stream.getReader();
  const parts: Uint8Array[] = [];
  let size = 0;
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) break;
      size += value.length;
      if (size > limit) throw new Error(`the profile exceeds ${limit} bytes`);
      parts.push(value);
    }
  } catch (error) {
    void reader.cancel().catch(() => undefined);
    const reason = error instanceof Error && size > limit ? error.message : "the gzip data are damaged";
    throw new Error(reason);
  }
  const whole = new Uint8Array(size);
  let offset = 0;
  for (const part of parts) {
    whole.set(part, offset);
    offset += part.length;
  }
  return whole;
}
