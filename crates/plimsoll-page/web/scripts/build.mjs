// Writes the files of the page to `dist`.

import { mkdir, writeFile } from "node:fs/promises";
import { dist, files } from "./bundle.mjs";

await mkdir(dist, { recursive: true });
let sum = 0;
for (const [name, bytes] of await files()) {
  await writeFile(dist + name, bytes);
  console.log(`${name.padEnd(16)}${String(bytes.length).padStart(8)} bytes`);
  sum += bytes.length;
}
console.log(`${"sum".padEnd(16)}${String(sum).padStart(8)} bytes`);
