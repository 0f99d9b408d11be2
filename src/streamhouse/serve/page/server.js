// Requests to the server, with the token of this tab.

/** @typedef {import("./records.d.ts").ErrorText} ErrorText */

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
const SKEW_MS = 1500;

/** @type {Promise<string> | null} */
let asking = null;
/** @type {Prompt} */
let ask = async () => "";
let skew = 0;

/** An error response; `more` is the whole object under `error`. */
class Problem extends Error {
  /**
   * @param {number} status
   * @param {ErrorText | null} error
   */
  constructor(status, error) {
    super(error?.message ?? `the server responded with status ${status}`);
    this.status = status;
    /** @type {Partial<ErrorText>} */
    this.more = error ?? {};
  }
}

/**
 * Sets the function that asks for a token.
 * @param {Prompt} prompt
 */
export function askWith(prompt) {
  ask = prompt;
}

export function token() {
  return sessionStorage.getItem(TOKEN);
}

/**
 * The server's clock in ms: the local clock, corrected if it differs by more than the precision of
 * the header Date.
 */
export function serverNow() {
  return Date.now() + skew;
}

/**
 * The URL of a path of the server, also behind a proxy that serves it below another path.
 * @param {string} path
 */
export function address(path) {
  const found = new URL(document.baseURI);
  found.hash = found.search = "";
  return new URL(path, found);
}

/**
 * The path of a view, or one below it.
 * @param {string} name
 */
export function viewPath(name, below = "") {
  return `views/${encodeURIComponent(name)}${below}`;
}

/**
 * The path of a pipeline, or one below it.
 * @param {string} name
 */
export function pipelinePath(name, below = "") {
  return `pipelines/${encodeURIComponent(name)}${below}`;
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
    const answer = await fetch(address(path), { cache: "no-store", ...options, headers });
    noteTime(answer);
    if (answer.status !== 401) return answer;
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
  const answer = await request(path, sent);
  if (answer.status === 304) return null;
  const text = await answer.text();
  if (!answer.ok) throw problemOf(answer.status, text);
  const found = text ? parse(text) : {};
  const newTag = answer.headers.get("ETag");
  if (newTag && found && typeof found === "object")
    Object.defineProperty(found, "etag", { value: newTag });
  return found;
}

/**
 * @param {number} status
 * @param {string} text
 */
export function problemOf(status, text) {
  try {
    return new Problem(status, JSON.parse(text).error);
  } catch {
    return new Problem(status, null);
  }
}

/**
 * The message of a failed request.
 * @param {unknown} problem
 */
export function messageOf(problem) {
  if (problem instanceof TypeError) return "The server does not respond.";
  return problem instanceof Error ? problem.message : String(problem);
}

/**
 * The HTTP status of an error response; null for other errors.
 * @param {unknown} problem
 */
export function statusOf(problem) {
  return problem instanceof Problem ? problem.status : null;
}

/**
 * The error of a text that the server rejected, with its line and column, if there are any.
 * @param {unknown} problem
 * @returns {import("./mistakes.js").Mistake}
 */
export function mistakeOf(problem) {
  const { line, column } = problem instanceof Problem ? problem.more : {};
  return { message: messageOf(problem), line, column };
}

/**
 * `JSON.parse` that keeps all digits of a BIGINT.
 * @param {string} text
 * @returns {unknown}
 */
export function parse(text) {
  if (!/\d{16}/.test(text)) return JSON.parse(text);
  return JSON.parse(text, exact);
}

/**
 * @param {string} _
 * @param {unknown} value
 * @param {{ source?: string }} [context] missing in older browsers
 */
function exact(_, value, context) {
  if (typeof value !== "number" || Number.isSafeInteger(value)) return value;
  const source = context?.source ?? "";
  return /^-?\d+$/.test(source) ? BigInt(source) : value;
}

/** @param {boolean} refused */
async function newToken(refused) {
  sessionStorage.removeItem(TOKEN);
  asking ??= ask(refused ? "The server does not accept this token. Enter another." : null).finally(
    () => {
      asking = null;
    },
  );
  sessionStorage.setItem(TOKEN, await asking);
}

/** @param {Response} answer */
function noteTime(answer) {
  const sent = Date.parse(answer.headers.get("Date") ?? "");
  if (Number.isNaN(sent)) return;
  const differs = sent + 500 - Date.now();
  skew = Math.abs(differs) > SKEW_MS ? differs : 0;
}
