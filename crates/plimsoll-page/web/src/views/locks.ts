// Who holds the locks that threads and tasks wait for, as chains: below a waiter are the locks that it holds itself.

import { short } from "../data/text.ts";
import { exact } from "../data/units.ts";
import { el } from "../dom.ts";

/** The waiters of a lock that are listed, and the depth of the chains. */
const MAX_WAITERS = 20;
const MAX_DEPTH = 30;

/** A thread or task. */
export interface Party {
  kind: "thread" | "task";
  id: number;
}

/** A lock, or what else threads and tasks wait for. */
export interface Held {
  object: "lock" | "end" | "message";
  name: string;
  owner: Party | null;
  deadlock: string | null;
  waiting: number;
  waiters: Party[];
}

/** Returns a key that is the same for the same thread or task. */
export function keyOf(party: Party): string {
  return `${party.kind}-${party.id}`;
}

/** The chains of waits. `link` makes the link of a thread or task. */
export function chains(locks: Held[], link: (party: Party) => HTMLElement): HTMLElement {
  const heldBy = new Map<string, Held[]>();
  const waiting = new Set<string>();
  for (const held of locks) {
    if (held.owner !== null) heldBy.set(keyOf(held.owner), [...(heldBy.get(keyOf(held.owner)) ?? []), held]);
    for (const waiter of held.waiters) waiting.add(keyOf(waiter));
  }
  const shown = new Set<Held>();
  const item = (held: Held, depth: number): HTMLElement => {
    shown.add(held);
    const listed = held.waiters.slice(0, MAX_WAITERS);
    const waiters = listed.map((waiter) => {
      const more = depth < MAX_DEPTH ? (heldBy.get(keyOf(waiter)) ?? []).filter((other) => !shown.has(other)) : [];
      return el("li", {}, link(waiter), more.length > 0 && el("ul", {}, ...more.map((other) => item(other, depth + 1))));
    });
    const rest = held.waiting - listed.length;
    if (rest > 0) waiters.push(el("li", { class: "note" }, `${exact(rest)} more`));
    return el("li", {}, ...head(held, link), el("ul", {}, ...waiters));
  };
  // Chains begin at owners that wait for nothing. In a cycle there is none: then at its first lock.
  const isFirst = (held: Held): boolean => held.owner === null || !waiting.has(keyOf(held.owner));
  const roots = locks.filter(isFirst).map((held) => item(held, 0));
  const circles: HTMLElement[] = [];
  for (const held of locks) {
    if (!shown.has(held)) circles.push(item(held, 0));
  }
  return el("ul", { class: "chains" }, ...circles, ...roots);
}

function head(held: Held, link: (party: Party) => HTMLElement): (HTMLElement | string | null)[] {
  const wait = `${exact(held.waiting)} ${held.waiting === 1 ? "waits" : "wait"}`;
  const tag = held.deadlock === null ? null : el("b", { class: "tag" }, short(held.deadlock, 60));
  const name = held.name === "" ? "unnamed lock" : short(held.name, 120);
  const owner = held.owner === null ? "an unknown owner" : link(held.owner);
  switch (held.object) {
    case "lock":
      return [tag, " ", el("b", {}, name), " held by ", owner, `, ${wait}`];
    case "end":
      return [tag, " end of ", owner, `, ${wait}`];
    case "message":
      return [tag, " message whose sender ", owner, ` made, ${wait}`];
  }
}
