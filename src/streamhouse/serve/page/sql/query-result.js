// The result of a query: a table and a chart in tabs, and files of all its rows.

import { Chart } from "../chart/chart.js";
import { RowStore } from "../rows/row-store.js";
import { messageOf, problemOf } from "../server/errors.js";
import { request } from "../server/requests.js";
import { VirtualTable } from "../table/virtual-table.js";
import { h, put } from "../ui/dom.js";

/** @typedef {import("../server/responses.d.ts").SqlResponse} SqlResponse */

const FORMATS = { csv: "CSV", parquet: "Parquet" };

export class QueryResult {
  #table;
  #chart;
  #say;
  #panel = h("div", { className: "answer-panel", id: "answer", role: "tabpanel" });
  element;

  /**
   * `say` shows a message to the user.
   * @param {string} sql
   * @param {SqlResponse} response
   * @param {(text: string) => void} say
   */
  constructor(sql, { columns, rows }, say) {
    this.#say = say;
    this.#table = new VirtualTable("Result", columns, [], "given");
    this.#table.nothing = "The query returns no rows.";
    this.#chart = new Chart(columns, [], null, false);
    const kept = new RowStore(columns, []);
    kept.take({ type: "snapshot", plain: true, rows });
    this.#table.show(kept);
    this.#chart.show(kept);
    const files = Object.entries(FORMATS).map(([format, title]) =>
      h("button", { type: "button", onclick: () => this.#save(sql, format) }, title),
    );
    this.element = h(
      "section",
      { className: "rows answer", "aria-label": "Result" },
      h(
        "div",
        { className: "rows-head" },
        this.#tabs(),
        h("span", { className: "shown" }, "Save as"),
        files,
      ),
      this.#panel,
    );
  }

  close() {
    this.#table.close();
    this.#chart.close();
  }

  #tabs() {
    const shown = [this.#table.element, this.#chart.element];
    const names = this.#chart.possible ? ["Table", "Chart"] : ["Table"];
    /** @type {HTMLElement[]} */
    const buttons = names.map((name, at) =>
      h(
        "button",
        {
          type: "button",
          role: "tab",
          id: `answer-${name.toLowerCase()}`,
          "aria-controls": "answer",
          onclick: () => choose(at),
          onkeydown: ({ key }) => {
            if (key !== "ArrowLeft" && key !== "ArrowRight") return;
            choose((at + 1) % names.length);
            buttons[(at + 1) % names.length].focus();
          },
        },
        name,
      ),
    );
    /** @param {number} chosen */
    const choose = (chosen) => {
      buttons.forEach((button, at) => {
        button.setAttribute("aria-selected", String(at === chosen));
        button.tabIndex = at === chosen ? 0 : -1;
      });
      this.#panel.setAttribute("aria-labelledby", buttons[chosen].id);
      put(this.#panel, shown[chosen]);
    };
    choose(0);
    return h("div", { className: "tabs", role: "tablist", "aria-label": "Result as" }, buttons);
  }

  /**
   * Runs the query again, for a file.
   * @param {string} sql
   * @param {string} format
   */
  async #save(sql, format) {
    try {
      const response = await request("sql", {
        method: "POST",
        headers: { "Content-Type": "application/json" },
        body: JSON.stringify({ sql, format }),
      });
      if (!response.ok) throw problemOf(response.status, await response.text());
      const isCut = response.headers.get("X-Streamhouse-Truncated") === "true";
      const url = URL.createObjectURL(await response.blob());
      h("a", { href: url, download: `result.${format}` }).click();
      URL.revokeObjectURL(url);
      if (isCut)
        this.#say("The file has the first rows only: the query has more than the server returns.");
    } catch (problem) {
      this.#say(`The file cannot be saved: ${messageOf(problem)}`);
    }
  }
}
