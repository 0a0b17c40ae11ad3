// Accessibility and narrow screens.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { after, before, test } from "node:test";
import { launch, missing, open, until } from "../support/browser.mjs";
import { MockServer } from "../support/server.mjs";

const AXE = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const TABS = [
  ["#overview?range=3h", ".chart canvas"],
  ["#profiles?kind=heap&search=parse", ".results:not([hidden]) canvas"],
  ["#profiles?kind=fragmentation", ".error:not([hidden])"],
  ["#memory", ".bars tbody tr"],
  ["#threads?entry=task-10000026", ".detail dl"],
  ["#growth?source=window&from=1700000000&to=1700003600", ".table tbody tr:nth-child(2)"],
  ["#growth", ".table tbody tr:nth-child(2)"],
];

let server;
let browser;

before(async () => {
  if (missing) return;
  server = await new MockServer().start();
  server.nodes = 1500;
  browser = await launch();
});

after(async () => {
  await browser?.close();
  await server?.stop();
});

for (const scheme of ["light", "dark"]) {
  for (const [hash, ready] of TABS) {
    test(`axe finds no serious violation in ${hash}, ${scheme}`, { skip: missing }, async () => {
      const { page } = await open(browser, server.url + hash, { dark: scheme === "dark" });
      await until(page, ready, (selector) => document.querySelector(selector) !== null, ready);
      await page.evaluate(AXE);
      const violations = await page.evaluate(async () => {
        const { violations } = await window.axe.run(document);
        return violations
          .filter(({ impact }) => impact === "serious" || impact === "critical")
          .map(({ id, nodes }) => `${id}: ${nodes.map(({ html }) => html.slice(0, 160)).slice(0, 3).join(" | ")}`);
      });
      assert.deepEqual(violations, []);
      await page.close();
    });
  }
}

for (const [hash, ready] of TABS) {
  test(`nothing exceeds a narrow screen in ${hash}`, { skip: missing }, async () => {
    const { page } = await open(browser, server.url + hash, { width: 360, height: 740 });
    await until(page, ready, (selector) => document.querySelector(selector) !== null, ready);
    const wide = await page.evaluate(() => {
      if (document.documentElement.scrollWidth <= innerWidth) return [];
      return [...document.querySelectorAll("body *")].filter((each) => each.getBoundingClientRect().right > innerWidth + 1).map((each) => each.outerHTML.slice(0, 100));
    });
    assert.deepEqual(wide, []);
    await page.close();
  });
}

test("the flame graph has names and a text alternative", { skip: missing }, async () => {
  const { page } = await open(browser, `${server.url}#profiles`);
  await until(page, "a profile", () => document.querySelector(".results:not([hidden]) canvas") !== null);
  const found = await page.evaluate(() => ({
    canvas: document.querySelector(".flame canvas").getAttribute("aria-label"),
    rows: Number(document.querySelector(".functions table").getAttribute("aria-rowcount")),
    live: document.querySelector(".flame-line").getAttribute("role"),
  }));
  assert.match(found.canvas, /Arrow keys/);
  assert.ok(found.rows > 50);
  assert.equal(found.live, "status");
  await page.close();
});
