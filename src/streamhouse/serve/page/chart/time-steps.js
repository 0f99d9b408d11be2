// The buckets of a chart over time: their length, and its name.

const BINS = 160;
const DAY_MS = 86_400_000;
const STEPS_MS = [
  1,
  10,
  100,
  1000,
  5000,
  15_000,
  60_000,
  300_000,
  900_000,
  3_600_000,
  21_600_000,
  DAY_MS,
];

/** The lengths that the user can choose. */
export const CHOICES_MS = [1000, 60_000, 300_000, 3_600_000, DAY_MS, 7 * DAY_MS];

/**
 * The length of buckets for a range of time, which limits their number.
 * @param {number} from
 * @param {number} to
 */
export function stepFor(from, to) {
  const fine = STEPS_MS.find((each) => (to - from) / each <= BINS);
  return fine ?? DAY_MS * Math.ceil((to - from) / DAY_MS / BINS);
}

/** @param {number} ms */
export function stepText(ms) {
  if (ms >= DAY_MS) return ms === DAY_MS ? "day" : `${ms / DAY_MS} days`;
  if (ms >= 3_600_000) return ms === 3_600_000 ? "hour" : `${ms / 3_600_000} hours`;
  if (ms >= 60_000) return ms === 60_000 ? "minute" : `${ms / 60_000} minutes`;
  return ms >= 1000 ? (ms === 1000 ? "second" : `${ms / 1000} seconds`) : `${ms} ms`;
}
