// One view on the screen: its rows as they change, its chart, its past, and what it is.

import { said, serverNow } from "./server.js";
import { Chart } from "./chart.js";
import { showDetails } from "./details.js";
import { empty, h, put, say } from "./dom.js";
import { ago, count, whole } from "./format.js";
import { History } from "./history.js";
import { Rows, streamNames } from "./rows.js";
import { Stream } from "./stream.js";
import { shownText, Table } from "./table.js";

const TABS = {
  rows: "Live",
  schema: "Schema",
  options: "Options",
  snapshots: "Snapshots",
  files: "Files",
};
const SUMMARY_MS = [5000, 10_000, 20_000, 40_000, 60_000];
const CALM_MS = 30_000;
const WIDE_COLUMNS = 6;

/** `view` is its record of the list; `tools` is what the page around it does for a view. */
export class View {
  #view;
  #tools;
  #rows = null;
  #past = null;
  #stream = null;
  #fresh = { time: null, delay: null, snapshot: null, state: "connecting" };
  #counts = { added: 0, changed: 0, removed: 0 };
  #told = 0;
  #toldAt = -Infinity;
  #often = 0;
  #tab = "rows";
  #reloaded = false;
  #wasGone = false;
  #timers;

  constructor(main, view, tools) {
    this.#view = view;
    this.#tools = tools;
    this.table = this.#newTable();
    this.chart = new Chart(view.columns, view.primary_key ?? [], view.chart ?? null);
    this.history = new History(view.name, {
      past: (answer, which) => this.#showPast(answer, which),
      live: () => this.#showLive(),
      failed: (problem) => tools.say(said(problem)),
    });
    put(main, this.#head(), this.#tabs(), this.#panel());
    this.#follow();
    this.#timers = [
      setInterval(() => this.#tellFresh(), 200),
      setInterval(() => this.history.past || this.history.load(), 60_000),
    ];
  }

  close() {
    for (const timer of this.#timers) clearInterval(timer);
    clearTimeout(this.#told);
    this.#stream?.close();
    this.history.close();
    this.table.close();
    this.chart.close();
  }

  /** Whether a key of the page was one of this view's. */
  key(name) {
    if (name === "[") this.history.step(-1);
    else if (name === "]") this.history.step(1);
    else if (name === "l") this.history.live();
    else if (name === "f") this.filter.focus();
    else return false;
    return true;
  }

  /** Goes one step back where there is one: from a filter, from the past. */
  escape() {
    if (document.activeElement === this.filter || this.filter.value) {
      this.filter.value = "";
      this.filter.blur();
      this.table.filter("");
      return true;
    }
    if (!this.history.past) return false;
    this.history.live();
    return true;
  }

  #newTable() {
    const { name, columns, primary_key: key = [], kind } = this.#view;
    const order = key.length ? "key" : kind === "view" ? "columns" : "newest";
    const table = new Table(this.#view.title ?? name, columns, key, order);
    table.onDraw = () => say(this.shown, shownText(table.shown));
    return table;
  }

  #head() {
    const { name, title, description, kind, primary_key: key = [] } = this.#view;
    this.pill = h("span", { className: "pill" });
    this.age = h("span", { className: "fresh-age" });
    this.delay = h("span", { className: "fresh-delay", title: "From the commit to this screen" });
    this.notice = h("p", { className: "notice", role: "status" });
    const kinds = [
      kind === "view" ? "view" : key.length ? `key ${key.join(", ")}` : "append table",
    ];
    return h(
      "header",
      { className: "head" },
      h("a", { className: "to-list", href: "#/views", "aria-label": "All views" }, "‹ Views"),
      h(
        "div",
        { className: "titles" },
        h("h1", {}, title ?? name),
        h(
          "p",
          { className: "soft" },
          [title ? name : null, ...kinds, description].filter(Boolean).join(" · "),
        ),
      ),
      h("div", { className: "fresh" }, this.pill, this.age, this.delay),
      this.notice,
    );
  }

  #tabs() {
    this.tabs = Object.entries(TABS).map(([id, text], at) =>
      h(
        "button",
        {
          type: "button",
          role: "tab",
          id: `tab-${id}`,
          "aria-controls": "panel",
          "aria-selected": String(at === 0),
          tabIndex: at ? -1 : 0,
          onclick: () => this.#choose(id),
        },
        text,
      ),
    );
    const list = h(
      "div",
      {
        className: "tabs",
        role: "tablist",
        "aria-label": "About this view",
        onkeydown: (event) => this.#tabKey(event),
      },
      this.tabs,
    );
    return h("div", { className: "tab-line" }, list, this.history.element);
  }

  #tabKey(event) {
    const ids = Object.keys(TABS);
    const at = ids.indexOf(this.#tab);
    const to = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: -1 }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    const next = (to + ids.length) % ids.length;
    this.#choose(ids[next]);
    this.tabs[next].focus();
  }

