// Updates elements in place: only differences to the new children reach the document.

import { put, say } from "./dom.js";

/** @typedef {import("./dom.js").Child} Child */

/**
 * As `put`, but updates equal children in place, which keeps the focus, the selection and the place
 * of a screen reader. Listeners of new children are lost.
 * @param {Element} element
 * @param {...(Child | Child[])} children
 */
export function renew(element, ...children) {
  const focused = document.activeElement;
  const held = focused && element.contains(focused) ? focused.getAttribute("href") : null;
  const wanted = /** @type {Element} */ (element.cloneNode(false));
  match(element, put(wanted, ...children));
  if (held && document.activeElement?.getAttribute("href") !== held)
    [...element.querySelectorAll("a")].find((link) => link.getAttribute("href") === held)?.focus();
}

/**
 * @param {Element} element
 * @param {Element} wanted
 */
function match(element, wanted) {
  const known = [...element.childNodes];
  const fresh = [...wanted.childNodes];
  fresh.forEach((child, at) => {
    const there = known[at];
    if (!there) element.append(child);
    else if (there.nodeName !== child.nodeName) there.replaceWith(child);
    else if (there instanceof Element && child instanceof Element) {
      matchAttributes(there, child);
      match(there, child);
    } else say(there, child.textContent ?? "");
  });
  for (const left of known.slice(fresh.length)) left.remove();
}

/**
 * @param {Element} element
 * @param {Element} wanted
 */
function matchAttributes(element, wanted) {
  for (const { name } of [...element.attributes])
    if (!wanted.hasAttribute(name)) element.removeAttribute(name);
  for (const { name, value } of wanted.attributes)
    if (element.getAttribute(name) !== value) element.setAttribute(name, value);
}
