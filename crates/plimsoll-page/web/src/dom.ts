// Elements of the page. Text goes in as text only, so that names from the program cannot become markup.

type Child = Node | string | null | undefined | false;
type Attributes = Record<string, string | number | boolean | undefined | ((event: never) => void)>;

/** Makes an element. Attributes that are functions listen to the event of that name. */
export function el<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  attributes: Attributes = {},
  ...children: Child[]
): HTMLElementTagNameMap[K] {
  const element = document.createElement(tag);
  apply(element, attributes);
  append(element, children);
  return element;
}

/** Makes an SVG element. */
export function svg<K extends keyof SVGElementTagNameMap>(
  tag: K,
  attributes: Attributes = {},
  ...children: Child[]
): SVGElementTagNameMap[K] {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  apply(element, attributes);
  append(element, children);
  return element;
}

function apply(element: Element, attributes: Attributes): void {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === false) continue;
    if (typeof value === "function") element.addEventListener(name, value as (event: Event) => void);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
}

function append(element: Element, children: Child[]): void {
  for (const child of children) {
    if (child !== null && child !== undefined && child !== false) element.append(child);
  }
}

/** Replaces the children of an element. */
export function fill(element: Element, ...children: Child[]): void {
  element.replaceChildren();
  append(element, children);
}

/** Replaces the text of an element, if it differs. */
export function setText(element: Element, text: string): void {
  if (element.textContent !== text) element.textContent = text;
}

/** A labelled choice. */
export function select(
  label: string,
  options: [value: string, text: string][],
  change: (value: string) => void,
): { root: HTMLElement; input: HTMLSelectElement; setOptions: (options: [string, string][]) => void } {
  const input = el("select", { change: () => change(input.value) });
  const setOptions = (list: [string, string][]) => {
    fill(input, ...list.map(([value, text]) => el("option", { value }, text)));
  };
  setOptions(options);
  return { root: el("label", { class: "field" }, el("span", {}, label), input), input, setOptions };
}

/** A labelled line of text; `change` runs after a pause in typing. */
export function textField(
  label: string,
  change: (value: string) => void,
  attributes: Attributes = {},
): { root: HTMLElement; input: HTMLInputElement } {
  let timer = 0;
  const input = el("input", {
    type: "search",
    autocomplete: "off",
    spellcheck: "false",
    ...attributes,
    input: () => {
      clearTimeout(timer);
      timer = setTimeout(() => change(input.value), 150);
    },
    // Before another control gets the focus, so that its change does not undo this one.
    change: () => {
      clearTimeout(timer);
      change(input.value);
    },
  });
  return { root: el("label", { class: "field" }, el("span", {}, label), input), input };
}

/** A check box. */
export function checkbox(label: string, change: (isOn: boolean) => void): { root: HTMLElement; input: HTMLInputElement } {
  const input = el("input", { type: "checkbox", change: () => change(input.checked) });
  return { root: el("label", { class: "check" }, input, label), input };
}

/** Saves bytes or text as a file of the browser's user. */
export function download(name: string, type: string, content: BlobPart): void {
  const url = URL.createObjectURL(new Blob([content], { type }));
  el("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}

/** The value of a colour of the style sheet, such as `--accent`. */
export function colour(name: string): string {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

/** Whether the browser prefers dark colours. */
export const dark = matchMedia("(prefers-color-scheme: dark)");
