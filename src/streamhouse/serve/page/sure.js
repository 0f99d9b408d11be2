// A confirmation dialog for actions that cannot be undone.

import { h } from "./dom.js";

/**
 * Resolves to whether the user confirms; `verb` is the label of that button.
 * @param {string} title
 * @param {string} text
 * @param {string} verb
 * @returns {Promise<boolean>}
 */
export function sure(title, text, verb) {
  const dialog = h(
    "dialog",
    { "aria-labelledby": "sure-title", "aria-describedby": "sure-text" },
    h(
      "form",
      { method: "dialog" },
      h("h2", { id: "sure-title" }, title),
      h("p", { id: "sure-text" }, text),
      h(
        "div",
        { className: "buttons" },
        h("button", { type: "submit", value: "no", autofocus: true }, "Cancel"),
        h("button", { type: "submit", value: "yes", className: "danger-button" }, verb),
      ),
    ),
  );
  document.body.append(dialog);
  dialog.showModal();
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => {
      dialog.remove();
      resolve(dialog.returnValue === "yes");
    });
  });
}
