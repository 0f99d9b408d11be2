// A text area for SQL with line numbers, syntax highlighting and a marked line.

import { h, put } from "../ui/dom.js";
import { goTo } from "./error-position.js";
import { highlighted } from "./syntax-highlighting.js";

export class CodeEditor {
  #changed;
  /** The marked line; 0 for none. */
  #wrong = 0;
  #lines = h("div", { className: "code-lines", "aria-hidden": "true" });
  #colours = h("pre", { className: "code-colours", "aria-hidden": "true" });

  /**
   * `changed` is called after each edit.
   * @param {string} label
   * @param {string} text
   * @param {() => void} changed
   */
  constructor(label, text, changed) {
    this.#changed = changed;
    this.area = h("textarea", {
      className: "code-text",
      value: text,
      wrap: "off",
      spellcheck: false,
      autocomplete: "off",
      autocapitalize: "off",
      "aria-label": label,
      oninput: () => this.edited(),
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

  /** Takes over an edit of the text area. */
  edited() {
    this.area.removeAttribute("aria-invalid");
    this.mark(0);
    this.#changed();
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
    put(this.#colours, highlighted(text), "\n");
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
