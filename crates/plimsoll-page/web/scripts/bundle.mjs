// The files of the page, built in memory: the same source gives the same bytes.

import { createHash } from "node:crypto";
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

/**
 * Returns the page as one document with its script and style, for reports in files. Its policy allows only these two and no
 * request. The script is last, so that it finds the whole document.
 */
function alone(html, js, css) {
  const style = new TextDecoder().decode(css).trim();
  const script = new TextDecoder().decode(js).trim();
  // The document would end there.
  if (/<\/(style|script)/i.test(style + script)) throw new Error("the bundle contains the end of an element");
  const hash = (text) => `'sha256-${createHash("sha256").update(text).digest("base64")}'`;
  const policy = `default-src 'none'; script-src ${hash(script)}; style-src ${hash(style)}; img-src data: blob:; base-uri 'none'; form-action 'none'`;
  const replaced = [
    ['<link rel="stylesheet" href="page.css">', `<style>${style}</style>`],
    ['<script src="page.js" defer></script>\n', ""],
    ['<meta charset="utf-8">', `<meta charset="utf-8">\n<meta http-equiv="Content-Security-Policy" content="${policy}">`],
    ["</body>", `<script>${script}</script>\n</body>`],
  ];
  let text = new TextDecoder().decode(html);
  for (const [from, to] of replaced) {
    if (text.split(from).length !== 2) throw new Error(`index.html must contain ${from} once`);
    text = text.replace(from, () => to);
  }
  return new TextEncoder().encode(text);
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
    ["alone.html.gz", compressed(alone(html, js, css))],
  ]);
}
