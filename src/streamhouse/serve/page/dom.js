// Elements by function calls. Text is always set as text, so nothing in a table becomes markup.

const SVG = "http://www.w3.org/2000/svg";

/** An HTML element: `class`, `on…` listeners, properties the element has, else attributes. */
export function h(tag, given = {}, ...children) {
  return filled(document.createElement(tag), given, children);
}

/** An SVG element; all that is given are attributes, but for `on…`. */
export function s(tag, given = {}, ...children) {
  return filled(document.createElementNS(SVG, tag), given, children);
}

function filled(element, given, children) {
  for (const [name, value] of Object.entries(given)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (
      name in element &&
      !name.includes("-") &&
      element.namespaceURI !== SVG &&
      name !== "list"
    )
      element[name] = value;
    else element.setAttribute(name === "className" ? "class" : name, value === true ? "" : value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return element;
}

/** Puts these children in place of those that are there. */
export function put(element, ...children) {
  element.replaceChildren(
    ...children.flat().filter((child) => child !== null && child !== undefined),
  );
  return element;
}

/** Sets a text only where it differs, so that screen readers and selections are left alone. */
export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** Whether the reader wants little motion. */
export function still() {
  return matchMedia("(prefers-reduced-motion: reduce)").matches;
}

/** What is shown where there is nothing: why, and what to do. */
export function empty(title, ...how) {
  return h(
    "div",
    { className: "empty" },
    h("h2", {}, title),
    ...how.map((line) => (typeof line === "string" ? h("p", {}, line) : line)),
  );
}

/** A command to copy, as it is typed. */
export function command(text) {
  return h("pre", { className: "command" }, h("code", {}, text));
}

/**
 * As `put`, but what is alike stays: the focus, what is selected, and the place of who has it read.
 * For elements without listeners.
 */
export function renew(element, ...children) {
  const held = element.contains(document.activeElement)
    ? document.activeElement.getAttribute("href")
    : null;
  match(element, put(element.cloneNode(false), ...children));
  if (held && document.activeElement?.getAttribute("href") !== held)
    [...element.querySelectorAll("a")].find((link) => link.getAttribute("href") === held)?.focus();
}

function match(element, wanted) {
  const known = [...element.childNodes];
  const fresh = [...wanted.childNodes];
  fresh.forEach((child, at) => {
    const there = known[at];
    if (!there) element.append(child);
    else if (there.nodeName !== child.nodeName) there.replaceWith(child);
    else if (child.nodeType === Node.TEXT_NODE) say(there, child.data);
    else {
      matchAttributes(there, child);
      match(there, child);
    }
  });
  for (const left of known.slice(fresh.length)) left.remove();
}

function matchAttributes(element, wanted) {
  for (const { name } of [...element.attributes])
    if (!wanted.hasAttribute(name)) element.removeAttribute(name);
  for (const { name, value } of wanted.attributes)
    if (element.getAttribute(name) !== value) element.setAttribute(name, value);
}
