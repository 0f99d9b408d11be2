// The server's clock, estimated from the Date headers of its responses.

const SKEW_MS = 1500;

let skew = 0;

/**
 * The server's clock in ms: the local clock, corrected if it differs by more than the precision of
 * the header Date.
 */
export function serverNow() {
  return Date.now() + skew;
}

/**
 * Compares the clocks by the header Date of a response.
 * @param {Response} response
 */
export function noteTime(response) {
  const sent = Date.parse(response.headers.get("Date") ?? "");
  if (Number.isNaN(sent)) return;
  const differs = sent + 500 - Date.now();
  skew = Math.abs(differs) > SKEW_MS ? differs : 0;
}
