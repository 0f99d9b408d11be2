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
    if (value === null || value === undefined) continue;
    if (typeof value === "function")
      element.addEventListener(name.slice(2), /** @type {EventListener} */ (value));
    else if (name in element && !name.includes("-")) Reflect.set(element, name, value);
    else if (value !== false) element.setAttribute(name, value === true ? "" : String(value));
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
