// The tabs of a view, with keyboard navigation.

import { h } from "../ui/dom.js";

/** @typedef {keyof typeof TABS} Tab */

const TABS = {
  rows: "Live",
  schema: "Schema",
  options: "Options",
  snapshots: "Snapshots",
  files: "Files",
  use: "Use",
};
const IDS = /** @type {Tab[]} */ (Object.keys(TABS));

export class ViewTabs {
  #chosen;
  #at = 0;
  #buttons;

  /** @param {(tab: Tab) => void} chosen */
  constructor(chosen) {
    this.#chosen = chosen;
    this.#buttons = IDS.map((id, at) =>
      h(
        "button",
        {
          type: "button",
          role: "tab",
          id: `tab-${id}`,
          "aria-controls": "panel",
          "aria-selected": String(at === 0),
          tabIndex: at ? -1 : 0,
          onclick: () => this.#choose(at),
        },
        TABS[id],
      ),
    );
    this.element = h(
      "div",
      {
        className: "tabs",
        role: "tablist",
        "aria-label": "About this view",
        onkeydown: (event) => this.#key(event),
      },
      this.#buttons,
    );
  }

  /** @param {KeyboardEvent} event */
  #key(event) {
    /** @type {{ [key: string]: number }} */
    const places = { ArrowRight: this.#at + 1, ArrowLeft: this.#at - 1, Home: 0, End: -1 };
    const to = places[event.key];
    if (to === undefined) return;
    event.preventDefault();
    const next = (to + IDS.length) % IDS.length;
    this.#choose(next);
    this.#buttons[next].focus();
  }

  /** @param {number} chosen */
  #choose(chosen) {
    this.#at = chosen;
    this.#buttons.forEach((button, at) => {
      button.setAttribute("aria-selected", String(at === chosen));
      button.tabIndex = at === chosen ? 0 : -1;
    });
    this.#chosen(IDS[chosen]);
  }
}
