// Formats times of day and ages.

const CLOCK = new Intl.DateTimeFormat(undefined, {
  hour: "2-digit",
  minute: "2-digit",
  second: "2-digit",
  hour12: false,
});
const DAY = new Intl.DateTimeFormat(undefined, { month: "short", day: "numeric" });

/** @param {number} ms */
export function clock(ms) {
  return CLOCK.format(ms);
}

/**
 * The time of day, with the date unless it is today.
 * @param {number} ms
 */
export function dateAndTime(ms) {
  const today = new Date().toDateString() === new Date(ms).toDateString();
  return today ? CLOCK.format(ms) : `${DAY.format(ms)} ${CLOCK.format(ms)}`;
}

/**
 * "0.2 s ago", "3 min ago".
 * @param {number} ms
 */
export function ago(ms) {
  const seconds = Math.max(0, ms) / 1000;
  if (seconds < 10) return `${seconds.toFixed(1)} s ago`;
  if (seconds < 90) return `${Math.round(seconds)} s ago`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min ago`;
  if (seconds < 129_600) return `${Math.round(seconds / 3600)} h ago`;
  return `${Math.round(seconds / 86_400)} days ago`;
}
