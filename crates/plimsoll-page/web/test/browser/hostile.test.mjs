// Names from the program stay text, and damaged answers become messages.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { launch, missing, open, until, untilText } from "../support/browser.mjs";
import { MockServer } from "../support/server.mjs";

let server;
let browser;

before(async () => {
  if (missing) return;
  server = await new MockServer().start();
  server.nodes = 200;
  browser = await launch();
});

after(async () => {
  await browser?.close();
  await server?.stop();
});

const broken = (page) => page.evaluate(() => window.broken !== undefined || document.querySelector("main b b, main script, main img, h1 script") !== null);

test("hostile names appear as text in every tab", { skip: missing }, async () => {
  server.program = "<img src=x onerror=window.broken=1>\u001b[31m";
  for (const [hash, text] of [
    ["#overview", "account <b>cache</b>"],
    ["#profiles?kind=heap&search=onerror", "<img src=x onerror=window.broken=1><script>"],
    ["#profiles?kind=heap&label=tenant%3D%3Cb%3Ebold%3C%2Fb%3E&search=escape", "app::\u241b[31mred"],
    ["#threads?filter=onerror", "<img src=x onerror=window.broken=1><script>"],
    ["#growth", "app::\u241b[31mred"],
    ["#growth?source=window&from=1700000000&to=1700003600", "app::\u241b[31mred"],
  ]) {
    const { page, errors } = await open(browser, server.url + hash);
    await untilText(page, text);
    await untilText(page, "<img src=x onerror=window.broken=1>\u241b");
    assert.ok(!(await broken(page)), hash);
    assert.deepEqual(errors, [], hash);
    assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), hash);
    await page.close();
  }
  server.program = "search";
});

test("damaged answers become messages", { skip: missing }, async () => {
  const cases = [
    ["/debug/pprof/heap", { body: Buffer.from([0x1f, 0x8b, 8, 0, 0, 1, 2, 3]) }, "#profiles", "the gzip data are damaged"],
    ["/debug/pprof/heap", { body: "<script>window.broken=1</script>" }, "#profiles", "not a profile"],
    ["/debug/pprof/heap", { status: 500, body: "heap: <script>window.broken=1</script> failed\n" }, "#profiles", "heap: <script>window.broken=1</script> failed"],
    ["/debug/pprof/heap", { status: 404, body: "no reading is kept <b>\n" }, "#growth?source=window&from=1700000000&to=1700003600", "no difference for the window: no reading is kept <b>"],
    ["/debug/plimsoll/threads", { body: "[1,2" }, "#threads", "the answer is not JSON"],
    ["/debug/plimsoll/threads", { body: "{}" }, "#threads", "unknown format"],
    ["/debug/plimsoll/growth", { body: "{}" }, "#growth", "unknown format"],
    ["/debug/plimsoll/history", { body: "null" }, "#overview", "No connection"],
    ["/debug/plimsoll/history", { body: '{"version":9}' }, "#overview", "unknown format"],
    ["/debug/plimsoll/memory", { status: 501, body: "not on this system" }, "#overview", "not on this system"],
  ];
  for (const [path, answer, hash, text] of cases) {
    server.replaced.set(path, answer);
    const { page, errors } = await open(browser, server.url + hash);
    await untilText(page, text);
    assert.ok(!(await broken(page)));
    assert.deepEqual(errors.filter((error) => !error.includes("Failed to load resource")), [], text);
    await page.close();
    server.replaced.clear();
  }
});

test("the page works below a prefix", { skip: missing }, async () => {
  server.prefix = "/proxy/one";
  const { page, errors } = await open(browser, `${server.url}#profiles`);
  await untilText(page, "process 4711");
  await until(page, "a profile", () => !document.querySelector(".results").hidden);
  await page.evaluate(() => (location.hash = "#memory"));
  await untilText(page, "blocks in use, exact");
  assert.deepEqual(errors.filter((error) => !error.includes("fragmentation")), []);
  assert.ok(server.requests.filter((path) => !path.startsWith("/proxy/one/")).every((path) => path.startsWith("/debug/")));
  await page.close();
  server.prefix = "";
});
