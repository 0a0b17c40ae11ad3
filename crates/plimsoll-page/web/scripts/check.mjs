// Fails if `dist` differs from the files that this source builds, or is too large.

import { readFile } from "node:fs/promises";
import { dist, files } from "./bundle.mjs";

const LIMIT = 300_000;

let sum = 0;
for (const [name, bytes] of await files()) {
  const present = await readFile(dist + name).catch(() => undefined);
  if (present === undefined || Buffer.compare(present, bytes) !== 0) {
    console.error(`dist/${name} differs from its source; run npm run build`);
    process.exitCode = 1;
  }
  // A server sends the other files.
  if (name !== "alone.html.gz") sum += bytes.length;
}
if (sum > LIMIT) {
  console.error(`the page takes ${sum} bytes, more than ${LIMIT}`);
  process.exitCode = 1;
}
