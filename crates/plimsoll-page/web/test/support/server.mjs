// A server that stands for a program with Plimsoll: the files of `dist` under the policy, and synthetic data.

import { readFileSync } from "node:fs";
import { createServer } from "node:http";
import { fileURLToPath } from "node:url";
import { growth, history, metrics, owners, threads } from "./answers.mjs";
import { encodeGzip } from "./encode.mjs";
import { heap, lifetimes, memory, other } from "./profiles.mjs";

const DIST = fileURLToPath(new URL("../../../dist/", import.meta.url));
export const POLICY =
  "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data: blob:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
const FILES = {
  "": ["index.html.gz", "text/html; charset=utf-8"],
  "page.js": ["page.js.gz", "text/javascript; charset=utf-8"],
  "page.css": ["page.css.gz", "text/css; charset=utf-8"],
};

/** A program under test. */
export class MockServer {
  /** A path before that of every page. */
  prefix = "";
  program = "search";
  pid = 4711;
  hasHistory = true;
  nodes = 50_000;
  entries = 10_000;
  total = 100_003;
  started = Date.now() / 1000 - 200_000;
  /** The paths of all requests, with their queries. */
  requests = [];
  /** Answers in place of the synthetic ones, by path: status and body. */
  replaced = new Map();
  cache = new Map();
  server = undefined;
  port = 0;

  async start() {
    this.server = createServer((request, response) => this.answer(request, response));
    await new Promise((resolve) => this.server.listen(this.port, "127.0.0.1", resolve));
    this.port = this.server.address().port;
    return this;
  }

  get origin() {
    return `http://127.0.0.1:${this.port}`;
  }

  get url() {
    return `${this.origin}${this.prefix}/debug/plimsoll/`;
  }

  async stop() {
    this.server?.closeAllConnections();
    await new Promise((resolve) => this.server.close(resolve));
  }

  /** Makes the process another one. */
  restart() {
    this.started = Date.now() / 1000 - 1;
    this.pid += 1;
  }

  answer(request, response) {
    const url = new URL(request.url, this.origin);
    this.requests.push(url.pathname + url.search);
    const path = url.pathname.startsWith(this.prefix) ? url.pathname.slice(this.prefix.length) : "/outside";
    const replaced = this.replaced.get(path);
    if (replaced !== undefined) return this.send(response, replaced.status ?? 200, replaced.type ?? "text/plain; charset=utf-8", replaced.body);
    if (path.startsWith("/debug/plimsoll/")) return this.plimsoll(path.slice("/debug/plimsoll/".length), url.searchParams, response);
    if (path.startsWith("/debug/pprof/")) return this.pprof(path.slice("/debug/pprof/".length), url.searchParams, response);
    if (path === "/metrics") return this.send(response, 200, "text/plain; version=0.0.4", metrics({ now: Date.now() / 1000, started: this.started }));
    return this.send(response, 404, "text/plain", "404 page not found\n");
  }

  send(response, status, type, body, headers = {}) {
    response.writeHead(status, { "Content-Type": type, "X-Content-Type-Options": "nosniff", "Content-Security-Policy": POLICY, ...headers });
    response.end(body);
  }

  json(response, value) {
    this.send(response, 200, "application/json", JSON.stringify(value));
  }

  plimsoll(name, query, response) {
    const file = FILES[name];
    if (file !== undefined) return this.send(response, 200, file[1], readFileSync(DIST + file[0]), { "Content-Encoding": "gzip" });
    const number = (key) => (query.has(key) ? Number(query.get(key)) : undefined);
    const now = Date.now() / 1000;
    switch (name) {
      case "history":
        if (!this.hasHistory) return this.send(response, 404, "text/plain", "the history is off; set history=on\n");
        return this.json(response, history({ now, started: this.started, pid: this.pid, program: this.program, from: number("from"), to: number("to") }));
      case "growth":
        return this.json(response, growth());
      case "threads":
        return this.json(response, threads(this.entries, this.total));
      case "memory":
        return this.json(response, owners());
      default:
        return this.send(response, 404, "text/plain", "404 page not found\n");
    }
  }

  pprof(name, query, response) {
    const key = `${name}?${query.get("from") ?? ""}&${query.get("at") ?? ""}`;
    const time = Math.floor(Date.now() / 1000);
    const seconds = Number(query.get("seconds") ?? 0);
    if (name === "cmdline") return this.send(response, 200, "text/plain", "/usr/bin/search\0--port\0");
    if (name === "fragmentation") return this.send(response, 404, "text/plain", "fragmentation: the allocator does not report its pages <b>\n");
    const make = () => {
      if (name === "heap") return heap(this.nodes, { time, scale: query.has("from") ? 0.05 : 1 });
      if (name === "lifetimes") return lifetimes(time);
      if (name === "memory") return memory(time);
      return other(name, { time, seconds });
    };
    if (!this.cache.has(key)) {
      const profile = make();
      this.cache.set(key, profile === undefined ? undefined : encodeGzip(profile));
    }
    const bytes = this.cache.get(key);
    if (bytes === undefined) return this.send(response, 404, "text/plain", `Unknown profile: ${name}\n`);
    const send = () => this.send(response, 200, "application/octet-stream", bytes);
    // A recording of the server under test takes a tenth of the time.
    if (seconds > 0) setTimeout(send, seconds * 100);
    else send();
    return undefined;
  }
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const server = new MockServer();
  server.port = Number(process.argv[2] ?? 8089);
  await server.start();
  console.log(server.url);
}
