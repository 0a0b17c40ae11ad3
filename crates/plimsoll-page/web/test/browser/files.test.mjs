// The page over files: of a server with several files, and as one document with its profile.

import assert from "node:assert/strict";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { fileURLToPath, pathToFileURL } from "node:url";
import { gunzipSync } from "node:zlib";
import { growth, history } from "../support/answers.mjs";
import { choose, launch, missing, open, press, until, untilText } from "../support/browser.mjs";
import { encodeGzip } from "../support/encode.mjs";
import { heap, HOSTILE } from "../support/profiles.mjs";
import { MockServer } from "../support/server.mjs";

const TIME = 1_700_000_000;
const PAGE = "/debug/plimsoll/";
const folder = mkdtempSync(join(tmpdir(), "plimsoll-page-"));
const profiles = [1, 2].map((scale) => encodeGzip(heap(500, { time: TIME, scale })));

let server;
let browser;

/** Returns a document of `dist` with a list of files. */
function document_(name, list) {
  const text = gunzipSync(readFileSync(fileURLToPath(new URL(`../../../dist/${name}`, import.meta.url)))).toString();
  const json = JSON.stringify({ profiles: list }).replaceAll("<", "\\u003c");
  return text.replace("</head>", () => `<script type="application/json" id="files">${json}</script></head>`);
}

before(async () => {
  if (missing) return;
  server = await new MockServer().start();
  const titles = [HOSTILE[0], "out/after.pb.gz", "app.postmortem"];
  const list = titles.map((title, index) => ({ name: String(index), title, hasHistory: index === 2, hasGrowth: index === 2 }));
  const put = (path, type, body) => server.replaced.set(PAGE + path, { type, body });
  put("", "text/html; charset=utf-8", document_("index.html.gz", list));
  [0, 1, 0].forEach((profile, index) => put(`profiles/${index}`, "application/octet-stream", profiles[profile]));
  const past = history({ now: TIME, started: TIME - 5000, pid: 99, program: "ended" });
  const { course, chance, mallocs, frees, ...site } = growth().sites[0];
  put("growth/2", "application/json", JSON.stringify({ ...growth(), sites: [site] }));
  put("history/2", "application/json", JSON.stringify(past));
  browser = await launch();
});

after(async () => {
  await browser?.close();
  await server?.stop();
  rmSync(folder, { recursive: true });
});

/** Runs a test with a page, and checks its console and its requests at the end. */
function withPage(name, hash, run) {
  test(name, { skip: missing }, async () => {
    const { page, errors, requests } = await open(browser, server.url + hash);
    await run(page);
    assert.deepEqual(errors, []);
    for (const url of requests) assert.ok(/^(data|blob):/.test(url) || url.startsWith(`${server.origin}/`), url);
    assert.equal(await page.evaluate(() => window.broken), undefined);
    await page.close();
  });
}

const tabs = (page) => page.evaluate(() => [...document.querySelectorAll("nav a")].map((link) => link.textContent));
const status = (page, text) => until(page, text, (wanted) => document.querySelector("main .note[role=status]")?.textContent.includes(wanted), text);

withPage("a file with a history has its charts, and the page does not poll", "", async (page) => {
  assert.deepEqual(await tabs(page), ["Overview", "Profiles", "Growth"]);
  await untilText(page, "process 99");
  await until(page, "charts", () => document.querySelectorAll(".chart canvas").length >= 8);
  await press(page, "all");
  assert.equal(server.requests.filter((path) => path === `${PAGE}history/2`).length, 1);
  assert.ok(!server.requests.some((path) => path.includes("/pprof/") || path.endsWith("/metrics")));
});

withPage("each file is shown, and compared with another one", "#profiles", async (page) => {
  await status(page, "samples");
  await press(page, "Keep as base");
  await choose(page, "File", "1");
  await status(page, "out/after.pb.gz: ");
  await until(page, "a base", () => [...document.querySelectorAll("button")].some((button) => button.textContent.startsWith("Compare with") && !button.disabled));
  await page.evaluate(() => [...document.querySelectorAll("button")].find((button) => button.textContent.startsWith("Compare with")).click());
  await status(page, "less the base");
  await untilText(page, "grown");
  await choose(page, "Values", "alloc_objects");
  await status(page, "change 0");
});

withPage("a post-mortem file has its earlier states", `#growth?file=2&from=${TIME - 600}&to=${TIME}`, async (page) => {
  await until(page, "a request for the window", () => performance.getEntriesByType("resource").some(({ name }) => name.includes("profiles/2?from=")));
  await press(page, "Profiles");
  await choose(page, "File", "2");
  await press(page, "Show the change in it");
  await status(page, "change");
});

withPage("a post-mortem file has its verdicts", "#growth", async (page) => {
  await untilText(page, "128 readings in 21 min 20 s.");
  await page.evaluate(() => document.querySelector("td.name button").click());
  await untilText(page, "app::main src/main.rs:7");
  await choose(page, "Show", "window");
  await untilText(page, "Select a window on a chart of the overview.");
});

test("one document has its profile, and requests nothing", { skip: missing }, async () => {
  const path = join(folder, "report.html");
  const entry = { name: "0", title: "heap.pb.gz", isDifference: true, sampleType: "alloc_space", data: Buffer.from(profiles[0]).toString("base64") };
  writeFileSync(path, document_("alone.html.gz", [entry]));
  const { page, errors, requests } = await open(browser, pathToFileURL(path).href);
  await status(page, "change");
  assert.deepEqual(await tabs(page), ["Profiles"]);
  assert.equal(await page.evaluate(() => [...document.querySelectorAll(".field")].find((field) => field.innerText.startsWith("Values")).querySelector("select").value), "alloc_space");
  await choose(page, "Values", "inuse_space");
  await until(page, "a flame graph", () => Number(document.querySelector(".results").dataset.nodes) > 100);
  assert.deepEqual(errors, []);
  assert.deepEqual(requests.filter((url) => !/^(data|blob):/.test(url)), [pathToFileURL(path).href]);
});
