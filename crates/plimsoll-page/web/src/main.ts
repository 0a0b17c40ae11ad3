// The page: its title bar, its tabs, and the view of the open tab.

import { files } from "./data/files.ts";
import { keptKind } from "./data/kinds.ts";
import { getText, address } from "./data/request.ts";
import { short } from "./data/text.ts";
import { age, clock } from "./data/units.ts";
import { el, setText } from "./dom.ts";
import { Live } from "./live.ts";
import { state, TABS, type Tab } from "./state.ts";
import { Growth } from "./views/growth.ts";
import { Memory } from "./views/memory.ts";
import { Overview } from "./views/overview.ts";
import { Profiles } from "./views/profiles.ts";
import { Threads } from "./views/threads.ts";
import type { View } from "./views/view.ts";

const TITLES: Record<Tab, string> = {
  overview: "Overview",
  profiles: "Profiles",
  memory: "Memory",
  threads: "Threads",
  growth: "Growth",
};

/** The tabs of the page. Files have no present state, and many have no history. */
const SHOWN = TABS.filter((tab) => {
  if (files === undefined || tab === "profiles") return true;
  return (tab === "overview" || tab === "growth") && keptKind("") !== "";
});

const live = new Live();
const views = new Map<Tab, View>();

function view(tab: Tab): View {
  let result = views.get(tab);
  if (result === undefined) {
    const make: Record<Tab, () => View> = {
      overview: () => new Overview(live),
      profiles: () => new Profiles(),
      memory: () => new Memory(),
      threads: () => new Threads(),
      growth: () => new Growth(() => live.history.started),
    };
    result = make[tab]();
    views.set(tab, result);
  }
  return result;
}

const program = el("b", { class: "program" }, "");
const facts = el("span", { class: "facts" });
const connection = el("span", { class: "connection", role: "status" });
const notice = el("p", { class: "notice", role: "alert", hidden: true });
const hint = el("p", { class: "hint", hidden: true });
const place = el("main", { id: "view", tabindex: -1 });
const tabs = new Map<Tab, HTMLAnchorElement>();

function build(): void {
  const bar = el("nav", { "aria-label": "Tabs" });
  for (const tab of SHOWN) {
    const link = el("a", { href: `#${tab}`, click: (event: MouseEvent) => openTab(event, tab) }, TITLES[tab]);
    tabs.set(tab, link);
    bar.append(link);
  }
  // The head of the page is in its markup, so that it is painted before this script runs.
  document.querySelector("header")!.append(program, facts, connection);
  document.body.append(
    bar,
    notice,
    hint,
    place,
  );
}

function openTab(event: MouseEvent, tab: Tab): void {
  if (event.ctrlKey || event.metaKey || event.shiftKey || event.button !== 0) return;
  event.preventDefault();
  state.open(tab);
}

/** Returns the open tab: the first one if the page lacks the requested one. */
function openTabName(): Tab {
  return SHOWN.find((tab) => tab === state.tab) ?? SHOWN[0]!;
}

/** Shows the open tab. */
function show(): void {
  const name = openTabName();
  const open = view(name);
  if (files !== undefined) void live.readFile(keptKind(state.get("file")));
  for (const [tab, link] of tabs) {
    link.href = state.link(tab);
    if (tab === name) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  if (place.firstChild !== open.root) place.replaceChildren(open.root);
  open.update();
  showTitle();
}

let commandName = "";

/** Reads the name of a program whose history has none. */
async function readCommand(): Promise<void> {
  if (commandName !== "") return;
  commandName = "program";
  try {
    const first = (await getText(address("../pprof/cmdline"))).split("\0")[0]!;
    commandName = first.split("/").at(-1)! || commandName;
  } catch {
    // The title then lacks the name.
  }
  showTitle();
}

/** Returns the title of a page over files. */
function fileTitle(): string {
  const count = files!.length;
  return count === 1 ? files![0]!.title.split("/").at(-1)! : `${count} files`;
}

function showTitle(): void {
  const { history, connection: link } = live;
  const name = files !== undefined ? fileTitle() : history.program || commandName;
  setText(program, short(name, 80));
  const parts: string[] = [];
  if (history.pid > 0) parts.push(`process ${history.pid}`);
  if (files === undefined && history.started > 0 && link.noHistory === "") parts.push(`up ${age(history.now - history.started)}`);
  setText(facts, parts.join(", "));
  document.title = name === "" ? "Plimsoll" : `${short(name, 80)} - ${TITLES[openTabName()]} - Plimsoll`;
}

function showConnection(): void {
  const { connection: link, history } = live;
  connection.dataset.kind = link.kind;
  const texts = { starting: "connecting", live: "live", paused: "paused", lost: "connection lost", ended: "" };
  setText(connection, texts[link.kind]);
  connection.hidden = texts[link.kind] === "";
  const isLost = link.kind === "lost";
  const isNew = link.restarted > 0 && Date.now() / 1000 - link.restarted < 600;
  notice.hidden = !isLost && !isNew;
  notice.classList.toggle("lost", isLost);
  if (isLost) {
    const since = history.now > 0 ? ` The last reading is of ${clock(history.now)}.` : "";
    setText(notice, `No connection: ${short(link.text, 300)}.${since}${files === undefined ? " The page tries again each second." : ""}`);
  } else if (isNew) setText(notice, `The process restarted at ${clock(link.restarted)}. The charts begin there.`);
  hint.hidden = link.noHistory === "";
  if (link.noHistory !== "") {
    setText(hint, `No history: ${short(link.noHistory, 300)}. The charts show readings since the page was opened.`);
    void readCommand();
  }
}

build();
if (!SHOWN.includes(state.tab)) state.open(SHOWN[0]!, {}, false);
state.listen(show);
live.listen(() => {
  showConnection();
  showTitle();
  if (["live", "ended"].includes(live.connection.kind)) view(openTabName()).tick?.();
});
show();
live.start();
