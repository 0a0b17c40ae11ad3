// Every tab and its controls, without errors and without requests to other origins.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { choose, launch, missing, open, press, until, untilText } from "../support/browser.mjs";
import { MockServer } from "../support/server.mjs";

let server;
let browser;

before(async () => {
  if (missing) return;
  server = await new MockServer().start();
  server.nodes = 3000;
  browser = await launch();
});

after(async () => {
  await browser?.close();
  await server?.stop();
});

/** Runs a test with a page, and checks its console and its requests at the end. */
function withPage(name, hash, run, options = {}) {
  test(name, { skip: missing }, async () => {
    const { page, errors, requests } = await open(browser, server.url + hash, options);
    await run(page);
    const unexpected = errors.filter((text) => !/status of (404|500|501)/.test(text));
    assert.deepEqual(unexpected, []);
    for (const url of requests) assert.ok(/^(data|blob):/.test(url) || url.startsWith(`${server.origin}/`), url);
    await page.close();
  });
}

const hash = (page) => page.evaluate(() => location.hash);
const shown = (page) => until(page, "a flame graph", () => document.querySelector(".results:not([hidden]) .flame")?.dataset.drawingTime !== undefined);
const status = (page, text) => until(page, text, (wanted) => document.querySelector("main .note[role=status]")?.textContent.includes(wanted), text);
const line = (page) => page.evaluate(() => document.querySelector(".flame-line").textContent);

withPage("the title has program, process and uptime", "", async (page) => {
  await untilText(page, "process 4711, up 2 d 7 h");
  assert.match(await page.title(), /^search - Overview/);
});

withPage("the range changes the address and the charts", "#overview", async (page) => {
  await until(page, "charts", () => document.querySelectorAll(".chart canvas").length >= 8);
  for (const [text, range] of [["3 h", "3h"], ["2 d", "2d"], ["all", "all"], ["10 min", "10m"]]) {
    await press(page, text);
    assert.equal(await hash(page), `#overview?range=${range}`);
  }
  await untilText(page, "Owners of the resident memory now");
  await untilText(page, "heap: blocks in use");
});

withPage("dragging across a chart selects a window for all tabs", "#overview", async (page) => {
  await until(page, "charts", () => document.querySelectorAll(".chart canvas").length >= 8);
  const area = await page.evaluate(() => {
    const box = document.querySelector(".chart .u-over").getBoundingClientRect();
    return { x: box.x, y: box.y, width: box.width, height: box.height };
  });
  await page.mouse.move(area.x + area.width * 0.3, area.y + area.height / 2);
  await page.mouse.down();
  await page.mouse.move(area.x + area.width * 0.6, area.y + area.height / 2, { steps: 5 });
  await page.mouse.up();
  await until(page, "a window", () => /from=\d+.*&to=\d+/.test(location.hash));
  const values = new URLSearchParams((await hash(page)).split("?")[1]);
  const length = Number(values.get("to")) - Number(values.get("from"));
  assert.ok(length > 150 && length < 210, `${length} s`);
  await press(page, "Profiles");
  await shown(page);
  await press(page, "Show the change in it");
  await status(page, "change");
  assert.ok(server.requests.some((path) => path.startsWith("/debug/pprof/heap?from=") && path.includes(String(Number(values.get("from"))))));
  await press(page, "Profiles");
  await choose(page, "Profile", "block");
  await shown(page);
  await press(page, "Show the change in it");
  await status(page, "change");
  assert.ok(server.requests.some((path) => path.startsWith("/debug/pprof/block?from=")));
  await press(page, "Growth");
  await untilText(page, "Between the kept readings nearest to");
  await press(page, "Overview");
  await press(page, "Reset window");
  assert.ok(!(await hash(page)).includes("from="));
});

withPage("the browser's history leads back to the former view", "#overview", async (page) => {
  await press(page, "Threads");
  await untilText(page, "10,000 shown");
  await press(page, "Memory");
  await untilText(page, "blocks in use, exact");
  await page.goBack();
  await untilText(page, "10,000 shown");
  assert.equal(await hash(page), "#threads");
});

