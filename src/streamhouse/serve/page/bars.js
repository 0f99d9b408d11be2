// Bars by key, which grow, shrink and change places; values below zero go to the left.

import { s, say } from "./dom.js";

const LEAST_PX = 26;
const MOST_PX = 40;
const GAP_SHARE = 0.28;
const LABEL_SHARE = 0.32;
const GONE_MS = 400;
const READ_ITEMS = 12;

export class Bars {
  #bars = new Map();
  #pen = document.createElement("canvas").getContext("2d");

  constructor() {
    this.zero = s("line", { class: "axis", y1: 0 });
    this.svg = s("svg", { class: "bars", role: "img" }, this.zero);
  }

  /** Draws `[{label, value, text}]` from top to bottom, into so many pixels if they suffice. */
  draw(items, { width, height }, title) {
    const scale = this.#scale(items, width, height);
    const all = items.length * scale.step + 2;
    const told = items.slice(0, READ_ITEMS).map((item) => `${item.label} ${item.text}`);
    this.svg.setAttribute("viewBox", `0 0 ${width} ${all}`);
    this.svg.setAttribute("width", width);
    this.svg.setAttribute("height", all);
    this.svg.setAttribute("aria-label", `${title}: ${told.join(", ")}`);
    const seen = new Set();
    items.forEach((item, index) => {
      seen.add(item.label);
      const bar = this.#bars.get(item.label) ?? this.#make(item, index, scale);
      this.#shape(bar, item, index, scale);
    });
    this.#leave(seen);
    this.#axis(scale, all);
  }

  /** Where things stand: `left` of the bars, `at(value)`, and how far one bar is from the next. */
  #scale(items, width, height) {
    const font = getComputedStyle(this.svg).fontFamily || "sans-serif";
    const wide = (texts) => Math.max(0, ...texts.map((text) => this.#pen.measureText(text).width));
    this.#pen.font = `600 13px ${font}`;
    const right = Math.ceil(wide(items.map((item) => item.text))) + 14;
    this.#pen.font = `13px ${font}`;
    const labels = Math.ceil(wide(items.map((item) => item.label))) + 12;
    const left = Math.min(Math.round(width * LABEL_SHARE), labels);
    const least = Math.min(0, ...items.map((item) => item.value));
    const most = Math.max(0, ...items.map((item) => item.value));
    const room = Math.max(20, width - left - right);
    const at = (value) => left + ((value - least) / (most - least || 1)) * room;
    const step = Math.min(MOST_PX, Math.max(LEAST_PX, Math.floor((height - 2) / items.length)));
    return { left, at, step, width, below: least < 0 };
  }

  #make(item, index, { at, step }) {
    const middle = { "dominant-baseline": "central", "text-anchor": "end" };
    const bar = {
      group: s("g", { class: "bar" }),
      rect: s("rect", { rx: 3 }),
      label: s("text", { class: "label", ...middle }),
      value: s("text", { class: "value", ...middle }),
    };
    bar.group.append(bar.rect, bar.label, bar.value);
    bar.rect.style.setProperty("x", `${at(0)}px`);
    bar.rect.style.setProperty("width", "0px");
    bar.group.style.transform = `translateY(${index * step}px)`;
    this.svg.append(bar.group);
    // Read, so that the first width is one to grow from.
    bar.group.getBoundingClientRect();
    this.#bars.set(item.label, bar);
    return bar;
  }

  #shape({ group, rect, label, value }, item, index, { left, at, step, width }) {
    const gap = Math.round(step * GAP_SHARE);
    const [zero, end] = [at(0), at(item.value)];
    group.style.transform = `translateY(${index * step}px)`;
    rect.setAttribute("y", gap / 2);
    rect.setAttribute("height", step - gap);
    rect.style.setProperty("x", `${Math.min(zero, end)}px`);
    rect.style.setProperty("width", `${Math.max(item.value ? 1.5 : 0, Math.abs(end - zero))}px`);
    rect.classList.toggle("negative", item.value < 0);
    label.setAttribute("x", left - 10);
    label.setAttribute("y", step / 2);
    say(label, this.#cut(item.label, left - 12));
    value.setAttribute("x", width - 1);
    value.setAttribute("y", step / 2);
    say(value, item.text);
  }

  #cut(text, room) {
    if (this.#pen.measureText(text).width <= room) return text;
    let kept = text;
    while (kept.length > 1 && this.#pen.measureText(`${kept}…`).width > room) {
      kept = kept.slice(0, -1);
    }
    return `${kept}…`;
  }

  #leave(seen) {
    for (const [label, { group }] of this.#bars) {
      if (seen.has(label)) continue;
      this.#bars.delete(label);
      group.classList.add("gone");
      setTimeout(() => group.remove(), GONE_MS);
    }
  }

  #axis({ at, below }, height) {
    this.zero.style.display = below ? "" : "none";
    this.zero.setAttribute("x1", at(0));
    this.zero.setAttribute("x2", at(0));
    this.zero.setAttribute("y2", height);
  }
}
