// The screen without an open view.

import { count } from "../format/numbers.js";
import { h, put } from "../ui/dom.js";
import { empty } from "../ui/placeholder.js";

/**
 * Explains why no view is open; `missing` is the requested view, if it does not exist.
 * @param {HTMLElement} main
 * @param {string[]} names
 * @param {string | null} [missing]
 */
export function showNoOpenView(main, names, missing = null) {
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
