// The dialog that asks for a token.

import { say } from "./dom.js";

/**
 * Asks in a dialog with one form; `reason` is the element for the reason.
 * @param {HTMLDialogElement} dialog
 * @param {HTMLInputElement} text
 * @param {HTMLElement} reason
 * @returns {import("../server/requests.js").Prompt}
 */
export function tokenPrompt(dialog, text, reason) {
  // The page is empty without a token, so the dialog cannot be closed.
  dialog.addEventListener("cancel", (event) => event.preventDefault());
  return (why) => {
    if (why) say(reason, why);
    text.value = "";
    dialog.showModal();
    return new Promise((resolve) => {
      const submit = (/** @type {Event} */ event) => {
        event.preventDefault();
        dialog.close();
        resolve(text.value.trim());
      };
      dialog.addEventListener("submit", submit, { once: true });
    });
  };
}
