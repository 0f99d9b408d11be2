// The list of views with their age and row counts, polled, with a search.

import { count } from "../format/numbers.js";
import { ago } from "../format/times.js";
import { messageOf } from "../server/errors.js";
import { json } from "../server/requests.js";
import { serverNow } from "../server/server-clock.js";
import { h, put, say } from "../ui/dom.js";
import { command, empty, skeleton } from "../ui/placeholder.js";
import { byDatabase, isAuxiliaryTable, sortKey, tableName } from "./view-order.js";

/** @typedef {import("../server/responses.d.ts").ViewRecord} ViewRecord */
/** @typedef {import("../server/responses.d.ts").ViewsResponse} ViewsResponse */

/**
 * The elements of a view in the list.
 * @typedef {Object} Item
 * @property {HTMLElement} dot
 * @property {HTMLElement} name
 * @property {HTMLElement} rows
 * @property {HTMLElement} age
 * @property {HTMLAnchorElement} link
 */

const EVERY_MS = 4000;
const FRESH_MS = 10_000;
const WARM_MS = 300_000;

export class ViewList {
  /** @type {ViewRecord[]} */
  #views = [];
  /** @type {Map<string, Item>} */
  #items = new Map();
  /** @type {string | null} */
  #open = null;
  /** @type {string | null} */
  #etag = null;
  #loaded = false;
  /** @type {string | null} */
  #drawn = null;
  #changed;
  #list = h("div", { className: "list" }, skeleton(12));