  #choose(id) {
    this.#tab = id;
    Object.keys(TABS).forEach((each, at) => {
      this.tabs[at].setAttribute("aria-selected", String(each === id));
      this.tabs[at].tabIndex = each === id ? 0 : -1;
    });
    this.panel.setAttribute("aria-labelledby", `tab-${id}`);
    this.stage.hidden = id !== "rows";
    this.details.hidden = id === "rows";
    if (id === "rows") return;
    put(this.details);
    showDetails(this.details, this.#view.name, id);
  }

  #panel() {
    this.filter = h("input", {
      type: "search",
      placeholder: "Filter rows",
      "aria-label": "Filter the rows",
      spellcheck: false,
      autocomplete: "off",
      oninput: () => this.table.filter(this.filter.value),
    });
    this.shown = h("span", { className: "shown" });
    this.banner = h("p", { className: "past-banner", role: "status" });
    const rows = h(
      "section",
      { className: "rows", "aria-label": "Rows" },
      h("div", { className: "rows-head" }, this.filter, this.shown),
      this.table.element,
    );
    const wide = this.#view.columns.length > WIDE_COLUMNS ? " wide" : "";
    const chart = this.chart.possible ? this.chart.element : null;
    this.stage = h("div", { className: `stage${wide}${chart ? "" : " bare"}` }, rows, chart);
    this.details = h("div", { className: "details", hidden: true });
    this.panel = h(
      "div",
      { className: "panel", id: "panel", role: "tabpanel", "aria-labelledby": "tab-rows" },
      this.banner,
      this.stage,
      this.details,
    );
    return this.panel;
  }

  #follow() {
    const { name, columns, primary_key: key = [] } = this.#view;
    this.#rows = new Rows(columns, key);
    this.#stream = new Stream(name, {
      event: (event) => this.#take(event),
      progress: (rows) => say(this.shown, `${count(rows, "row")} so far …`),
      state: (state, text) => this.#state(state, text),
      order: () => this.table.serverOrder,
    });
  }

  #take(event) {
    if (!this.#reloaded && this.#otherColumns(event.rows[0], event.plain)) {
      this.#reloaded = true;
      this.#tools.reload(this.#view);
    }
    const first = this.#fresh.snapshot === null;
    if (this.#isAnother(event)) {
      this.history.anew();
      this.chart.anew();
    }
    const counts = this.#rows.take(event);
    const time = event.time ? Date.parse(event.time) : null;
    const isNew = this.#fresh.snapshot !== event.snapshot;
    if (isNew && event.type === "changes" && time !== null) this.#measure(time);
    Object.assign(this.#fresh, { time, snapshot: event.snapshot });
    this.#say("");
    this.history.note(event.snapshot, event.time);
    if (!event.plain)
      this.#tools.note(this.#view.name, event.snapshot, event.time, this.#rows.size);
    this.chart.note(this.#rows, serverNow());
    if (!this.history.past) {
      this.table.show(this.#rows, event.type === "snapshot" ? null : counts);
      this.chart.show(this.#rows);
    }
    if (!first) this.#summarize(counts);
    this.#tellFresh();
  }

  /** Whether this is the beginning of another table than the one that was shown under the name. */
  #isAnother({ type, snapshot }) {
    const was = this.#wasGone;
    this.#wasGone = false;
    return type === "snapshot" && (was || (snapshot ?? 0) < (this.#fresh.snapshot ?? 0));
  }

  /** Whether a row has other columns than the list said: the table was altered or made again. */
  #otherColumns(row, plain) {
    if (!row) return false;
    const known = this.#view.columns.map((column) => column.name);
    const expected = plain ? known : [...streamNames(known), "rowkind"];
    return expected.length !== Object.keys(row).length || expected.some((name) => !(name in row));
  }

  #measure(time) {
    // What the next frame draws is seen when that frame is over.
    requestAnimationFrame(() =>
      requestAnimationFrame(() => {
        this.#fresh.delay = Math.max(0, Math.round(serverNow() - time));
      }),
    );
  }

  #showPast(answer, { snapshot }) {
    this.#past ??= new Rows(this.#view.columns, this.#view.primary_key ?? []);
    const began = this.#past.version === 0;
    this.#past.take({ type: "snapshot", plain: true, rows: answer.rows });
    this.table.show(this.#past, began ? null : { added: 1 });
    this.chart.show(this.#past);
    const cut = answer.cut ? ` Only its first ${whole(answer.rows.length)} rows are shown.` : "";
    say(
      this.banner,
      `This is the past: snapshot ${snapshot}. What comes meanwhile waits behind “Live”.${cut}`,
    );
    this.panel.classList.add("past");
    this.#tellFresh();
  }

  #showLive() {
    this.#past = null;
    say(this.banner, "");
    this.panel.classList.remove("past");
    this.table.show(this.#rows);
    this.chart.show(this.#rows);
    this.#tellFresh();
  }

  #state(state, text) {
    this.#fresh.state = state;
    this.#tools.lost(state === "lost" ? text : null);
    if (state === "live") this.#say("");
    if (state === "gone") {
      this.#wasGone = true;
      this.#say(
        `${this.#view.name} is not there any more. This is how it was last; it goes on by itself once it is there again.`,
      );
    } else if (state === "large")
      this.#say(
        "This view has more rows than a stream carries. Shown are 500 of them, asked for again every 2 s; sort to choose which.",
      );
    this.#tellFresh();
  }

  #say(text) {
    if (!text && this.#fresh.state === "large") return;
    say(this.notice, text);
  }

  #tellFresh() {
    const { state, time, delay } = this.#fresh;
    const shown = this.history.past ? "past" : state;
    const words = {
      connecting: "connecting",
      live: "live",
      lost: "reconnecting",
      gone: "not there",
      large: "polled",
      past: "past",
    };
    say(this.pill, words[shown]);
    this.pill.dataset.state = shown;
    say(this.age, time === null || this.history.past ? "" : ago(serverNow() - time));
    say(this.delay, delay === null || this.history.past ? "" : `${whole(delay)} ms to screen`);
  }

  /** A sentence for those who hear the page; of a table that never rests ever less often. */
  #summarize(counts) {
    for (const name of Object.keys(counts)) this.#counts[name] += counts[name];
    if (this.#told) return;
    if (performance.now() - this.#toldAt > CALM_MS) this.#often = 0;
    const wait = SUMMARY_MS[Math.min(this.#often, SUMMARY_MS.length - 1)];
    this.#often += 1;
    this.#told = setTimeout(() => this.#tellChanges(), wait);
  }

  #tellChanges() {
    this.#told = 0;
    this.#toldAt = performance.now();
    const { added, changed, removed } = this.#counts;
    this.#counts = { added: 0, changed: 0, removed: 0 };
    const parts = [
      changed ? `${count(changed, "row")} changed` : "",
      added ? `${whole(added)} new` : "",
      removed ? `${whole(removed)} gone` : "",
    ].filter(Boolean);
    if (parts.length)
      this.#tools.summary(
        `${this.#view.title ?? this.#view.name}: ${parts.join(", ")}; ${count(this.#rows.size, "row")} now.`,
      );
  }
}

/** What is shown where no view is open; `missing` is one that was asked for and is not there. */
export function welcome(main, names, missing = null) {
  if (missing) {
    put(
      main,
      empty(
        `There is no view “${missing}”`,
        "It shows here by itself as soon as a script makes it. The views that there are stand in the list.",
      ),
    );
  } else if (!names.length) {
    put(
      main,
      empty(
        "Nothing to show yet",
        "This warehouse has no tables. Run a script that makes some, and they appear here by themselves.",
        h("p", {}, h("a", { href: "#/editor", className: "main-button" }, "Write one")),
      ),
    );
  } else {
    put(
      main,
      empty(
        "Choose a view",
        `${count(names.length, "view")} in the list: j and k walk through them, Enter opens one, / searches.`,
      ),
    );
  }
}
