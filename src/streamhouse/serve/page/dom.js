// Creates elements. Text is always set as text, so that no value of a table becomes markup.

/** @typedef {string | number | boolean | null | undefined} Scalar */
/** @typedef {Node | string | null | undefined} Child */

/**
 * The settings of an element: `on…` listeners, properties of the element, and attributes.
 * @template E
 * @typedef {{ [K in keyof HTMLElementEventMap as `on${K}`]?: (event: HTMLElementEventMap[K]) => void }
 *   & { [K in keyof E as NonNullable<E[K]> extends Scalar ? K : never]?:
 *       NonNullable<E[K]> extends string ? E[K] | number | null : E[K] | null }
 *   & { [name: `aria-${string}` | `data-${string}`]: Scalar }} Attributes
 */

const SVG = "http://www.w3.org/2000/svg";

/**
 * An HTML element.
 * @template {keyof HTMLElementTagNameMap} Tag
 * @param {Tag} tag
 * @param {Attributes<HTMLElementTagNameMap[Tag]>} [attributes]
 * @param {...(Child | Child[])} children
 */
export function h(tag, attributes, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (typeof value === "function")
      element.addEventListener(name.slice(2), /** @type {EventListener} */ (value));
    else if (name in element && !name.includes("-")) Reflect.set(element, name, value);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...present(children));
  return element;
}

/**
 * An SVG element with these attributes.
 * @template {keyof SVGElementTagNameMap} Tag
 * @param {Tag} tag
 * @param {{ [name: string]: string | number }} [attributes]
 * @param {...(Child | Child[])} children
 */
export function s(tag, attributes = {}, ...children) {
  const element = document.createElementNS(SVG, tag);
  setAttributes(element, attributes);
  element.append(...present(children));
  return element;
}

/**
 * @param {Element} element
 * @param {{ [name: string]: string | number }} attributes
 */
export function setAttributes(element, attributes) {
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, String(value));
}

/**
 * Replaces all children.
 * @template {ParentNode} E
 * @param {E} element
 * @param {...(Child | Child[])} children
 */
export function put(element, ...children) {
  element.replaceChildren(...present(children));
  return element;
}

/** @param {(Child | Child[])[]} children */
function present(children) {
  return children.flat().filter((child) => child !== null && child !== undefined);
}

/**
 * Sets a text only if it differs: a needless update interrupts screen readers and selections.
 * @param {Node} element
 * @param {string} text
 */
export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** A canvas context to measure texts with. */
export function pen() {
  const context = document.createElement("canvas").getContext("2d");
  return /** @type {CanvasRenderingContext2D} */ (context);
}

/** Whether the system asks for reduced motion. */
export function still() {
  return matchMedia("(prefers-reduced-motion: reduce)").matches;
}

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
