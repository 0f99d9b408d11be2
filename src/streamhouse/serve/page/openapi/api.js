// The documentation of the HTTP interface, rendered from openapi.json.

/** @typedef {{ type?: string, enum?: string[], anyOf?: { type?: string }[] }} Schema */
/** @typedef {{ name: string, description?: string, schema?: Schema }} Parameter */
/** @typedef {{ [type: string]: unknown }} Content */

/**
 * One method of a path.
 * @typedef {Object} Operation
 * @property {string} summary
 * @property {string} description
 * @property {string[]} [tags]
 * @property {Parameter[]} [parameters]
 * @property {{ content: Content }} [requestBody]
 * @property {{ [status: string]: { description: string, content?: Content } }} responses
 */

/**
 * The part of openapi.json that is shown.
 * @typedef {Object} OpenApi
 * @property {{ description: string }} info
 * @property {{ name: string, description: string }[]} [tags]
 * @property {{ [path: string]: { [method: string]: Operation } }} paths
 */

/**
 * @template {keyof HTMLElementTagNameMap} Tag
 * @param {Tag} tag
 * @param {string} [text]
 * @param {string} [name]
 */
const create = (tag, text, name) => {
  const node = document.createElement(tag);
  if (text) node.textContent = text;
  if (name) node.className = name;
  return node;
};

/**
 * @param {string[]} heads
 * @param {(string | undefined)[][]} rows
 */
const table = (heads, rows) => {
  const node = create("table");
  const head = node.createTHead().insertRow();
  for (const text of heads) {
    const cell = create("th", text);
    cell.scope = "col";
    head.append(cell);
  }
  const body = node.createTBody();
  for (const row of rows) {
    const line = body.insertRow();
    row.forEach((text, place) => line.insertCell().append(create(place ? "span" : "code", text)));
  }
  return node;
};

/** @param {Schema} [schema] */
const kindOf = (schema = {}) =>
  schema.enum?.join(" | ") ??
  schema.type ??
  schema.anyOf
    ?.map((one) => one.type)
    .filter((one) => one && one !== "null")
    .join(" | ") ??
  "";

/**
 * @param {string} path
 * @param {string} method
 * @param {Operation} one
 */
const operation = (path, method, one) => {
  const node = create("details");
  const line = create("summary");
  line.append(create("span", method.toUpperCase(), "method"), create("span", path, "path"));
  line.append(create("span", one.summary, "said"));
  const inside = create("div", "", "inside");
  inside.append(create("p", one.description, "text"));
  if (one.parameters?.length) {
    const rows = one.parameters.map((each) => [each.name, kindOf(each.schema), each.description]);
    inside.append(table(["Parameter", "Type", "Description"], rows));
  }
  if (one.requestBody) {
    const types = Object.keys(one.requestBody.content);
    inside.append(
      table(
        ["Body"],
        types.map((type) => [type]),
      ),
    );
  }
  const responses = Object.entries(one.responses).map(([status, response]) => [
    status,
    Object.keys(response.content ?? {}).join(", "),
    response.description,
  ]);
  inside.append(table(["Status", "Type", "When"], responses));
  node.append(line, inside);
  return node;
};

/** @param {string} id one of api.html */
const byId = (id) => /** @type {HTMLElement} */ (document.getElementById(id));

const show = async () => {
  const main = byId("paths");
  const response = await fetch("openapi.json");
  if (!response.ok) {
    main.replaceChildren(create("p", `openapi.json cannot be loaded: HTTP ${response.status}`));
    return;
  }
  /** @type {OpenApi} */
  const api = await response.json();
  byId("about").textContent = api.info.description.trim();
  /** @type {Map<string, HTMLElement[]>} */
  const parts = new Map();
  for (const tag of api.tags ?? [])
    parts.set(tag.name, [create("h2", tag.name), create("p", tag.description)]);
  for (const [path, methods] of Object.entries(api.paths)) {
    for (const [method, one] of Object.entries(methods)) {
      const name = one.tags?.[0] ?? "other";
      const part = parts.get(name) ?? [create("h2", name)];
      part.push(operation(path, method, one));
      parts.set(name, part);
    }
  }
  main.replaceChildren(...[...parts.values()].flat());
};

show();
