// Placeholders for content that is missing or loads, and commands to copy.

import { h } from "./dom.js";

/**
 * A placeholder for missing content: why it is missing, and what to do.
 * @param {string} title
 * @param {...(string | Node)} how
 */
export function empty(title, ...how) {
  return h(
    "div",
    { className: "empty" },
    h("h2", {}, title),
    ...how.map((line) => (typeof line === "string" ? h("p", {}, line) : line)),
  );
}

/**
 * A shell command to copy.
 * @param {string} text
 */
export function command(text) {
  return h("pre", { className: "command" }, h("code", {}, text));
}

/**
 * Grey lines in the place of content that loads.
 * @param {number} lines
 */
export function skeleton(lines) {
  return h(
    "div",
    { className: "skeleton", role: "status", "aria-label": "Loading" },
    Array.from({ length: lines }, () => h("span")),
  );
}
