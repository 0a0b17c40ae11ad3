// The files of the page, built in memory: the same source gives the same bytes.

import { readFile } from "node:fs/promises";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";
import { gzipSync } from "fflate";

export const web = fileURLToPath(new URL("..", import.meta.url));
export const dist = fileURLToPath(new URL("../../dist/", import.meta.url));

/** The licence of the chart library, which its copies must contain. */
const LICENSE = `/*! The page contains uPlot.\n${await readFile(`${web}/node_modules/uplot/LICENSE`, "utf8")}*/`;

async function bundled(entry) {
  const result = await build({
    absWorkingDir: web,
    entryPoints: [entry],
    bundle: true,
    minify: true,
    write: false,
    format: "iife",
    target: ["chrome103", "firefox113", "safari16.4"],
    charset: "utf8",
    legalComments: "none",
    banner: { js: LICENSE, css: LICENSE },
    logLevel: "warning",
  });
  return result.outputFiles[0].contents;
}

/** Compresses without a time or a file name. The compressor is no part of Node, whose output differs by version. */
function compressed(bytes) {
  return gzipSync(bytes, { level: 9, mem: 12, mtime: 0 });
}

/** Returns the name and the compressed contents of each file. */
export async function files() {
  const html = await readFile(`${web}/src/index.html`);
  const js = await bundled("src/main.ts");
  const css = await bundled("src/page.css");
  return new Map([
    ["index.html.gz", compressed(html)],
    ["page.js.gz", compressed(js)],
    ["page.css.gz", compressed(css)],
  ]);
}
