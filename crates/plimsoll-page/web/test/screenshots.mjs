// Makes pictures of every tab: `node test/screenshots.mjs DIRECTORY`.

import { mkdir } from "node:fs/promises";
import { launch, open, until } from "./support/browser.mjs";
import { MockServer } from "./support/server.mjs";

const directory = process.argv[2];
if (directory === undefined) {
  console.error("usage: node test/screenshots.mjs DIRECTORY");
  process.exit(2);
}

const VIEWS = [
  ["overview", "#overview?range=3h", ".chart canvas"],
  ["profiles", "#profiles?kind=heap", ".results:not([hidden]) canvas"],
  ["search", "#profiles?kind=heap&search=parse&invert=1", ".results:not([hidden]) canvas"],
  ["difference", "#profiles?kind=heap&reading=window", ".results:not([hidden]) canvas"],
  ["memory", "#memory", ".bars tbody tr"],
  ["threads", "#threads?entry=task-10000026", ".detail dl"],
  ["growth", "#growth?source=window&from=1700000000&to=1700003600", ".table tbody tr:nth-child(2)"],
];

await mkdir(directory, { recursive: true });
const server = await new MockServer().start();
server.nodes = 8000;
const browser = await launch();
for (const [scheme, width, height] of [["light", 1280, 900], ["dark", 1280, 900], ["light", 360, 740]]) {
  for (const [name, hash, ready] of VIEWS) {
    const { page, errors } = await open(browser, server.url + hash, { width, height, dark: scheme === "dark" });
    await until(page, ready, (selector) => document.querySelector(selector) !== null, ready);
    await new Promise((resolve) => setTimeout(resolve, 600));
    await page.screenshot({ path: `${directory}/${name}-${scheme}-${width}.png`, fullPage: true });
    for (const error of errors) console.error(name, error);
    await page.close();
  }
}
await browser.close();
await server.stop();
