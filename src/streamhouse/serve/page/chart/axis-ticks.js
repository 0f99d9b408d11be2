// Round tick values for the axis of a chart.

/**
 * Round tick values that enclose the range, in about `wanted` steps.
 * @param {number} least
 * @param {number} most
 * @param {number} wanted
 */
export function niceTicks(least, most, wanted) {
  if (least === most)
    [least, most] = least === 0 ? [0, 1] : [Math.min(0, least), Math.max(0, most)];
  // The axis begins at zero unless that would flatten the line.
  if (least > 0 && least < most * 0.6) least = 0;
  const rough = (most - least) / wanted;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step =
    [1, 2, 5].map((factor) => factor * power).find((each) => each >= rough) ?? 10 * power;
  const first = Math.floor(least / step);
  const last = Math.ceil(most / step);
  return Array.from({ length: last - first + 1 }, (_, index) =>
    Number(((first + index) * step).toPrecision(12)),
  );
}
