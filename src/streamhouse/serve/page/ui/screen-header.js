// The header of a screen.

import { h } from "./dom.js";

/** @typedef {import("./dom.js").Child} Child */

/**
 * A screen's title and a line about it, between what comes before and after them.
 * @param {string} title
 * @param {string} about
 * @param {{ before?: Child, after?: Child[] }} [around]
 */
export function screenHeader(title, about, { before, after = [] } = {}) {
  const titles = h(
    "div",
    { className: "titles" },
    h("h1", {}, title),
    h("p", { className: "soft" }, about),
  );
  return h("header", { className: "head" }, before, titles, ...after);
}
