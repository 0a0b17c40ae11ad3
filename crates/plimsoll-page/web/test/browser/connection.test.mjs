// Lost connections, restarts, a server without history, a hidden tab.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { launch, missing, open, until, untilText } from "../support/browser.mjs";
import { MockServer } from "../support/server.mjs";

let browser;

before(async () => {
  if (!missing) browser = await launch();
});

after(() => browser?.close());

async function withServer(run) {
  const server = await new MockServer().start();
  try {
    await run(server);
  } finally {
    await server.stop().catch(() => undefined);
  }
}

const connection = (page, kind) => until(page, kind, (wanted) => document.querySelector(".connection").dataset.kind === wanted, kind);

test("only new points are polled", { skip: missing }, () =>
  withServer(async (server) => {
    const { page } = await open(browser, server.url);
    await until(page, "polls", () => performance.getEntriesByType("resource").filter(({ name }) => name.includes("history?from=")).length >= 3);
    const polls = server.requests.filter((path) => path.includes("/history"));
    assert.equal(polls[0], "/debug/plimsoll/history");
    assert.ok(polls.slice(1).every((path) => /from=\d+/.test(path)), polls.join());
    await page.close();
  }));

test("a lost connection is shown and recovers", { skip: missing }, () =>
  withServer(async (server) => {
    const { page } = await open(browser, server.url);
    await connection(page, "live");
    await server.stop();
    await connection(page, "lost");
    await untilText(page, "No connection: the server does not answer.");
    await server.start();
    await connection(page, "live");
    assert.ok(await page.evaluate(() => document.querySelector(".notice").hidden));
    await page.close();
  }));

test("a restarted process begins a new history", { skip: missing }, () =>
  withServer(async (server) => {
    const { page } = await open(browser, `${server.url}#overview?range=all`);
    await untilText(page, "process 4711");
    await server.stop();
    await connection(page, "lost");
    server.restart();
    await server.start();
    await untilText(page, "The process restarted at");
    await untilText(page, "process 4712, up");
    assert.ok(server.requests.filter((path) => path === "/debug/plimsoll/history").length >= 2);
    await page.close();
  }));

test("without a history, the page shows metrics", { skip: missing }, () =>
  withServer(async (server) => {
    server.hasHistory = false;
    const { page } = await open(browser, server.url);
    await untilText(page, "No history: the history is off; set history=on");
    await until(page, "values", () => /in use \d+ MiB/.test(document.querySelector(".legend").textContent));
    await until(page, "the name", () => document.querySelector(".program").textContent === "search");
    server.hasHistory = true;
    await until(page, "the history", () => document.querySelector(".hint").hidden);
    await untilText(page, "process 4711");
    await page.close();
  }));

test("a hidden tab does not poll", { skip: missing }, () =>
  withServer(async (server) => {
    const { page } = await open(browser, server.url);
    await connection(page, "live");
    await page.evaluate(() => {
      Object.defineProperty(document, "hidden", { configurable: true, get: () => window.isHidden });
      window.isHidden = true;
      document.dispatchEvent(new Event("visibilitychange"));
    });
    await connection(page, "paused");
    // A request that was under way may still arrive: the next interval has none.
    const polls = () => server.requests.filter((path) => path.includes("/history")).length;
    await new Promise((resolve) => setTimeout(resolve, 300));
    const before = polls();
    await new Promise((resolve) => setTimeout(resolve, 2500));
    assert.equal(polls(), before);
    await page.evaluate(() => {
      window.isHidden = false;
      document.dispatchEvent(new Event("visibilitychange"));
    });
    await connection(page, "live");
    assert.ok(polls() > before);
    await page.close();
  }));
