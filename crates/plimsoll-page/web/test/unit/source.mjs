// The modules of the page for tests: bundled as a module, because Node runs no TypeScript.

import { build } from "esbuild";
import { fileURLToPath } from "node:url";

const web = fileURLToPath(new URL("../..", import.meta.url));

/** Returns the exports of a module below `src`. */
export async function source(path) {
  const result = await build({ absWorkingDir: web, entryPoints: [`src/${path}`], bundle: true, write: false, format: "esm", logLevel: "warning" });
  return import(`data:text/javascript;base64,${Buffer.from(result.outputFiles[0].contents).toString("base64")}`);
}
