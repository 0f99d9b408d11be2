// The screen without an open view.

import { empty, h, put } from "./dom.js";
import { count } from "./format.js";

/**
 * Explains why no view is open; `missing` is the requested view, if it does not exist.
 * @param {HTMLElement} main
 * @param {string[]} names
 * @param {string | null} [missing]
 */
export function welcome(main, names, missing = null) {
  if (missing) {
    put(
      main,
      empty(
        `There is no view “${missing}”`,
        "It appears here as soon as a script creates it. The list has all existing views.",
      ),
    );
  } else if (!names.length) {
    put(
      main,
      empty(
        "No tables yet",
        "This warehouse has no tables. They appear here as soon as a script creates them.",
        h("p", {}, h("a", { href: "#/editor", className: "main-button" }, "Write a script")),
      ),
    );
  } else {
    put(
      main,
      empty(
        "Choose a view",
        `${count(names.length, "view")} in the list: j and k move through it, Enter opens a view, / searches.`,
      ),
    );
  }
}
