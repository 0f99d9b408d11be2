// The screen of a view: its live rows, chart, history and metadata.

import { Chart } from "../chart/chart.js";
import { count, whole } from "../format/numbers.js";
import { RowStore } from "../rows/row-store.js";
import { ChangeStream } from "../server/change-stream.js";
import { messageOf } from "../server/errors.js";
import { hasOtherColumns } from "../server/stream-columns.js";
import { VirtualTable } from "../table/virtual-table.js";
import { h, put, say } from "../ui/dom.js";
import { screenHeader } from "../ui/screen-header.js";
import { ChangeSummary } from "./change-summary.js";
import { Freshness } from "./freshness.js";
import { showMetadata } from "./metadata.js";
import { TimeTravel } from "./time-travel.js";
import { ViewTabs } from "./view-tabs.js";

/** @typedef {import("./time-travel.js").PastRows} PastRows */
/** @typedef {import("../server/responses.d.ts").ViewRecord} ViewRecord */
/** @typedef {import("../server/change-stream.js").StreamEvent} StreamEvent */
/** @typedef {import("../server/change-stream.js").StreamState} StreamState */
/** @typedef {import("./view-tabs.js").Tab} Tab */

/**
 * What the page provides: `note` updates the list, `summary` informs screen readers, `lost` shows a
 * lost connection (null removes that), `reload` rebuilds the screen if the columns have changed.
 * @typedef {Object} ViewTools
 * @property {(name: string, snapshot: number | null, time: string | null, rows: number) => void} note
 * @property {(text: string) => void} summary
 * @property {(text: string) => void} say
 * @property {(text: string | null) => void} lost
 * @property {(view: ViewRecord) => void} reload
 */

const WIDE_COLUMNS = 6;
const UPDATE_MS = 200;
const HISTORY_MS = 60_000;

export class ViewScreen {
  #view;
  #tools;
  #table;
  #chart;
  #history;
  #rows;
  #stream;
  #freshness;
  #summary;
  #timers;
  /** @type {RowStore | null} */
  #past = null;
  #reloaded = false;
  #wasGone = false;
  #notice = h("p", { className: "notice", role: "status" });
  #shown = h("span", { className: "shown" });
  #banner = h("p", { className: "past-banner", role: "status" });
  #details = h("div", { className: "details", hidden: true });
  /** @type {HTMLInputElement} */
  #filter;
  #stage;
  #panel;

