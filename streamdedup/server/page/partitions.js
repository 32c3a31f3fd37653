// The table of partitions: a row each, and below it, if asked for, its details.

import { $, keyed, make, pairs, put, set, svg } from "./dom.js";
import { ROWS_MAX, VERDICTS, matches, named, totals } from "./state.js";
import * as words from "./words.js";

// By shape, too: a disk lives, a ring gets there, a diamond and a square have stopped.
const SIGNS = {
  live: "M6 2a4 4 0 1 0 0 8a4 4 0 1 0 0-8z",
  full: "M6 1.2l4.8 4.8l-4.8 4.8l-4.8-4.8z",
  stopped: "M2 2h8v8h-8z",
  starts: "M6 1.5a4.5 4.5 0 1 0 0 9a4.5 4.5 0 1 0 0-9zM6 3.5a2.5 2.5 0 1 1 0 5a2.5 2.5 0 1 1 0-5z",
};
const COLUMNS = ["place", "worker", "state", "lag", "age", "rate", "keys", "full", "error", "snapshot"];
const LABELS = {
  worker: "Worker", lag: "Lag", age: "Oldest unread", rate: "Events / s", keys: "Keys of capacity", full: "Full in",
  error: "Error rate", snapshot: "Snapshot",
};
const NEAR_FULL = 0.9;
const NEAR_S = 7 * 86400;
const open = new Set();

export function showPartitions(section, all, rows, query) {
  const shown = rows.filter((row) => matches(row, query));
  const own = rows.filter((row) => !row.isOther).length;
  const body = section.querySelector("tbody");
  section.classList.toggle("of-one", all.length === 1 && !rows.some((row) => row.isOther));
  section.classList.toggle("of-one-topic", new Set(rows.map((row) => row.topic)).size < 2);
  put(section.querySelector(".count"), query && shown.length < rows.length ? `${shown.length} of ${rows.length}` : String(own));
  section.querySelector("table").hidden = !shown.length;
  section.querySelector(".filter").hidden = rows.length < 2;
  showTotals($("totals"), all, own);
  showRest($("no-rows"), rows, shown);
  const entries = shown.slice(0, ROWS_MAX).flatMap((row) => {
    const entry = { key: `${row.instance} ${row.topic}/${row.partition}`, row };
    return open.has(entry.key) ? [entry, { key: `${entry.key} details`, row, isDetails: true }] : [entry];
  });
  keyed(body, entries, (entry) => entry.key, makeRow, updateRow);
}

function showRest(node, rows, shown) {
  const hidden = shown.length - ROWS_MAX;
  node.hidden = shown.length > 0 && hidden <= 0;
  if (!rows.length) put(node, "This worker has no partitions.");
  else if (!shown.length) put(node, "No partition matches the filter.");
  else if (hidden > 0) put(node, `${words.plural(hidden, "more partition")}: filter to see them.`);
}

function showTotals(list, all, own) {
  list.hidden = !own;
  const sum = totals(all);
  const figures = [
    ["Events / s", words.rate(sum.rate)],
    ["Lag", words.count(sum.lag)],
    ["Oldest unread", words.span(sum.oldest_unread_s)],
    ["Passed, last minute", sum.passed === null ? words.NONE : `${(sum.passed * 100).toFixed(1)} %`],
    ["Keys", words.short(sum.keys)],
    ["Filters", words.bytes(sum.filter_bytes)],
  ];
  pairs(list, figures);
}

function makeRow(entry) {
  if (entry.isDetails) return make("tr", { class: "details" }, make("td", { colspan: COLUMNS.length }, make("dl")));
  const cells = COLUMNS.map((name) =>
    make(name === "place" ? "th" : "td", {
      class: `c-${name}`, "data-label": LABELS[name] ?? null,
      ...(name === "place" ? { scope: "row" } : {}),
    }));
  const row = make("tr", {}, ...cells);
  row.cell = Object.fromEntries(COLUMNS.map((name, index) => [name, cells[index]]));
  const names = [make("span", { class: "aside" }), make("span")];
  row.cell.place.append(...(entry.row.isOther ? names : [details(entry.key, names)]));
  row.cell.state.append(
    svg("svg", { class: "dot", viewBox: "0 0 12 12", "aria-hidden": "true" }, svg("path", { "fill-rule": "evenodd" })),
    make("span", { class: "word" }), make("span", { class: "aside" }), bar("done"));
  row.cell.keys.append(make("div", { class: "gauge" }, bar("capacity"), make("span", { class: "figure" })));
  row.cell.error.append(make("span"), make("span", { class: "aside" }));
  return row;
}

