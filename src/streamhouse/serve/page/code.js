// A text area for SQL with line numbers, syntax highlighting and a marked line.

import { h, put } from "./dom.js";
import { goTo } from "./mistakes.js";

const TOKENS =
  /(?<comment>--[^\n]*|\/\*[^]*?(?:\*\/|$))|(?<string>'(?:[^']|'')*'?)|(?<quoted>`[^`]*`?)|(?<number>\b\d+(?:\.\d+)?\b)|(?<word>\b[A-Za-z_]\w*\b)/g;
const KEYWORDS = new Set(
  (
    "ADD ALL ALTER AND ANTI AS ASC BEGIN BETWEEN BY CALL CASE CAST CATALOG COLUMN CONSTRAINT CREATE CROSS DATABASE DELETE DESC DESCRIBE DISTINCT DROP ELSE END " +
    "ENFORCED EXECUTE EXISTS FALSE FOR FROM FULL GROUP HAVING IF IN INNER INSERT INTERVAL INTO IS JOIN KEY LEFT LIKE LIMIT MATCHED MERGE NOT NULL OF ON OR ORDER " +
    "OUTER OVERWRITE PARTITION PARTITIONED PRIMARY RENAME RESET RIGHT SELECT SET SHOW SOURCE STATEMENT SYSTEM_TIME TABLE TEMPORARY THEN TO TRUE UNION UPDATE USE " +
    "USING VALUES VIEW WATERMARK WHEN WHERE WITH ARRAY BIGINT BINARY BOOLEAN BYTES CHAR DATE DECIMAL DOUBLE FLOAT INT MAP PROCTIME ROW SMALLINT STRING TIME TIMESTAMP " +
    "TIMESTAMP_LTZ TINYINT VARCHAR"
  ).split(" "),
);

export class Code {
  /** The marked line; 0 for none. */
  #wrong = 0;
  #lines = h("div", { className: "code-lines", "aria-hidden": "true" });
  #colours = h("pre", { className: "code-colours", "aria-hidden": "true" });

  /**
   * `changed` is called after each edit.
   * @param {string} text
   * @param {() => void} changed
   */
  constructor(text, changed) {
    this.area = h("textarea", {
      className: "code-text",
      value: text,
      wrap: "off",
      spellcheck: false,
      autocomplete: "off",
      autocapitalize: "off",
      "aria-label": "Script",
      oninput: () => {
        this.area.removeAttribute("aria-invalid");
        this.mark(0);
        changed();
      },
      onscroll: () => this.#follow(),
    });
    this.element = h(
      "div",
      { className: "code" },
      this.#lines,
      h("div", { className: "code-area" }, this.#colours, this.area),
    );
    this.#paint();
  }

  /**
   * Marks a line; 0 removes the mark.
   * @param {number} line
   */
  mark(line) {
    this.#wrong = line;
    this.#paint();
  }

  /**
   * Moves the cursor to an error.
   * @param {number} line
   * @param {number} column
   */
  show(line, column) {
    this.area.setAttribute("aria-invalid", "true");
    goTo(this.area, line, column);
  }

  #follow() {
    const { scrollLeft, scrollTop } = this.area;
    this.#colours.style.transform = `translate(${-scrollLeft}px, ${-scrollTop}px)`;
    this.#lines.style.transform = `translateY(${-scrollTop}px)`;
  }

  #paint() {
    const text = this.area.value;
    const parts = [];
    let end = 0;
    for (const found of text.matchAll(TOKENS)) {
      const kind = kindOf(found);
      if (kind === "word" && !KEYWORDS.has(found[0].toUpperCase())) continue;
      parts.push(text.slice(end, found.index), h("span", { className: `tok-${kind}` }, found[0]));
      end = found.index + found[0].length;
    }
    put(this.#colours, parts, `${text.slice(end)}\n`);
    const lines = text.split("\n").length;
    put(
      this.#lines,
      Array.from({ length: lines }, (_, at) =>
        h("span", { className: this.#wrong === at + 1 ? "wrong" : "" }, String(at + 1)),
      ),
    );
    this.#follow();
  }
}

/**
 * The name of the group of TOKENS that matched.
 * @param {RegExpExecArray} found
 */
function kindOf({ groups = {} }) {
  return Object.keys(groups).find((name) => groups[name] !== undefined);
}
