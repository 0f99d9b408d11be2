// The server's answers: JSON or a Problem, with the token that this tab was given.

const TOKEN = "streamhouse.token";
const SKEW_MS = 1500;

let asking = null;
let ask = async () => null;
let skew = 0;

/** What the server said it cannot do: its HTTP status, its code and its sentence. */
export class Problem extends Error {
  constructor(status, error) {
    super(error?.message ?? `the server answered with ${status}`);
    this.status = status;
    this.code = error?.code ?? "";
    this.more = error ?? {};
  }
}

/** Who asks the reader for a token: a function of why, which gives the token. */
export function askWith(prompt) {
  ask = prompt;
}

export function token() {
  return sessionStorage.getItem(TOKEN);
}

/** The server's time now in ms; this machine's unless they differ by more than the header tells. */
export function serverNow() {
  return Date.now() + skew;
}

/** The address of a path of the server, also where a proxy has put it below another path. */
export function address(path) {
  const found = new URL(document.baseURI);
  found.hash = found.search = "";
  return new URL(path, found);
}

/** The path of a view, or of something below it. */
export function viewPath(name, below = "") {
  return `views/${encodeURIComponent(name)}${below}`;
}

/** Asks the server, and the reader for a token when the server wants one. */
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

/** The JSON of an answer; null where nothing has changed since `etag`. Raises `Problem`. */
export async function json(path, options = {}) {
  const { etag, body, ...rest } = options;
  const headers = { Accept: "application/json", ...rest.headers };
  if (etag) headers["If-None-Match"] = etag;
  if (body !== undefined) {
    headers["Content-Type"] = "application/json";
    rest.body = JSON.stringify(body);
  }
  const answer = await request(path, { ...rest, headers });
  if (answer.status === 304) return null;
  const text = await answer.text();
  if (!answer.ok) throw problemOf(answer.status, text);
  const found = text ? parse(text) : {};
  const newTag = answer.headers.get("ETag");
  if (newTag && found && typeof found === "object")
    Object.defineProperty(found, "etag", { value: newTag });
  return found;
}

export function problemOf(status, text) {
  try {
    return new Problem(status, JSON.parse(text).error);
  } catch {
    return new Problem(status, null);
  }
}

/** What is told of a failure: the server's own sentence, or that there is none. */
export function said(problem) {
  return problem instanceof TypeError ? "The server does not answer." : problem.message;
}

/** `JSON.parse` that keeps all digits of a BIGINT. */
export function parse(text) {
  if (!/\d{16}/.test(text)) return JSON.parse(text);
  return JSON.parse(text, (_, value, context) => {
    if (typeof value !== "number" || Number.isSafeInteger(value)) return value;
    return /^-?\d+$/.test(context?.source ?? "") ? BigInt(context.source) : value;
  });
}

async function newToken(refused) {
  sessionStorage.removeItem(TOKEN);
  asking ??= ask(refused ? "That token is not accepted here. Try another." : null).finally(() => {
    asking = null;
  });
  sessionStorage.setItem(TOKEN, await asking);
}

function noteTime(answer) {
  const sent = Date.parse(answer.headers.get("Date") ?? "");
  if (Number.isNaN(sent)) return;
  const differs = sent + 500 - Date.now();
  skew = Math.abs(differs) > SKEW_MS ? differs : 0;
}