  /**
   * @param {HTMLElement} main
   * @param {ViewRecord} view
   * @param {ViewTools} tools
   */
  constructor(main, view, tools) {
    this.#view = view;
    this.#tools = tools;
    this.#table = this.#newTable();
    this.#chart = new Chart(view.columns, view.primary_key, view.chart);
    this.#history = new TimeTravel(view.name, {
      past: (past, which) => this.#showPast(past, which.snapshot),
      live: () => this.#showLive(),
      failed: (problem) => tools.say(messageOf(problem)),
    });
    this.#freshness = new Freshness(() => this.#history.past);
    this.#filter = h("input", {
      type: "search",
      placeholder: "Filter rows",
      "aria-label": "Filter the rows",
      spellcheck: false,
      autocomplete: "off",
      oninput: () => this.#table.filter(this.#filter.value),
    });
    this.#stage = this.#newStage();
    this.#panel = h(
      "div",
      { className: "panel", id: "panel", role: "tabpanel", "aria-labelledby": "tab-rows" },
      this.#banner,
      this.#stage,
      this.#details,
    );
    const tabs = new ViewTabs((tab) => this.#choose(tab));
    put(
      main,
      this.#head(),
      h("div", { className: "tab-line" }, tabs.element, this.#history.element),
      this.#panel,
    );
    this.#rows = new RowStore(view.columns, view.primary_key);
    this.#summary = new ChangeSummary((changes) => this.#announce(changes));
    this.#stream = new ChangeStream(view.name, {
      event: (event) => this.#take(event),
      progress: (rows) => say(this.#shown, `${count(rows, "row")} so far …`),
      state: (state, text) => this.#state(state, text),
      order: () => this.#table.serverOrder,
    });
    this.#timers = [
      setInterval(() => this.#freshness.update(), UPDATE_MS),
      setInterval(() => this.#history.past || this.#history.load(), HISTORY_MS),
    ];
  }

  close() {
    for (const timer of this.#timers) clearInterval(timer);
    this.#summary.close();
    this.#stream.close();
    this.#history.close();
    this.#table.close();
    this.#chart.close();
  }

  /**
   * Runs the action of a key; returns whether there is one.
   * @param {string} name
   */
  key(name) {
    if (name === "[") this.#history.step(-1);
    else if (name === "]") this.#history.step(1);
    else if (name === "l") this.#history.live();
    else if (name === "f") this.#filter.focus();
    else return false;
    return true;
  }

  /** Leaves the filter or the past; returns whether there was one to leave. */
  escape() {
    if (document.activeElement === this.#filter || this.#filter.value) {
      this.#filter.value = "";
      this.#filter.blur();
      this.#table.filter("");
      return true;
    }
    if (!this.#history.past) return false;
    this.#history.live();
    return true;
  }

  /** Which rows the server returns if there are more than the limit. */
  get #part() {
    const { kind, primary_key: key } = this.#view;
    return key.length || kind === "view" ? "first" : "newest";
  }

  #newTable() {
    const { name, title, columns, primary_key: key, kind } = this.#view;
    const order = key.length ? "key" : kind === "view" ? "columns" : "newest";
    const table = new VirtualTable(title ?? name, columns, key, order);
    table.onDraw = () => say(this.#shown, table.shown);
    return table;
  }

  #head() {
    const { name, title, description, kind, materialized, primary_key: key } = this.#view;
    const table = materialized ? "materialized view" : key.length ? "" : "append table";
    const keyText = key.length ? `key ${key.join(", ")}` : null;
    const what = kind === "view" ? "view" : table || null;
    const words = [title ? name : null, what, keyText, description];
    const before = h(
      "a",
      { className: "to-list", href: "#/views", "aria-label": "All views" },
      "‹ Views",
    );
    const after = [this.#freshness.element, this.#notice];
    return screenHeader(title ?? name, words.filter(Boolean).join(" · "), { before, after });
  }

  /** @param {Tab} tab */
  #choose(tab) {
    this.#panel.setAttribute("aria-labelledby", `tab-${tab}`);
    // The banner is about the rows: metadata are always the current ones.
    this.#stage.hidden = this.#banner.hidden = tab !== "rows";
    this.#details.hidden = tab === "rows";
    if (tab === "rows") return;
    put(this.#details);
    showMetadata(this.#details, this.#view.name, tab);
  }

  #newStage() {
    const rows = h(
      "section",
      { className: "rows", "aria-label": "Rows" },
      h("div", { className: "rows-head" }, this.#filter, this.#shown),
      this.#table.element,
    );
    const wide = this.#view.columns.length > WIDE_COLUMNS ? " wide" : "";
    const chart = this.#chart.possible ? this.#chart.element : null;
    return h("div", { className: `stage${wide}${chart ? "" : " bare"}` }, rows, chart);
  }

  /** @param {StreamEvent} event */
  #take(event) {
    const known = this.#view.columns.map((column) => column.name);
    // The table was altered or created again since the list was loaded.
    if (!this.#reloaded && hasOtherColumns(event, known)) {
      this.#reloaded = true;
      this.#tools.reload(this.#view);
    }
    const first = this.#freshness.snapshot === null;
    if (this.#isAnother(event)) {
      this.#history.reset();
      this.#chart.reset();
    }
    const counts = this.#rows.take(event);
    this.#freshness.note(event);
    this.#say("");
    this.#history.note(event.snapshot, event.time);
    if (!event.plain)
      this.#tools.note(this.#view.name, event.snapshot, event.time, this.#rows.size);
    this.#chart.note(this.#rows, event.time);
    if (!this.#history.past) {
      this.#table.show(this.#rows, event.type === "snapshot" ? null : counts);
      this.#chart.show(this.#rows);
    }
    if (!first) this.#summary.add(counts);
    this.#freshness.update();
  }

  /**
   * Whether the event begins another table, which has taken the view's name.
   * @param {StreamEvent} event
   */
  #isAnother({ type, snapshot }) {
    const was = this.#wasGone;
    this.#wasGone = false;
    return type === "snapshot" && (was || (snapshot ?? 0) < (this.#freshness.snapshot ?? 0));
  }

  /**
   * @param {PastRows} past
   * @param {number} snapshot
   */
  #showPast({ rows, cut }, snapshot) {
    this.#past ??= new RowStore(this.#view.columns, this.#view.primary_key);
    const began = this.#past.version === 0;
    this.#past.take({ type: "snapshot", plain: true, rows });
    this.#table.show(this.#past, began ? null : { added: 1 });
    this.#chart.show(this.#past);
    const some = cut ? ` Only its ${this.#part} ${whole(rows.length)} rows are shown.` : "";
    say(
      this.#banner,
      `This is snapshot ${snapshot}, not the live view. “Live” shows the newest rows.${some}`,
    );
    this.#panel.classList.add("past");
    this.#freshness.update();
  }

  #showLive() {
    this.#past = null;
    say(this.#banner, "");
    this.#panel.classList.remove("past");
    this.#table.show(this.#rows);
    this.#chart.show(this.#rows);
    this.#freshness.update();
  }

  /**
   * @param {StreamState} state
   * @param {string} text
   */
  #state(state, text) {
    this.#freshness.state = state;
    this.#tools.lost(state === "lost" ? text : null);
    if (state === "live") this.#say("");
    if (state === "gone") {
      this.#wasGone = true;
      this.#say(
        `${this.#view.name} no longer exists. These are its last rows; they update again when it is recreated.`,
      );
    } else if (state === "large")
      this.#say(
        `This view has too many rows for a stream. The page shows its ${this.#part} 500 rows and reloads them every 2 s; sort to choose others.`,
      );
  }

  /** @param {string} text */
  #say(text) {
    if (!text && this.#freshness.state === "large") return;
    say(this.#notice, text);
  }

  /** @param {string} changes */
  #announce(changes) {
    const { title, name } = this.#view;
    this.#tools.summary(`${title ?? name}: ${changes}; ${count(this.#rows.size, "row")} now.`);
  }
}
