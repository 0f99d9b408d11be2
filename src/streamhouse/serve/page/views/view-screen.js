// The screen of a view: its live rows, chart, history and metadata.

import { Chart } from "../chart/chart.js";
import { kindOf } from "../format/column-values.js";
import { count, whole } from "../format/numbers.js";
import { RowStore } from "../rows/row-store.js";
import { wordsCondition } from "../rows/words-condition.js";
import { ChangeStream } from "../server/change-stream.js";
import { messageOf } from "../server/errors.js";
import { token } from "../server/requests.js";
import { hasOtherColumns } from "../server/stream-columns.js";
import { VirtualTable } from "../table/virtual-table.js";
import { h, put, say } from "../ui/dom.js";
import { screenHeader } from "../ui/screen-header.js";
import { ChangeSummary } from "./change-summary.js";
import { Freshness } from "./freshness.js";
import { showMetadata } from "./metadata.js";
import { TimeTravel } from "./time-travel.js";
import { showUsage } from "./usage.js";
import { ViewTabs } from "./view-tabs.js";

/** @typedef {import("./time-travel.js").PastRows} PastRows */
/** @typedef {import("../server/responses.d.ts").ViewRecord} ViewRecord */
/** @typedef {import("../server/change-stream.js").StreamEvent} StreamEvent */
/** @typedef {import("../server/change-stream.js").StreamState} StreamState */
/** @typedef {import("../server/row-part.js").Part} Part */
/** @typedef {import("../server/row-part.js").RowCounts} RowCounts */
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
const TYPING_MS = 250;
const NOTHING = "No rows yet. They appear here as soon as they are written.";

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
  /** @type {import("./time-travel.js").Snapshot | null} */
  #pastAt = null;
  #reloaded = false;
  #wasGone = false;
  #wasLarge = false;
  /** How many rows a large view has: "of 1,000,000 rows". */
  #counts = "rows, counting …";
  /** @type {RowCounts | null} */
  #liveCounts = null;
  #typing = 0;
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
      past: (past, which) => this.#showPast(past, which),
      live: () => this.#showLive(),
      failed: (problem) => tools.say(messageOf(problem)),
      part: () => this.#pastPart,
    });
    this.#freshness = new Freshness(() => this.#history.past);
    this.#filter = h("input", {
      type: "search",
      placeholder: "Filter rows",
      "aria-label": "Filter the rows",
      spellcheck: false,
      autocomplete: "off",
      oninput: () => this.#filtered(),
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
      part: () => this.#part,
      counted: (counts) => {
        this.#liveCounts = counts;
        if (!this.#history.past) this.#counted(counts);
      },
    });
    this.#timers = [
      setInterval(() => this.#freshness.update(), UPDATE_MS),
      setInterval(() => this.#history.past || this.#history.load(), HISTORY_MS),
    ];
  }

  close() {
    for (const timer of this.#timers) clearInterval(timer);
    clearTimeout(this.#typing);
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
      this.#filtered();
      return true;
    }
    if (!this.#history.past) return false;
    this.#history.live();
    return true;
  }

  /**
   * Whether the server reads, filters, orders and groups the rows, since they are too many.
   * @returns {boolean}
   */
  get #isLarge() {
    return this.#freshness.state === "large";
  }

  /**
   * The part of a past snapshot that is shown; null for all rows.
   * @returns {Part | null}
   */
  get #pastPart() {
    return this.#isLarge ? this.#part : null;
  }

  /**
   * The part of a large view that is shown.
   * @returns {Part}
   */
  get #part() {
    const { columns, primary_key: key, kind } = this.#view;
    const words = this.#filter.value.toLowerCase().split(/\s+/).filter(Boolean);
    const filter = wordsCondition(columns, words);
    // With a filter, the server does not return the newest rows of a table without a key by itself.
    const newest = filter && !key.length && kind === "table" ? this.#newestOrder : "";
    const { serverOrder } = this.#table;
    return { order: serverOrder || newest, filter, newestLast: !serverOrder && newest !== "" };
  }

  /** The parameter `order` of the newest rows by the first time column; empty without one. */
  get #newestOrder() {
    const time = this.#view.columns.find(({ type }) => kindOf(type) === "time");
    return time ? `-${time.name}` : "";
  }

  /** Which rows of a large view are shown. */
  get #which() {
    const { kind, primary_key: key } = this.#view;
    const { serverOrder } = this.#table;
    if (serverOrder) return serverOrder === this.#newestOrder ? "newest" : "first";
    return key.length || kind === "view" ? "first" : "newest";
  }

  #filtered() {
    clearTimeout(this.#typing);
    if (!this.#isLarge) this.#table.filter(this.#filter.value);
    else this.#typing = setTimeout(() => this.#reread(), TYPING_MS);
  }

  /** Reads another part of a large view. */
  #reread() {
    if (!this.#isLarge) return;
    this.#stream.poll();
    this.#history.again();
  }

  /** @param {RowCounts} counts */
  #counted({ matching, total, uncounted }) {
    this.#counts =
      matching === null || total === null
        ? `of an unknown number: ${uncounted}`
        : this.#filter.value.trim()
          ? `of ${whole(matching)} that match, ${count(total, "row")} in all`
          : `of ${count(total, "row")}`;
    this.#sayShown();
  }

  #sayShown() {
    const rows = this.#history.past ? this.#past : this.#rows;
    say(
      this.#shown,
      this.#isLarge ? `${whole(rows?.size ?? 0)} ${this.#counts}` : this.#table.shown,
    );
  }

  /** What the chart draws: a large view's rows are grouped by the server. */
  #drawChart() {
    const past = this.#history.past && this.#past ? this.#pastAt : null;
    const rows = past ? (this.#past ?? this.#rows) : this.#rows;
    const snapshot = past ? past.snapshot : this.#freshness.snapshot;
    const server = this.#isLarge
      ? { view: this.#view.name, snapshot, filter: this.#part.filter }
      : null;
    const until = past ? Date.parse(past.time ?? "") || null : null;
    this.#chart.show(rows, { until, server });
  }

  #newTable() {
    const { name, title, columns, primary_key: key, kind } = this.#view;
    const order = key.length ? "key" : kind === "view" ? "columns" : "newest";
    const table = new VirtualTable(title ?? name, columns, key, order);
    table.nothing = NOTHING;
    table.onDraw = () => this.#sayShown();
    table.onSort = () => this.#reread();
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
    if (tab === "use") showUsage(this.#details, this.#view, token() !== null);
    else showMetadata(this.#details, this.#view.name, tab);
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
    // Another order or filter of a large view: nothing has changed, so nothing is marked.
    if (event.other) {
      this.#rows = new RowStore(this.#view.columns, this.#view.primary_key);
      this.#table.nothing = this.#filter.value.trim() ? "No row matches the filter." : NOTHING;
      this.#counts = "rows, counting …";
      this.#liveCounts = null;
    }
    const counts = this.#rows.take(event);
    this.#freshness.note(event);
    this.#say("");
    this.#history.note(event.snapshot, event.time);
    if (!event.plain)
      this.#tools.note(this.#view.name, event.snapshot, event.time, this.#rows.size);
    if (!event.part) this.#chart.note(this.#rows, event.time);
    if (!this.#history.past) {
      this.#table.show(this.#rows, event.type === "snapshot" ? null : counts);
      this.#drawChart();
    }
    if (!first && !event.other) this.#summary.add(counts);
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
   * @param {import("./time-travel.js").Snapshot} which
   */
  #showPast({ rows, cut, counts }, which) {
    const began = this.#past === null;
    if (began || this.#isLarge)
      this.#past = new RowStore(this.#view.columns, this.#view.primary_key);
    this.#pastAt = which;
    this.#past?.take({ type: "snapshot", plain: true, rows });
    this.#table.show(this.#past ?? this.#rows, began || this.#isLarge ? null : { added: 1 });
    if (counts) this.#counted(counts);
    this.#drawChart();
    const some = cut ? ` Only its ${this.#which} ${whole(rows.length)} rows are shown.` : "";
    say(
      this.#banner,
      `This is snapshot ${which.snapshot}, not the live view. “Live” shows the newest rows.${some}`,
    );
    this.#panel.classList.add("past");
    this.#freshness.update();
  }

  #showLive() {
    this.#past = null;
    say(this.#banner, "");
    this.#panel.classList.remove("past");
    this.#table.show(this.#rows);
    this.#drawChart();
    this.#freshness.update();
    if (this.#liveCounts) this.#counted(this.#liveCounts);
    this.#reread();
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
    } else if (state === "large") this.#large(text);
  }

  /** @param {string} problem why the server does not return the part; empty if it does */
  #large(problem) {
    if (!this.#wasLarge) {
      this.#wasLarge = true;
      this.#table.filter("");
      const { columns, primary_key: key, kind } = this.#view;
      const time = columns.findIndex(({ type }) => kindOf(type) === "time");
      // Newest first: a table without a key has its newest rows anyway.
      if (time >= 0 && (key.length || kind === "view")) this.#table.sort(time, true);
    }
    say(
      this.#notice,
      problem ||
        `This view has too many rows for a stream. The page shows its ${this.#which} 500 rows and reloads them every 2 s; the filter, the order and the chart are over all rows.`,
    );
  }

  /** @param {string} text */
  #say(text) {
    if (!text && this.#isLarge) return;
    say(this.#notice, text);
  }

  /** @param {string} changes */
  #announce(changes) {
    const { title, name } = this.#view;
    this.#tools.summary(`${title ?? name}: ${changes}; ${count(this.#rows.size, "row")} now.`);
  }
}
