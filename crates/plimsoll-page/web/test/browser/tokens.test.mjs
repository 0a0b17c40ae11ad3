// Tokens in a browser: the address of `plimsoll view`, and the password of a program. `PLIMSOLL_COMMAND` names the command,
// `PLIMSOLL_EXAMPLE` the example `search` of the repository.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { chmodSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { fileURLToPath } from "node:url";
import { launch, missing, open, until, untilText } from "../support/browser.mjs";
import { encodeGzip } from "../support/encode.mjs";
import { heap } from "../support/profiles.mjs";
import { MockServer } from "../support/server.mjs";

const command = process.env.PLIMSOLL_COMMAND;
const example = process.env.PLIMSOLL_EXAMPLE;
const withCommand = { skip: missing || (command === undefined ? "PLIMSOLL_COMMAND is not set" : false) };
const withExample = { skip: missing || (example === undefined ? "PLIMSOLL_EXAMPLE is not set" : false) };
const all = mkdtempSync(join(tmpdir(), "plimsoll-tokens-"));

let browser;
let elsewhere;

before(async () => {
  if (missing) return;
  browser = await launch();
  elsewhere = await new MockServer().start();
});

after(async () => {
  await browser?.close();
  await elsewhere?.stop();
  rmSync(all, { recursive: true });
});

/** Starts a program, and waits for the first match in its output. */
async function started(file, args, env, pattern) {
  const child = spawn(file, args, { env: { ...process.env, ...env }, stdio: ["ignore", "pipe", "inherit"] });
  let text = "";
  for await (const part of child.stdout) {
    text += part;
    const found = pattern.exec(text);
    if (found !== null) return { child, url: found[1] };
  }
  throw new Error(`${file} ended: ${text}`);
}

/** Starts `plimsoll view`. `opened` returns the address that it passes to the browser. */
async function view() {
  const folder = mkdtempSync(join(all, "view-"));
  const file = join(folder, "heap.pb.gz");
  writeFileSync(file, encodeGzip(heap(500, { time: 1_700_000_000, scale: 1 })));
  const record = join(folder, "opened");
  const tool = join(folder, "xdg-open");
  writeFileSync(tool, `#!/bin/sh\nprintf %s "$1" > ${record}.part && mv ${record}.part ${record}\n`);
  chmodSync(tool, 0o755);
  const env = { PATH: `${folder}:${process.env.PATH}`, DISPLAY: ":0" };
  const { child, url } = await started(command, ["view", file], env, /(http:\/\/\S+)/);
  const opened = async () => {
    for (;;) {
      try {
        return readFileSync(record, "utf8");
      } catch {
        await new Promise((resolve) => setTimeout(resolve, 10));
      }
    }
  };
  return { child, url, opened };
}

const flame = (page) => until(page, "a flame graph", () => Number(document.querySelector(".results")?.dataset.nodes) > 100);

test("the printed address of view has the page and all that it requests", withCommand, async () => {
  const { child, url } = await view();
  try {
    const { page, errors, requests } = await open(browser, url);
    await flame(page);
    assert.deepEqual(errors, []);
    assert.ok(requests.some((request) => request.endsWith("/profiles/0")));
    for (const request of requests) assert.ok(/^(data|blob):/.test(request) || request.startsWith(url), request);
    await page.close();
  } finally {
    child.kill("SIGKILL");
  }
});

test("the address that view passes to the browser leads to the page", withCommand, async () => {
  const { child, url, opened } = await view();
  try {
    const { page } = await open(browser, await opened());
    await flame(page);
    assert.equal(page.url().split("#")[0], url);
    await page.close();
  } finally {
    child.kill("SIGKILL");
  }
});

test("without the token, and from a page of another site, view shows nothing", withCommand, async () => {
  const { child, url } = await view();
  try {
    const page = await browser.newPage();
    const answer = await page.goto(new URL("/", url).href);
    assert.equal(answer.status(), 403);
    // Even with the token: a page on another host is another site.
    await page.goto(elsewhere.url.replace("127.0.0.1", "localhost"));
    const read = await page.evaluate(async (target) => {
      try {
        return await (await fetch(target)).text();
      } catch {
        return "refused";
      }
    }, `${url}profiles/0`);
    assert.equal(read, "refused");
    await page.close();
  } finally {
    child.kill("SIGKILL");
  }
});

test("the token of a program is a password for the page and all that it requests", withExample, async () => {
  const args = ["--listen=127.0.0.1:0", fileURLToPath(new URL("..", import.meta.url))];
  const settings = { PLIMSOLL: "http=127.0.0.1:0,http_token=s3cr3t" };
  const { child, url } = await started(example, args, settings, /profiles +(http:\/\/[^/]+)\//);
  try {
    const page = await browser.newPage();
    await page.authenticate({ username: "any", password: "s3cr3t" });
    const answer = await page.goto(`${url}/debug/plimsoll/`);
    assert.equal(answer.status(), 200);
    await untilText(page, "live");
    await until(page, "charts", () => document.querySelectorAll(".chart canvas").length >= 7);
    await page.close();
  } finally {
    child.kill("SIGKILL");
  }
});
