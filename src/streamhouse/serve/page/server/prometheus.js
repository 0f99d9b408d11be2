// Reads the metrics of the server in Prometheus' text format.

const SAMPLE = /^(\w+)(?:\{(.*)\})? ([-+.\w]+)$/;
const LABEL = /(\w+)="((?:[^"\\]|\\.)*)"/g;

/** @typedef {{ name: string, labels: { [name: string]: string }, value: number }} Sample */

/**
 * @param {string} text
 * @returns {Sample[]}
 */
export function samplesOf(text) {
  return text.split("\n").flatMap((line) => {
    const [, name, labels = "", value] = SAMPLE.exec(line) ?? [];
    if (!name) return [];
    const pairs = [...labels.matchAll(LABEL)].map(([, label, found]) => [label, found]);
    return [{ name, labels: Object.fromEntries(pairs), value: Number(value) }];
  });
}