function details(key, names) {
  const button = make("button", { type: "button", class: "place", "aria-expanded": "false" }, ...names);
  button.addEventListener("click", () => {
    if (!open.delete(key)) open.add(key);
    document.dispatchEvent(new Event("show"));
  });
  return button;
}

function bar(kind) {
  return svg("svg", { class: `bar ${kind}`, viewBox: "0 0 100 6", preserveAspectRatio: "none", "aria-hidden": "true" },
    svg("rect", { class: "whole", width: 100, height: 6 }), svg("rect", { class: "part", width: 0, height: 6 }));
}

function updateRow(node, { key, row, isDetails }) {
  if (isDetails) return updateDetails(node, row);
  const { cell } = node;
  set(node, "class", row.isOther ? "other" : null);
  const place = row.isOther ? cell.place : cell.place.firstChild;
  put(place.firstChild, `${row.topic}/`);
  put(place.lastChild, String(row.partition));
  if (!row.isOther) set(place, "aria-expanded", String(open.has(key)));
  put(cell.worker, row.isOther ? ([row.owner, row.host?.replace(/^\//, "")].filter(Boolean).join(" · ") || words.NONE) : row.worker);
  updateState(cell.state, row);
  put(cell.lag, words.count(row.lag));
  cell.lag.classList.toggle("bad", Boolean(row.isOther && !row.owner));
  if (row.isOther) {
    for (const name of COLUMNS.slice(4)) cell[name].replaceChildren();
    return undefined;
  }
  put(cell.age, words.span(row.oldest_unread_s));
  put(cell.rate, words.rate(row.rate));
  updateKeys(cell.keys, row);
  put(cell.full, fullIn(row));
  cell.full.classList.toggle("warn", row.full_in_s !== null && row.full_in_s < NEAR_S && row.state !== "full");
  const [rate, allowed] = cell.error.children;
  put(rate, words.probability(row.error_rate));
  put(allowed, row.error_rate_allowed === null ? "" : ` of ${words.limit(row.error_rate_allowed)}`);
  cell.error.classList.toggle("bad", row.error_rate !== null && row.error_rate_allowed !== null && row.error_rate > row.error_rate_allowed);
  put(cell.snapshot, row.snapshot ? words.span(row.snapshot.age_s) : "none");
  return undefined;
}

function fullIn(row) {
  return row.state === "full" ? "now" : words.span(row.full_in_s);
}

function updateState(cell, row) {
  const [dot, word, aside, done] = cell.children;
  const kind = SIGNS[row.state] ? row.state : row.isOther ? (row.owner ? "elsewhere" : "stopped") : "starts";
  set(cell, "data-kind", row.state === "live" && row.trouble ? "warns" : kind);
  set(dot.firstChild, "d", SIGNS[kind] ?? SIGNS.starts);
  put(word, row.state);
  const fold = row.state === "folding" ? row.fold : null;
  done.classList.toggle("none", !fold);
  set(done.lastChild, "width", fold ? Math.round(fold.ratio * 100) : 0);
  put(aside, fold ? ` ${words.percent(fold.ratio)}${fold.left_s === null ? "" : `, ${words.span(fold.left_s)} left`}` : "");
}

function updateKeys(cell, row) {
  const [capacity, figure] = cell.firstChild.children;
  const ratio = row.keys !== null && row.capacity ? row.keys / row.capacity : null;
  capacity.classList.toggle("none", ratio === null);
  set(capacity.lastChild, "width", (Math.min(1, ratio ?? 0) * 100).toFixed(1));
  set(cell, "data-kind", ratio === null || ratio < NEAR_FULL ? null : row.state === "full" ? "full" : "warns");
  put(figure, row.keys === null ? words.NONE : row.capacity ? `${words.short(row.keys)} of ${words.round(row.capacity)}` : words.short(row.keys));
}

function updateDetails(node, row) {
  const facts = [
    ["State", `${row.state} since ${words.moment(row.since, row.at)}`],
    ...(row.trouble ? [["Trouble", row.trouble]] : []),
    ...(row.fold ? [["Fold", `at offset ${row.fold.position}, from ${row.fold.start} to ${row.fold.end}`]] : []),
    ["Filter", `${words.bytes(row.filter_bytes)}, error rate ${words.probability(row.error_rate)} of ${words.limit(row.error_rate_allowed)} allowed`],
    ["Snapshot", row.snapshot ? `${words.bytes(row.snapshot.bytes)}, ${words.span(row.snapshot.age_s)} old, ${words.count(row.snapshot.behind)} offsets behind` : "none"],
    ...VERDICTS.map((verdict) => [named(verdict), `${words.count(row.verdicts[verdict])}, ${words.count(row.minute[verdict])} in the last minute`]),
  ];
  pairs(node.querySelector("dl"), facts);
}
