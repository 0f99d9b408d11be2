// Completes keywords, views and columns while a query is typed.

import { h, pen, put } from "../ui/dom.js";
import { KEYWORDS } from "./syntax-highlighting.js";

/** @typedef {import("../server/responses.d.ts").ViewRecord} ViewRecord */
/** @typedef {{ text: string, about: string }} Suggestion */

const WORD = /[\w.$`]+$/;
const LEAST = 2;
const MOST = 8;
const LINE_PX = 20;
const PAD_PX = 12;
const LIST = "completions";

export class Completion {
  #area;
  #views;
  #changed;
  /** @type {Suggestion[]} */
  #found = [];
  #at = 0;
  element = h("ul", {
    id: LIST,
    className: "completions",
    role: "listbox",
    "aria-label": "Completions",
    hidden: true,
  });

  /**
   * `views` returns the views that a query can read; `changed` is called after a completion.
   * @param {HTMLTextAreaElement} area
   * @param {() => ViewRecord[]} views
   * @param {() => void} changed
   */
  constructor(area, views, changed) {
    this.#area = area;
    this.#views = views;
    this.#changed = changed;
    area.setAttribute("aria-autocomplete", "list");
    area.addEventListener("input", () => this.#update(LEAST));
    area.addEventListener("blur", () => this.close());
    area.addEventListener("scroll", () => this.close());
  }

  get isOpen() {
    return !this.element.hidden;
  }

  close() {
    this.element.hidden = true;
    this.#area.removeAttribute("aria-activedescendant");
    this.#area.removeAttribute("aria-controls");
  }

  /**
   * Handles a key of the text area; returns whether it was for the completions.
   * @param {KeyboardEvent} event
   */
  key({ key, ctrlKey, metaKey }) {
    if (ctrlKey && key === " ") this.#update(0);
    else if (!this.isOpen || ctrlKey || metaKey) return false;
    else if (key === "ArrowDown") this.#move(1);
    else if (key === "ArrowUp") this.#move(-1);
    else if (key === "Tab" || key === "Enter") this.#take(this.#found[this.#at]);
    else if (key === "Escape") this.close();
    else return false;
    return true;
  }

  /** The word before the cursor. */
  get #word() {
    const { value, selectionStart } = this.#area;
    return WORD.exec(value.slice(0, selectionStart))?.[0] ?? "";
  }

  /** @param {number} least how many letters the word must have */
  #update(least) {
    const word = this.#word;
    this.#found = word.length < least ? [] : suggestions(word, this.#area.value, this.#views());
    if (!this.#found.length) return this.close();
    this.#at = 0;
    this.#place(word);
    this.#draw();
  }

  #draw() {
    put(
      this.element,
      this.#found.map(({ text, about }, at) =>
        h(
          "li",
          {
            id: `${LIST}-${at}`,
            role: "option",
            "aria-selected": String(at === this.#at),
            // Before the text area loses the focus.
            onmousedown: (event) => {
              event.preventDefault();
              this.#take(this.#found[at]);
            },
          },
          h("span", {}, text),
          h("span", { className: "soft" }, about),
        ),
      ),
    );
    this.element.hidden = false;
    this.#area.setAttribute("aria-controls", LIST);
    this.#area.setAttribute("aria-activedescendant", `${LIST}-${this.#at}`);
  }

  /** @param {string} word */
  #place(word) {
    const { value, selectionStart, scrollLeft, scrollTop, clientWidth } = this.#area;
    const lines = value.slice(0, selectionStart - word.length).split("\n");
    const measure = pen();
    measure.font = getComputedStyle(this.#area).font;
    const inLine = measure.measureText(lines[lines.length - 1]).width + PAD_PX - scrollLeft;
    const area = this.#area.getBoundingClientRect();
    const around = this.element.parentElement?.getBoundingClientRect() ?? area;
    const left = area.left - around.left + Math.max(0, Math.min(inLine, clientWidth - 240));
    const top = area.top - around.top + lines.length * LINE_PX + PAD_PX - scrollTop;
    this.element.style.left = `${left}px`;
    this.element.style.top = `${top}px`;
  }

  /** @param {number} by */
  #move(by) {
    this.#at = (this.#at + by + this.#found.length) % this.#found.length;
    this.#draw();
  }

  /** @param {Suggestion} suggestion */
  #take({ text }) {
    const { selectionStart } = this.#area;
    this.#area.setRangeText(text, selectionStart - this.#word.length, selectionStart, "end");
    this.close();
    this.#changed();
  }
}

/**
 * What a word can become: columns of the views that the text names, views, keywords.
 * @param {string} word
 * @param {string} text
 * @param {ViewRecord[]} views
 * @returns {Suggestion[]}
 */
function suggestions(word, text, views) {
  const plain = text.replaceAll("`", "").toLowerCase();
  const named = views.filter(({ name }) => plain.includes(name.toLowerCase()));
  const dot = word.lastIndexOf(".");
  const columns = named.flatMap((view) =>
    view.columns.map(({ name, type }) => ({ text: sqlName(name), about: type })),
  );
  const start = word.replaceAll("`", "").toLowerCase();
  // After an alias and a dot come columns.
  const column = start.slice(dot + 1);
  const prefix = word.slice(0, dot + 1);
  const found = [
    ...columns
      .filter(({ text: name }) => name.replaceAll("`", "").toLowerCase().startsWith(column))
      .map((each) => ({ ...each, text: prefix + each.text })),
    ...views
      .filter(({ name }) =>
        [name, name.slice(name.indexOf(".") + 1)].some((each) =>
          each.toLowerCase().startsWith(start),
        ),
      )
      .map(({ name }) => ({ text: name.split(".").map(sqlName).join("."), about: "view" })),
    ...[...KEYWORDS]
      .filter((each) => start && each.toLowerCase().startsWith(start))
      .map((each) => ({ text: each, about: "" })),
  ];
  const unique = [...new Map(found.map((each) => [each.text, each])).values()];
  return unique.filter((each) => each.text !== word).slice(0, MOST);
}

/**
 * A name, quoted if it needs to be.
 * @param {string} name
 */
export function sqlName(name) {
  const isPlain = /^[a-z_]\w*$/i.test(name) && !KEYWORDS.has(name.toUpperCase());
  return isPlain ? name : `\`${name.replaceAll("`", "``")}\``;
}
