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
