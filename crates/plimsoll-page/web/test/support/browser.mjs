// A browser with a page that records errors and requests.

import { existsSync } from "node:fs";
import puppeteer from "puppeteer-core";

const CANDIDATES = [process.env.CHROMIUM, "/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"];
const executablePath = CANDIDATES.find((path) => path !== undefined && existsSync(path));

/** The reason for which browser tests cannot run; `false` if they can. */
export const missing = executablePath === undefined ? "no Chromium found; set CHROMIUM to its path" : false;

/** Starts a browser. */
export function launch() {
  return puppeteer.launch({ executablePath, headless: true, args: ["--no-sandbox", "--disable-gpu", "--hide-scrollbars"] });
}

/** Opens a page. `errors` collects messages of the console, `requests` the addresses. */
export async function open(browser, url, { width = 1280, height = 900, dark = false } = {}) {
  const page = await browser.newPage();
  const errors = [];
  const requests = [];
  page.on("console", (message) => {
    if (["error", "warn"].includes(message.type())) errors.push(`${message.text()} ${message.location().url ?? ""}`);
  });
  page.on("pageerror", (error) => errors.push(String(error)));
  page.on("request", (request) => requests.push(request.url()));
  await page.setViewport({ width, height });
  await page.emulateMediaFeatures([{ name: "prefers-color-scheme", value: dark ? "dark" : "light" }]);
  if (url !== undefined) await page.goto(url, { waitUntil: "load" });
  return { page, errors, requests };
}

/** Waits until the function returns a true value in the page, and returns it. */
export async function until(page, text, condition, argument, timeout = 20_000) {
  const end = Date.now() + timeout;
  for (;;) {
    const result = await page.evaluate(condition, argument);
    if (result) return result;
    if (Date.now() > end) throw new Error(`not within ${timeout} ms: ${text}`);
    await new Promise((resolve) => setTimeout(resolve, 25));
  }
}

/** Waits until the text occurs in the page. */
export function untilText(page, text, timeout) {
  return until(page, `the text ${text}`, (wanted) => document.body.innerText.includes(wanted), text, timeout);
}

/** Presses the button with that text. */
export async function press(page, text) {
  await page.evaluate((wanted) => {
    const button = [...document.querySelectorAll("button, nav a")].find((each) => each.textContent.trim() === wanted && each.offsetParent !== null);
    if (button === undefined) throw new Error(`no button ${wanted}`);
    button.click();
  }, text);
}

/** Chooses an option of the labelled list. */
export async function choose(page, label, value) {
  await page.evaluate(
    (wanted, option) => {
      const field = [...document.querySelectorAll(".field")].find((each) => each.querySelector("span").textContent === wanted && each.offsetParent !== null);
      const input = field.querySelector("select, input");
      input.value = option;
      input.dispatchEvent(new Event(input.tagName === "SELECT" ? "change" : "input", { bubbles: true }));
      if (input.tagName === "INPUT") input.dispatchEvent(new Event("change", { bubbles: true }));
    },
    label,
    value,
  );
}
