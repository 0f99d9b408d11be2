// Shows errors in a text, and moves the cursor to them.

import { h } from "../ui/dom.js";

/** @typedef {import("../server/errors.js").SqlError} SqlError */

/**
 * The message of an error, with a button that leads to its line and column, if they are known.
 * @param {HTMLTextAreaElement} area
 * @param {SqlError} wrong
 */
export function errorLine(area, { message, line, column }) {
  const place = line
    ? h(
        "button",
        { type: "button", className: "place", onclick: () => goTo(area, line, column ?? 1) },
        `Line ${line}, column ${column ?? 1}`,
      )
    : null;
  return h("div", { className: "error-line" }, place, h("pre", {}, message));
}

/**
 * Scrolls to a position and selects the word there.
 * @param {HTMLTextAreaElement} area
 * @param {number} line
 * @param {number} column
 */
export function goTo(area, line, column) {
  const lines = area.value.split("\n");
  const start =
    lines.slice(0, line - 1).reduce((sum, each) => sum + each.length + 1, 0) + column - 1;
  const word = /^\w+|^\S/.exec(area.value.slice(start))?.[0] ?? "";
  area.focus();
  area.setSelectionRange(start, start + word.length);
  const height = Number.parseFloat(getComputedStyle(area).lineHeight) || 20;
  const top = (line - 1) * height;
  if (top < area.scrollTop || top > area.scrollTop + area.clientHeight - 2 * height)
    area.scrollTop = Math.max(0, top - 4 * height);
}
