// Parses server-sent events to the same messages that a WebSocket carries.

import { parse } from "./exact-json.js";

/** @typedef {import("./responses.d.ts").StreamMessage} StreamMessage */

/** @param {Response} response */
export function eventsOf({ body }) {
  return body ? read(body) : [];
}

/** @param {NonNullable<Response["body"]>} body */
async function* read(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    text += value;
    const blocks = text.split(/\r?\n\r?\n/);
    text = blocks.pop() ?? "";
    for (const block of blocks) {
      const message = messageOf(block);
      if (message) yield message;
    }
  }
}

/**
 * The message of one block of lines; null if it has no data.
 * @param {string} block
 */
function messageOf(block) {
  /** @type {{ [name: string]: string }} */
  const fields = { event: "message" };
  const data = [];
  for (const line of block.split(/\r?\n/)) {
    const [, name, value] = /^([^:]+): ?(.*)$/s.exec(line) ?? [];
    if (name === "data") data.push(value);
    else if (name) fields[name] = value;
  }
  if (!data.length) return null;
  const body = /** @type {object} */ (parse(data.join("\n")));
  return /** @type {StreamMessage} */ ({ type: fields.event, id: fields.id ?? null, ...body });
}