withPage("a window is typed without a pointer", "#overview", async (page) => {
  await page.evaluate(() => {
    document.querySelector("details.typed").open = true;
    const [from, to] = document.querySelectorAll("input[type=datetime-local]");
    from.value = "2026-01-02T03:04:05";
    to.value = "2026-01-02T04:04:05";
    to.dispatchEvent(new Event("change"));
  });
  const values = new URLSearchParams((await hash(page)).split("?")[1]);
  assert.equal(Number(values.get("to")) - Number(values.get("from")), 3600);
});

withPage("a link opens the profile at a maximum", "#overview", async (page) => {
  await untilText(page, "Profiles kept at maxima");
  await page.evaluate(() => document.querySelector(".maxima a").click());
  await shown(page);
  assert.match(await hash(page), /^#profiles\?.*reading=at/);
  assert.ok(server.requests.some((path) => path.startsWith("/debug/pprof/heap?at=")));
});

withPage("every kind of profile is shown, or the reason why it is absent", "#profiles", async (page) => {
  await shown(page);
  const kinds = await page.evaluate(() => [...document.querySelector(".field select").options].map((option) => option.value));
  assert.equal(kinds.length, 15);
  for (const kind of kinds) {
    await choose(page, "Profile", kind);
    if (["profile", "wall"].includes(kind)) {
      await choose(page, "Seconds", "2");
      await press(page, "Record");
    }
    await until(page, kind, () => (!document.querySelector(".results").hidden && document.querySelector(".note[role=status]").textContent.includes("samples")) || !document.querySelector(".error").hidden);
    assert.match(await hash(page), new RegExp(`kind=${kind}`));
  }
  await choose(page, "Profile", "fragmentation");
  await untilText(page, "the allocator does not report its pages <b>");
});

withPage("sample type, label, search, inversion and hidden frames are in the address", "#profiles", async (page) => {
  await shown(page);
  const whole = await page.evaluate(() => document.querySelector(".note[role=status]").textContent);
  await choose(page, "Values", "alloc_space");
  await until(page, "other values", (before) => document.querySelector(".note[role=status]").textContent !== before, whole);
  await choose(page, "Label", "tenant=acme");
  await until(page, "a label", () => location.hash.includes("label=tenant%3Dacme"));
  await choose(page, "Search functions", "parse");
  await untilText(page, "in stacks with a match");
  const click = (text) => page.evaluate((wanted) => [...document.querySelectorAll(".check")].find((each) => each.textContent === wanted).querySelector("input").click(), text);
  await click("Inverted");
  await click("Hide start-up and runtime frames");
  const link = await hash(page);
  for (const part of ["type=alloc_space", "label=tenant%3Dacme", "search=parse", "invert=1", "hide=0"]) assert.ok(link.includes(part), link);
  const text = await page.evaluate(() => document.querySelector(".note[role=status]").textContent);
  await page.reload();
  await shown(page);
  await untilText(page, "in stacks with a match");
  assert.equal((await page.evaluate(() => document.querySelector(".note[role=status]").textContent)).split(",")[0], text.split(",")[0]);
  assert.ok(await page.evaluate(() => document.querySelector(".check input").checked));
  assert.equal(await hash(page), link);
});

withPage("clicks and keys move and zoom in the flame graph", "#profiles", async (page) => {
  await shown(page);
  const area = await page.evaluate(() => {
    const box = document.querySelector(".flame canvas").getBoundingClientRect();
    return { x: box.x, y: box.y };
  });
  await page.mouse.move(area.x + 40, area.y + 30);
  await until(page, "a tip", () => !document.querySelector(".flame-tip").hidden);
  await page.mouse.click(area.x + 40, area.y + 30);
  await until(page, "a zoom", () => /zoom=[0-9a-f]+/.test(location.hash));
  const link = await hash(page);
  const first = await line(page);
  await until(page, "callers", () => document.querySelector(".functions .pair").hidden === false);
  await page.reload();
  await shown(page);
  assert.equal(await line(page), first);
  assert.equal(await hash(page), link);
  await press(page, "Reset zoom");
  assert.ok(!(await hash(page)).includes("zoom="));
  await page.focus(".flame canvas");
  await page.keyboard.press("ArrowDown");
  const down = await line(page);
  assert.notEqual(down.split(":")[0], "all");
  await page.keyboard.press("ArrowRight");
  assert.notEqual(await line(page), down);
  await page.keyboard.press("ArrowLeft");
  assert.equal(await line(page), down);
  await page.keyboard.press("Enter");
  assert.match(await hash(page), /zoom=/);
  await page.keyboard.press("ArrowUp");
  assert.match(await line(page), /^all/);
  await page.keyboard.press("Escape");
  assert.ok(!(await hash(page)).includes("zoom="));
});

withPage("the tables sort and lead to callers and callees", "#profiles", async (page) => {
  await shown(page);
  const column = (index) => page.evaluate((at) => [...document.querySelectorAll(".functions .table tbody tr:not(.space)")].slice(0, 5).map((row) => row.cells[at].textContent), index);
  await press(page, "Function");
  const names = await column(4);
  assert.deepEqual(names, [...names].sort((a, b) => (a < b ? -1 : 1)));
  await press(page, "Cum");
  assert.equal(await page.evaluate(() => document.querySelector("th[aria-sort]").textContent), "Cum");
  await page.evaluate(() => document.querySelector(".functions td.name button").click());
  await until(page, "callers", () => document.querySelectorAll(".pair tbody tr").length > 1);
  const callee = await page.evaluate(() => {
    const button = document.querySelector(".pair td.name button");
    button.click();
    return button.title;
  });
  await until(page, "the callee", (name) => [...document.querySelectorAll("h2")].some((head) => head.textContent === name), callee);
});

withPage("a base and a later reading are compared", "#profiles?kind=goroutine", async (page) => {
  await shown(page);
  await press(page, "Keep as base");
  await page.evaluate(() => [...document.querySelectorAll("button")].find((each) => each.textContent.startsWith("Compare with")).click());
  await status(page, "less the base");
  assert.match(await page.evaluate(() => document.querySelector("[role=status].note").textContent), /change 0,/);
});

withPage("a comparison reads the profile again and shows growth", "#profiles?kind=heap", async (page) => {
  await shown(page);
  await press(page, "Keep as base");
  server.cache.clear();
  server.nodes = 3600;
  await page.evaluate(() => [...document.querySelectorAll("button")].find((each) => each.textContent.startsWith("Compare with")).click());
  await status(page, "less the base");
  assert.match(await page.evaluate(() => document.querySelector(".crates").textContent), /grown \+[\d.]+ .iB/);
  await page.evaluate(() => [...document.querySelectorAll("button")].find((each) => each.textContent.startsWith("Compare with")).click());
  await until(page, "the profile alone", () => !document.querySelector(".note[role=status]").textContent.includes("less the base"));
  server.nodes = 3000;
  server.cache.clear();
});

withPage("a change over the next seconds is recorded, and can be stopped", "#profiles?kind=mutex", async (page) => {
  await shown(page);
  await choose(page, "Reading", "seconds");
  await choose(page, "Seconds", "3");
  await press(page, "Record");
  await status(page, "change");
  assert.ok(server.requests.includes("/debug/pprof/mutex?seconds=3"));
  await choose(page, "Seconds", "600");
  await press(page, "Record");
  await untilText(page, "Recording for 600 s");
  await press(page, "Stop");
  await untilText(page, "Stopped.");
});

withPage("profiles are saved as pprof, folded text and SVG", "#profiles", async (page) => {
  await shown(page);
  await page.evaluate(() => {
    window.saved = [];
    const make = URL.createObjectURL;
    URL.createObjectURL = (blob) => {
      blob.arrayBuffer().then((buffer) => window.saved.push({ type: blob.type, start: String.fromCharCode(...new Uint8Array(buffer).subarray(0, 400)), size: buffer.byteLength }));
      return make.call(URL, blob);
    };
  });
  for (const kind of ["pprof", "folded", "SVG"]) await press(page, kind);
  await until(page, "three files", () => window.saved.length === 3);
  const saved = await page.evaluate(() => window.saved.sort((a, b) => (a.type < b.type ? -1 : 1)));
  assert.deepEqual(saved.map(({ type }) => type), ["application/octet-stream", "image/svg+xml", "text/plain"]);
  assert.ok(saved[0].start.startsWith("\u001f\u008b"));
  assert.ok(saved[1].start.startsWith("<svg "));
  assert.match(saved[2].start, /^[^\n]+;[^\n]+ \d+\n/);
});

withPage("the memory tab shows holders, sizes, lifetimes and the absence of fragmentation", "#memory", async (page) => {
  for (const text of ["[heap: blocks in use]", "blocks in use, exact", "from 10 ms", "Not available: fragmentation: the allocator does not report its pages <b>"]) await untilText(page, text);
  await press(page, "Read again");
  await untilText(page, "resident at");
});

withPage("the list of threads filters, sorts and shows a stack", "#threads", async (page) => {
  await untilText(page, "10,000 shown; the first 10,000 of 100,003 read.");
  await untilText(page, "Deadlocks and leaks: 27");
  assert.ok(await page.evaluate(() => document.querySelectorAll(".split tbody tr").length < 60));
  await choose(page, "Filter", "connection 777");
  await until(page, "the filter", () => location.hash.includes("filter=connection"));
  await untilText(page, "11 shown");
  await page.evaluate(() => document.querySelector(".split td.name button").click());
  await untilText(page, "search::service::handle");
  assert.match(await hash(page), /entry=task-/);
  await choose(page, "Filter", "");
  await choose(page, "Show", "thread");
  await until(page, "threads", () => document.querySelector("[role=status].note").textContent.startsWith("20 shown"));
  await press(page, "Name");
  assert.match(await hash(page), /sort=name/);
  const link = await hash(page);
  await page.reload();
  await untilText(page, "20 shown");
  assert.equal(await hash(page), link);
  await untilText(page, "search::service::handle");
});

withPage("locks are shown with their owners, and what these wait for", "#threads", async (page) => {
  await untilText(page, "Locks with waiters: 6");
  const texts = await page.evaluate(() => [...document.querySelectorAll(".chains > li")].map((item) => item.innerText));
  assert.match(texts[0], /^probable deadlock accounts held by task connection 25, 1 waits\s+task connection 26\s+probable deadlock ledger held by task connection 26/);
  assert.match(texts[1], /^<img src=x onerror=alert\(1\)> held by an unknown owner, 4,000 wait/);
  assert.match(texts[1], /3,980 more$/);
  assert.match(texts[2], /^cache held by thread tokio-worker-3, 2 wait\s+thread tokio-worker-4\s+unnamed lock held by thread tokio-worker-4, 1 waits\s+thread tokio-worker-6/);
  assert.match(texts[3], /^end of thread tokio-worker-7, 1 waits/);
  assert.equal(texts.length, 4);
  await page.evaluate(() => document.querySelector(".chains button").click());
  assert.match(await hash(page), /entry=task-10000026/);
  await untilText(page, "search::service::handle");
});

withPage("a leak is shown with its rate, its course and its stack", "#growth", async (page) => {
  await untilText(page, "1 of 3 sites leak: +17.2 MiB per hour; the memory limit is reached in 2 h 1 min. 128 readings in 21 min 20 s.");
  assert.equal(await page.evaluate(() => document.querySelector(".table tbody td").textContent), "leaking");
  assert.match(await page.evaluate(() => document.querySelector(".sparkline").getAttribute("aria-label")), /^from .* to /);
  await page.evaluate(() => document.querySelector("td.name button").click());
  await untilText(page, "5,000 allocations and 0 frees");
  await untilText(page, "app::main src/main.rs:7");
});

withPage("growth is shown for a window and for readings of the page", "#growth?source=readings", async (page) => {
  await untilText(page, "No reading yet.");
  await press(page, "Take readings");
  await untilText(page, "One reading so far.");
  server.cache.clear();
  server.nodes = 3100;
  await untilText(page, "2 readings from", 30_000);
  await untilText(page, "3 readings from", 30_000);
  assert.match(await page.evaluate(() => document.querySelector(".sparkline").getAttribute("aria-label")), /^from .* to /);
  await press(page, "Stop");
  await untilText(page, "A site that grows is no proof of a leak");
  await choose(page, "Show", "window");
  await untilText(page, "Select a window on a chart of the overview.");
  server.nodes = 3000;
});
