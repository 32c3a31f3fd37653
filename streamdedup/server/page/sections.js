// Findings, stages, lists, and the last events that did not pass.

import { keyed, make, pairs, put, set, svg } from "./dom.js";
import * as words from "./words.js";

const PLACES_MAX = 6;
const EVENTS_MAX = 15;
const SIGNS = { failure: "M2 2h8v8h-8z", warning: "M6 1l5.4 9.6h-10.8z", note: "M6 2a4 4 0 1 0 0 8a4 4 0 1 0 0-8z" };

export function showFindings(section, findings, now, all) {
  section.hidden = !findings.length;
  put(section.querySelector(".count"), String(findings.length));
  keyed(section.querySelector("ul"), findings,
    (each) => JSON.stringify([each.id, each.worker, each.starts ? "" : each.sentence, each.remedy]),
    makeFinding, (node, each) => updateFinding(node, each, now, all));
}

function makeFinding(each) {
  const link = make("a", { href: `/runbook/${encodeURIComponent(each.id)}`, target: "_blank" }, "Runbook", make("span", { class: "unseen" }, ` on ${each.id}, in a new tab`));
  return make("li", { class: each.starts ? "starts" : each.severity },
    svg("svg", { class: "dot", viewBox: "0 0 12 12", "aria-hidden": "true" }, svg("path", { d: SIGNS[each.severity] ?? SIGNS.note })),
    make("div", {}, make("p", { class: "what" }), make("p", { class: "sentence" }), make("p", { class: "remedy" })),
    make("p", { class: "when" }, make("span"), link));
}

function updateFinding(node, each, now, all) {
  const [what, sentence, remedy] = node.children[1].children;
  const more = each.places.length - PLACES_MAX;
  const places = each.places.slice(0, PLACES_MAX).join(", ") + (more > 0 ? ` and ${more} more` : "");
  const severity = each.starts ? "starts" : each.severity;
  put(what, [severity, all.length > 1 ? each.worker : "", places].filter(Boolean).join(" · "));
  put(sentence, each.starts && each.places.length > 1 ? `${each.places.length} partitions start: see their states below` : each.sentence);
  remedy.hidden = !each.remedy;
  put(remedy, each.remedy ?? "");
  put(node.children[2].firstChild, words.span(Math.max(0, now - each.since)));
}

export function showUnanswered(list, peers) {
  const away = (peers ?? []).filter((peer) => !peer.answers);
  list.hidden = !away.length;
  keyed(list, away, (peer) => peer.address, () => make("li"), (node, peer) => {
    const since = peer.since === null ? "" : ` since ${words.moment(peer.since, peer.asked_at ?? peer.since)}`;
    put(node, `The worker at ${peer.address} has not answered${since}${peer.error ? `: ${peer.error}` : ""}`);
  });
}

export function showStages(section, stages) {
  section.hidden = !stages?.copying && !stages?.judging;
  const shown = [["Copying", stages?.copying], ["Judging", stages?.judging]].filter(([, stage]) => stage);
  keyed(section.querySelector(".stages"), shown, ([name]) => name,
    ([name]) => make("div", {}, make("h3", {}, name), make("p", { class: "way" }), make("p", { class: "paused" }), make("dl", { class: "facts" })),
    (node, [name, stage]) => {
      const [, way, paused, list] = node.children;
      put(way, name === "Copying" ? `${stage.topic} → ${stage.middle}${stage.ready ? "" : ", not ready"}` : `from ${stage.middle}`);
      paused.hidden = !stage.paused;
      put(paused, stage.paused ?? "");
      pairs(list, name === "Copying" ? ofCopying(stage) : ofJudging(stage));
    });
}

const ofCopying = (stage) => [
  ["Partitions", words.count(stage.partitions)], ["Events / s", words.rate(stage.rate)], ["Lag", words.count(stage.lag)],
  ["Copied", words.short(stage.copied)], ["Unread in the middle", words.count(stage.unread)],
  ...[["Held", stage.held], ["Stopped", stage.stopped], ["Topics left out", stage.left_out]].filter(([, n]) => n).map(([name, n]) => [name, words.count(n)]),
];

const ofJudging = (stage) => [
  ["Partitions", words.count(stage.partitions)], ["Lag", words.count(stage.lag)],
  ...(stage.uncopied === null ? [] : [["Not copied yet", words.count(stage.uncopied)]]),
];

export function showLists(section, lists) {
  section.hidden = !lists.length;
  keyed(section.querySelector("tbody"), lists, (each) => `${each.list} ${each.name}`,
    () => make("tr", {}, make("th", { scope: "row" }, make("span"), make("span", { class: "refused" })),
      ...["Use", "Version", "Keys", "Changes"].map((label) => make("td", { "data-label": label }))),
    (node, each) => {
      const [name, use, version, keys, changes] = node.children;
      put(name.firstChild, each.name);
      name.lastChild.hidden = !each.refused;
      put(name.lastChild, each.refused ? `A newer file is refused: ${each.refused}` : "");
      put(use, each.list === "allowlist" ? "allow" : "block");
      put(version, each.version ?? words.NONE);
      put(keys, words.count(each.keys));
      put(changes, words.count(each.changes));
      for (const cell of [keys, changes]) set(cell, "class", "number");
    });
}

export function showEvents(section, events, now, ask) {
  section.hidden = !events.length;
  keyed(section.querySelector("tbody"), events.slice(0, EVENTS_MAX), (each) => `${each.topic}/${each.partition}/${each.offset}`,
    (each) => {
      const place = `${each.topic}/${each.partition}/${each.offset}`;
      const time = each.event_time_ms === null ? words.NONE : words.moment(each.event_time_ms / 1000, now);
      const list = [each.list, each.rule && `by ${each.rule}`].filter(Boolean).join(", ");
      return make("tr", {},
        make("td", { class: "c-time" }, time),
        make("th", { scope: "row" }, ask ? button(place, ask) : place),
        make("td", {}, svg("svg", { class: `key ${each.verdict}`, viewBox: "0 0 10 10", "aria-hidden": "true" }, svg("rect", { width: 10, height: 10, rx: 2 })), each.verdict),
        make("td", {}, each.reason ?? "", make("span", { class: "aside" }, list ? ` ${list}` : "")));
    }, () => {});
}

function button(place, ask) {
  const node = make("button", { type: "button", class: "place" }, place, make("span", { class: "unseen" }, ": ask about it"));
  node.addEventListener("click", () => ask(place));
  return node;
}
