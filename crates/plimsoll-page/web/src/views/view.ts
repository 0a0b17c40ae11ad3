// A tab of the page.

/** A tab: its element, and its reactions. */
export interface View {
  readonly root: HTMLElement;
  /** The state changed, or the tab opened. */
  update(): void;
  /** The history has a new reading. Runs only while the tab is open. */
  tick?(): void;
}
