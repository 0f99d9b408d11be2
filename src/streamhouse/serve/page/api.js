// The HTTP interface for people, made of what the server says of itself.

const made = (tag, text, name) => {
  const node = document.createElement(tag);
  if (text) node.textContent = text;
  if (name) node.className = name;
  return node;
};

const table = (heads, rows) => {
  const node = made("table");
  const head = node.createTHead().insertRow();
  for (const text of heads) {
    const cell = made("th", text);
    cell.scope = "col";
    head.append(cell);
  }
  const body = node.createTBody();
  for (const row of rows) {
    const line = body.insertRow();
    row.forEach((text, place) => line.insertCell().append(made(place ? "span" : "code", text)));
  }
  return node;
};

const kindOf = (schema = {}) =>
  schema.enum?.join(" | ") ??
  schema.type ??
  schema.anyOf?.map((one) => one.type).filter((one) => one && one !== "null").join(" | ") ??
  "";

const operation = (path, method, one) => {
  const node = made("details");
  const line = made("summary");
  line.append(made("span", method.toUpperCase(), "method"), made("span", path, "path"));
  line.append(made("span", one.summary, "said"));
  const inside = made("div", "", "inside");
  inside.append(made("p", one.description, "text"));
  if (one.parameters?.length) {
    const rows = one.parameters.map((each) => [each.name, kindOf(each.schema), each.description]);
    inside.append(table(["Parameter", "Type", "What it does"], rows));
  }
  if (one.requestBody) {
    const types = Object.keys(one.requestBody.content);
    inside.append(table(["Body"], types.map((type) => [type])));
  }
  const answers = Object.entries(one.responses).map(([status, answer]) => [
    status,
    Object.keys(answer.content ?? {}).join(", "),
    answer.description,
  ]);
  inside.append(table(["Status", "Type", "When"], answers));
  node.append(line, inside);
  return node;
};

const show = async () => {
  const main = document.getElementById("paths");
  const answer = await fetch("/openapi.json");
  if (!answer.ok) {
    main.replaceChildren(made("p", `openapi.json cannot be had: ${answer.status}`));
    return;
  }
  const api = await answer.json();
  document.getElementById("about").textContent = api.info.description.trim();
  const parts = new Map((api.tags ?? []).map((tag) => [tag.name, [made("h2", tag.name), made("p", tag.description)]]));
  for (const [path, methods] of Object.entries(api.paths)) {
    for (const [method, one] of Object.entries(methods)) {
      const name = one.tags?.[0] ?? "other";
      if (!parts.has(name)) parts.set(name, [made("h2", name)]);
      parts.get(name).push(operation(path, method, one));
    }
  }
  main.replaceChildren(...[...parts.values()].flat());
};

show();
