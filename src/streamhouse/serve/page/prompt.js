// The dialog that asks for a token.

import { say } from "./dom.js";

/**
 * Asks in a dialog with one form; `told` is the element for the reason.
 * @param {HTMLDialogElement} dialog
 * @param {HTMLInputElement} text
 * @param {HTMLElement} told
 * @returns {import("./server.js").Prompt}
 */
export function promptIn(dialog, text, told) {
  // The page is empty without a token, so the dialog cannot be closed.
  dialog.addEventListener("cancel", (event) => event.preventDefault());
  return (why) => {
    if (why) say(told, why);
    text.value = "";
    dialog.showModal();
    return new Promise((resolve) => {
      const given = (/** @type {Event} */ event) => {
        event.preventDefault();
        dialog.close();
        resolve(text.value.trim());
      };
      dialog.addEventListener("submit", given, { once: true });
    });
  };
}
