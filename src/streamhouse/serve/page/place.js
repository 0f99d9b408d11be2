// Where in a text something is wrong: said, and gone to.

import { h } from "./dom.js";

/** What is wrong with the text of an area, with a way to the place where that is known. */
export function mistake(area, { message, line, column }) {
  const place = line
    ? h(
        "button",
        { type: "button", className: "place", onclick: () => goTo(area, line, column ?? 1) },
        `Line ${line}, column ${column ?? 1}`,
      )
    : null;
  return h("div", { className: "error-line" }, place, h("pre", {}, message));
}

/** Takes the reader to a place of an area, whose word is selected. */
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
