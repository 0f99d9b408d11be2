// A WebSocket to the server, with the token of this tab and a watchdog for silent connections.

import { parse } from "./exact-json.js";
import { token } from "./requests.js";
import { address } from "./urls.js";

/** @typedef {import("./responses.d.ts").StreamMessage} StreamMessage */

/**
 * Why a connection ended, and whether it had been open.
 * @typedef {{ opened: boolean, code: number, reason: string }} Ended
 */

const SILENT_MS = 90_000;

/**
 * Connects to a path of the server; `take` gets each message.
 * @param {string} path
 * @param {(message: StreamMessage) => void} take
 * @returns {{ socket: WebSocket, ended: Promise<Ended> }}
 */
export function openWebSocket(path, take) {
  const where = address(path);
  where.protocol = where.protocol === "https:" ? "wss:" : "ws:";
  const secret = token();
  const socket = secret
    ? new WebSocket(where, ["streamhouse", `bearer.${base64url(secret)}`])
    : new WebSocket(where);
  let opened = false;
  let watchdog = 0;
  const restartWatchdog = () => {
    clearTimeout(watchdog);
    // Heartbeats are more frequent, so the connection is dead.
    watchdog = setTimeout(() => socket.close(), SILENT_MS);
  };
  restartWatchdog();
  socket.addEventListener("open", () => {
    opened = true;
  });
  socket.addEventListener("message", (event) => {
    restartWatchdog();
    take(/** @type {StreamMessage} */ (parse(event.data)));
  });
  /** @type {Promise<Ended>} */
  const ended = new Promise((resolve) => {
    socket.addEventListener("close", (event) => {
      clearTimeout(watchdog);
      resolve({ opened, code: event.code, reason: event.reason });
    });
  });
  return { socket, ended };
}

/** @param {string} text */
function base64url(text) {
  const bytes = new TextEncoder().encode(text);
  return btoa(String.fromCharCode(...bytes))
    .replaceAll("+", "-")
    .replaceAll("/", "_")
    .replaceAll("=", "");
}
