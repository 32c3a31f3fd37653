// 60 minutes of verdicts: a column a minute, and each verdict by itself on its own scale.

import { keyed, make, put, set, svg } from "./dom.js";
import { VERDICTS, named } from "./state.js";
import * as words from "./words.js";

const HEIGHT = 220;
const LEFT = 52;
const TOP = 10;
const BOTTOM = 24;
const FLOOR = HEIGHT - BOTTOM;
const LABELS_PX = 48; // a time, half, and `now`
let pointed = null;
let width = 0; // as it is on the screen, so that texts keep their size
let step = 0;

export function showMinutes(section, minutes) {
  const plot = section.querySelector("#plot");
  if (!plot.firstChild) begin(plot);
  plot.minutes = minutes;
  width = plot.clientWidth || 720;
  step = (width - LEFT) / 60;
  set(plot, "viewBox", `0 0 ${width} ${HEIGHT}`);
  draw(plot, minutes);
  legend(section, minutes);
}

function begin(plot) {
  for (const name of ["grid", "columns", "axis"]) plot.append(svg("g", { class: name }));
  const point = (event) => {
    const box = plot.getBoundingClientRect();
    const index = Math.floor((event.clientX - box.left - LEFT) / step);
    pointed = event.type !== "pointerleave" && index >= 0 && index < 60 ? index : null;
    draw(plot, plot.minutes);
    legend(plot.closest("section"), plot.minutes);
  };
  plot.addEventListener("pointermove", point);
  plot.addEventListener("pointerleave", point);
}

function draw(plot, minutes) {
  const sums = minutes.pass.map((_, index) => VERDICTS.reduce((sum, verdict) => sum + (minutes[verdict][index] ?? 0), 0));
  const top = ceiling(Math.max(...sums));
  const y = (value) => FLOOR - (value / top) * (FLOOR - TOP);
  const [grid, columns, axis] = plot.children;
  keyed(grid, [0, 0.5, 1], String, () => svg("g", {}, svg("line", { x1: LEFT }), svg("text", { x: LEFT - 8, "text-anchor": "end", dy: "0.32em" })),
    (node, part) => {
      const at = FLOOR - part * (FLOOR - TOP);
      set(node.firstChild, "x2", width);
      set(node.firstChild, "y1", at);
      set(node.firstChild, "y2", at);
      set(node.lastChild, "y", at);
      put(node.lastChild, words.round(part * top));
    });
  keyed(columns, VERDICTS, String, (verdict) => svg("path", { class: verdict }), (node, verdict) => {
    const below = VERDICTS.slice(0, VERDICTS.indexOf(verdict));
    const path = minutes[verdict].map((value, index) => {
      if (!value) return "";
      const base = below.reduce((sum, each) => sum + (minutes[each][index] ?? 0), 0);
      const x = (LEFT + (index + 0.1) * step).toFixed(1);
      return `M${x} ${y(base).toFixed(1)}V${y(base + value).toFixed(1)}h${(step * 0.8).toFixed(1)}V${y(base).toFixed(1)}z`;
    });
    set(node, "d", path.join("") || "M0 0");
  });
  marks(axis, minutes);
}

function marks(axis, minutes) {
  const begun = minutes.pass.findIndex((value) => value !== null);
  const quarter = [...Array(60).keys()].filter((index) => Math.round(minutes.first / 60 + index) % 15 === 0 && (60 - index) * step > LABELS_PX);
  const labels = [...quarter.map((index) => ({ at: index, text: words.minute(minutes.first + index * 60), anchor: "middle" })), { at: 60, text: "now", anchor: "end" }];
  if (begun > 8) labels.push({ at: begun / 2, text: begun > 20 ? "this worker had not begun" : "", anchor: "middle", y: FLOOR - 12 });
  keyed(axis, [...labels, { mark: true }], (label) => (label.mark ? "mark" : `${label.text}`),
    (label) => (label.mark ? svg("rect", { class: "mark", y: TOP, width: 1, height: FLOOR - TOP }) : svg("text", {}, label.text)),
    (node, label) => {
      if (label.mark) {
        set(node, "width", step.toFixed(1));
        set(node, "x", (LEFT + (pointed ?? 0) * step).toFixed(1));
        node.classList.toggle("none", pointed === null);
        return;
      }
      set(node, "x", (LEFT + label.at * step).toFixed(1));
      set(node, "y", label.y ?? HEIGHT - 6);
      set(node, "text-anchor", label.anchor);
    });
}

// The least round number that is not below.
function ceiling(value) {
  const ten = 10 ** Math.floor(Math.log10(Math.max(value, 10)));
  return [1, 1.2, 1.6, 2, 2.4, 3, 4, 5, 6, 8, 10].find((step) => step * ten >= value) * ten;
}

function legend(section, minutes) {
  const index = pointed ?? 58;
  put(section.querySelector("#of-minute"), pointed === null ? "Last minute" : words.minute(minutes.first + index * 60));
  keyed(section.querySelector("tbody"), VERDICTS, String,
    (verdict) => make("tr", {},
      make("th", { scope: "row" }, svg("svg", { class: `key ${verdict}`, viewBox: "0 0 10 10", "aria-hidden": "true" }, svg("rect", { width: 10, height: 10, rx: 2 })), named(verdict)),
      make("td", { class: "own" }, svg("svg", { class: `spark ${verdict}`, viewBox: "0 0 120 24", preserveAspectRatio: "none", "aria-hidden": "true" }, svg("path"))),
      make("td", { class: "number" }), make("td", { class: "number" })),
    (node, verdict) => {
      const [, spark, one, hour] = node.children;
      set(spark.querySelector("path"), "d", line(minutes[verdict]));
      put(one, words.count(minutes[verdict][index]));
      put(hour, words.count(minutes[verdict].reduce((sum, value) => sum + (value ?? 0), 0)));
    });
}

// Full minutes only: the running one would always fall.
function line(values) {
  const top = Math.max(...values.map((value) => value ?? 0));
  if (!top) return "M0 0";
  let pen = "M";
  return values.slice(0, 59).map((value, index) => {
    if (value === null) {
      pen = "M";
      return "";
    }
    const point = `${pen}${((index * 120) / 58).toFixed(1)} ${(22 - (value / top) * 20).toFixed(1)}`;
    pen = "L";
    return point;
  }).join("");
}