  /**
   * `changed` is called after each load of the list.
   * @param {HTMLElement} side
   * @param {() => void} changed
   */
  constructor(side, changed) {
    this.#changed = changed;
    this.search = h("input", {
      type: "search",
      placeholder: "Search",
      "aria-label": "Search the views",
      spellcheck: false,
      autocomplete: "off",
      oninput: () => this.#draw(),
    });
    put(
      side,
      h("div", { className: "search" }, this.search, h("kbd", { "aria-hidden": "true" }, "/")),
      this.#list,
    );
    this.search.addEventListener("keydown", (event) => this.#searching(event));
    /** Resolves after the first load, when the user has given a token if one is required. */
    this.ready = this.load();
    setInterval(() => document.hidden || this.load(), EVERY_MS);
    setInterval(() => this.#updateAges(), 1000);
  }

  get names() {
    return this.#found().map((view) => view.name);
  }

  /** All views but the tables that queries keep for themselves; null until the list is loaded. */
  get own() {
    return this.#loaded ? this.#views.filter(({ name }) => !isAuxiliaryTable(name)) : null;
  }

  get loaded() {
    return this.#loaded;
  }

  /** @param {string} name */
  find(name) {
    return this.#views.find((view) => view.name === name) ?? null;
  }

  /**
   * Marks the view that is open.
   * @param {string | null} name
   */
  open(name) {
    this.#open = name;
    for (const [each, item] of this.#items) mark(item.link, each === name);
  }

  /**
   * Moves the focus to a view in the list, if it is there.
   * @param {string | null} name
   */
  focus(name) {
    if (name !== null) this.#items.get(name)?.link.focus();
  }

  /**
   * Takes over a snapshot of the open view, so that the list does not lag behind it.
   * @param {string} name
   * @param {number | null} snapshot
   * @param {string | null} time
   * @param {number} rows
   */
  note(name, snapshot, time, rows) {
    const view = this.find(name);
    if (!view) return;
    Object.assign(view, { snapshot, time, rows });
    this.#fill(view);
  }

  /**
   * Moves the focus by some views.
   * @param {number} by
   */
  move(by) {
    const names = this.names;
    if (!names.length) return;
    const focused = names.findIndex(
      (name) => this.#items.get(name)?.link === document.activeElement,
    );
    const opened = names.indexOf(this.#open ?? "");
    // From outside the list, a step in either direction leads to the first view.
    const at = focused >= 0 ? focused : opened >= 0 || by > 0 ? opened : 0;
    const to = Math.min(names.length - 1, Math.max(0, at + by));
    this.#items.get(names[to])?.link.focus();
  }

  async load() {
    try {
      const response = await json("views", { etag: this.#etag });
      const found = /** @type {ViewsResponse | null} */ (response);
      this.#loaded = true;
      if (found) {
        this.#etag = found.etag ?? null;
        this.#views = found.views;
        this.#draw();
      }
      this.#changed();
    } catch (problem) {
      if (!this.#loaded) put(this.#list, h("p", { className: "hint" }, messageOf(problem)));
    }
  }

  /** @param {KeyboardEvent} event */
  #searching(event) {
    if (event.key === "Enter" && this.names.length)
      location.hash = `#/views/${encodeURIComponent(this.names[0])}`;
    else if (event.key === "ArrowDown") this.move(1);
    else if (event.key === "Escape" && this.search.value) {
      this.search.value = "";
      this.#draw();
      event.stopPropagation();
    }
  }

  /** The views that match the search, in the order of the list. */
  #found() {
    const words = this.search.value.toLowerCase().split(/\s+/).filter(Boolean);
    const all = this.#views.filter((view) =>
      words.every((word) => `${view.name} ${view.title ?? ""}`.toLowerCase().includes(word)),
    );
    return all.sort((one, other) => (sortKey(one) < sortKey(other) ? -1 : 1));
  }

  #draw() {
    const found = this.#found();
    for (const view of found) this.#item(view);
    const drawn = found.map((view) => view.name).join("\n") + this.search.value;
    if (drawn === this.#drawn) return;
    this.#drawn = drawn;
    const focused = [...this.#items].find(([, item]) => item.link === document.activeElement)?.[0];
    const parts = [...byDatabase(found)].map(([name, views]) =>
      h(
        "section",
        { "aria-label": name },
        h("h2", {}, name),
        h(
          "ul",
          {},
          views.map((view) => h("li", {}, this.#item(view))),
        ),
      ),
    );
    if (!parts.length) parts.push(this.#nothing());
    put(this.#list, parts);
    if (focused) this.#items.get(focused)?.link.focus();
  }

  #nothing() {
    if (this.search.value)
      return h("p", { className: "hint" }, `No view matches “${this.search.value}”.`);
    return empty(
      "No tables yet",
      "Tables appear here as soon as a script creates one:",
      command("streamhouse run script.sql \\\n  --warehouse …"),
    );
  }

  /** @param {ViewRecord} view */
  #item(view) {
    let item = this.#items.get(view.name);
    if (!item) {
      const parts = {
        dot: h("span", { className: "dot", "aria-hidden": "true" }),
        name: h("span", { className: "name" }),
        rows: h("span", { className: "count" }),
        age: h("span", { className: "age" }),
      };
      item = {
        ...parts,
        link: h(
          "a",
          { href: `#/views/${encodeURIComponent(view.name)}` },
          parts.dot,
          parts.name,
          " ",
          parts.rows,
          " ",
          parts.age,
        ),
      };
      this.#items.set(view.name, item);
    }
    mark(item.link, view.name === this.#open);
    item.link.classList.toggle("beside", isAuxiliaryTable(view.name));
    this.#fill(view);
    return item.link;
  }

  /** @param {ViewRecord} view */
  #fill(view) {
    const item = this.#items.get(view.name);
    if (!item) return;
    say(item.name, view.title ?? tableName(view.name));
    item.link.title = view.title ? view.name : (view.description ?? view.name);
    say(item.rows, view.error ? "error" : view.rows === null ? "" : count(view.rows, "row"));
    const ms = view.time ? serverNow() - Date.parse(view.time) : null;
    const age = ms === null ? "empty" : ago(Math.round(ms / 1000) * 1000).replace(".0 s", " s");
    say(item.age, age);
    const labels = [item.name.textContent, view.error ? "error: cannot be read" : null];
    if (view.rows !== null) labels.push(count(view.rows, "row"));
    labels.push(age);
    // Not while focused: screen readers would read each change.
    if (document.activeElement !== item.link) label(item.link, labels.filter(Boolean).join(", "));
    item.dot.dataset.fresh =
      ms === null ? "none" : ms < FRESH_MS ? "now" : ms < WARM_MS ? "warm" : "old";
  }

  #updateAges() {
    for (const view of this.#views) this.#fill(view);
  }
}

/**
 * @param {Element} link
 * @param {boolean} open
 */
function mark(link, open) {
  if (open) link.setAttribute("aria-current", "page");
  else link.removeAttribute("aria-current");
}

/**
 * @param {Element} link
 * @param {string} text
 */
function label(link, text) {
  if (link.getAttribute("aria-label") !== text) link.setAttribute("aria-label", text);
}
