// Requests to the server, with the token of this tab.

import { problemOf } from "./errors.js";
import { parse } from "./exact-json.js";
import { noteTime } from "./server-clock.js";
import { address } from "./urls.js";

/**
 * The options of `request`.
 * @typedef {Object} Sent
 * @property {string} [method]
 * @property {{ [name: string]: string }} [headers]
 * @property {string} [body]
 * @property {AbortSignal} [signal]
 */

/**
 * The options of `json`: the body is sent as JSON, the `etag` as If-None-Match.
 * @typedef {Omit<Sent, "body"> & { body?: unknown, etag?: string | null }} SentJson
 */

/**
 * Asks the user for a token, with a reason.
 * @typedef {(why: string | null) => Promise<string>} Prompt
 */

const TOKEN = "streamhouse.token";

/** @type {Promise<string> | null} */
let asking = null;
/** @type {Prompt} */
let promptForToken = async () => "";

/**
 * Sets the function that asks for a token.
 * @param {Prompt} prompt
 */
export function askWith(prompt) {
  promptForToken = prompt;
}

export function token() {
  return sessionStorage.getItem(TOKEN);
}

/**
 * Sends a request; asks the user for a token if the server requires one.
 * @param {string} path
 * @param {Sent} [options]
 */
export async function request(path, options = {}) {
  for (;;) {
    const sent = token();
    const headers = { ...options.headers, ...(sent ? { Authorization: `Bearer ${sent}` } : {}) };
    const response = await fetch(address(path), { cache: "no-store", ...options, headers });
    noteTime(response);
    if (response.status !== 401) return response;
    if (token() === sent) await newToken(sent !== null);
  }
}

/**
 * The JSON of a response; null if it has not changed since `etag`. Throws `Problem`.
 * @param {string} path
 * @param {SentJson} [options]
 * @returns {Promise<unknown>}
 */
export async function json(path, options = {}) {
  const { etag, body, ...rest } = options;
  /** @type {{ [name: string]: string }} */
  const headers = { Accept: "application/json", ...rest.headers };
  if (etag) headers["If-None-Match"] = etag;
  /** @type {Sent} */
  const sent = { ...rest, headers };
  if (body !== undefined) {
    headers["Content-Type"] = "application/json";
    sent.body = JSON.stringify(body);
  }
  const response = await request(path, sent);
  if (response.status === 304) return null;
  const text = await response.text();
  if (!response.ok) throw problemOf(response.status, text);
  const found = text ? parse(text) : {};
  const newTag = response.headers.get("ETag");
  if (newTag && found && typeof found === "object")
    Object.defineProperty(found, "etag", { value: newTag });
  return found;
}

/** @param {boolean} refused */
async function newToken(refused) {
  sessionStorage.removeItem(TOKEN);
  const why = refused ? "The server does not accept this token. Enter another." : null;
  asking ??= promptForToken(why).finally(() => {
    asking = null;
  });
  sessionStorage.setItem(TOKEN, await asking);
}
