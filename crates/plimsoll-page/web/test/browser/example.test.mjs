// A leak in a running program is found by the page alone. The program is the example `search` of the repository, which
// `PLIMSOLL_EXAMPLE` names: `cargo build -p plimsoll-examples --example search`.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { launch, missing, open, press, until, untilText } from "../support/browser.mjs";

const program = process.env.PLIMSOLL_EXAMPLE;
const skip = missing || (program === undefined ? "PLIMSOLL_EXAMPLE is not set" : false);

/** Starts the example. Returns the process and the address of its page. */
async function start() {
  const settings = "http=127.0.0.1:0,growth=50ms,heap_rate=64k";
  const child = spawn(program, ["--listen=127.0.0.1:0", "--leak=2000", fileURLToPath(new URL("..", import.meta.url))], {
    env: { ...process.env, PLIMSOLL: settings },
    stdio: ["ignore", "pipe", "inherit"],
  });
  let text = "";
  for await (const part of child.stdout) {
    text += part;
    const address = /profiles +(http:\/\/[^/]+)\//.exec(text)?.[1];
    if (address !== undefined) return { child, address };
  }
  throw new Error(`the example ended: ${text}`);
}

test("a leak in the example is found by the page alone", { skip }, async () => {
  const { child, address } = await start();
  const browser = await launch();
  try {
    const { page, errors, requests } = await open(browser, `${address}/debug/plimsoll/`);
    await until(page, "charts", () => document.querySelectorAll(".chart canvas").length >= 7);
    await press(page, "Growth");
    await until(page, "a leak", () => document.querySelector("#view .table .tag")?.textContent === "leaking", undefined, 240_000);
    const leaking = () => page.evaluate(() => [...document.querySelectorAll("#view .table tbody tr")].filter((row) => row.querySelector(".tag") !== null).map((row) => row.innerText));
    const rows = await leaking();
    assert.ok(rows.some((row) => row.includes("keep_forever") && row.includes("service.rs")), rows.join("\n"));
    await page.evaluate(() => [...document.querySelectorAll("#view .table tbody tr")].find((row) => row.innerText.includes("keep_forever")).querySelector("td.name button").click());
    await untilText(page, "search::service::measure");
    // The flame graph leads there, too.
    await press(page, "Profiles");
    await until(page, "a flame graph", () => document.querySelector(".results:not([hidden]) .flame")?.dataset.drawingTime !== undefined);
    await untilText(page, "keep_forever");
    assert.deepEqual(errors, []);
    for (const url of requests) assert.ok(/^(data|blob):/.test(url) || url.startsWith(`${address}/`), url);
  } finally {
    await browser.close();
    child.kill("SIGKILL");
  }
});
