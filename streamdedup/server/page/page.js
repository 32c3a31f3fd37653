// Polls /api/status while the page is seen, and shows what it says. docs/status.schema.json has the document.

import { askAbout, beginAsking, showAsking } from "./ask.js";
import { $, nameRole, put, set } from "./dom.js";
import { showPartitions } from "./partitions.js";
import { showMinutes } from "./plot.js";
import { showEvents, showFindings, showLists, showStages, showUnanswered } from "./sections.js";
import { findings, minutes, rows, standing, workers } from "./state.js";
import * as words from "./words.js";

const EVERY_MS = 2000;
const AWAY_MS_MAX = 30_000;
const ANSWER_MS_MAX = 8000;

const DISK = "M12 2a10 10 0 1 0 0 20a10 10 0 1 0 0-20z";
const SIGNS = {
  ready: `${DISK}M10.7 16.6l-4.3-4.3l1.7-1.7l2.6 2.6l5.5-5.5l1.7 1.7z`,
  starts: `${DISK}M10.9 6h2.2v5.6l3.6 2.1l-1.1 1.9l-4.7-2.8z`,
  fails: "M8 2h8l6 6v8l-6 6h-8l-6-6v-8zM10.8 6.5h2.4v7h-2.4zM10.8 15.2h2.4v2.4h-2.4z",
  away: `${DISK}M6.5 10.8h11v2.4h-11z`,
};
const MARKS = { ready: "✓", starts: "…", fails: "✕", away: "?" };

let status = null;
let gotAt = 0; // by this machine's clock, ms
let awaySince = null;
let awayBecause = "";
let wait = EVERY_MS;
let nextAt = 0;
let timer = null;
let asking = false;

async function ask() {
  clearTimeout(timer);
  if (document.hidden || asking) return;
  asking = true;
  try {
    const response = await fetch("/api/status", { cache: "no-store", signal: AbortSignal.timeout(ANSWER_MS_MAX) });
    if (!response.ok) throw new Error(await refusal(response));
    status = await response.json();
    gotAt = Date.now();
    awaySince = null;
    wait = EVERY_MS;
  } catch (error) {
    awaySince ??= Date.now();
    awayBecause = error.message.startsWith("it answered") ? error.message : "it does not answer; if it has ended, the end of its log says why";
    wait = Math.min(wait * 1.6, AWAY_MS_MAX);
  }
  asking = false;
  nextAt = Date.now() + wait;
  timer = setTimeout(ask, wait);
  show();
}

async function refusal(response) {
  const isText = response.headers.get("Content-Type")?.startsWith("text/plain");
  return `it answered ${response.status}${isText ? `: ${(await response.text()).trim().slice(0, 300)}` : ""}`;
}

function show() {
  document.body.classList.toggle("away", awaySince !== null);
  showNow();
  tick();
  if (!status) return;
  const all = workers(status);
  put($("who"), who(status.worker));
  showFindings($("findings"), findings(all), status.at, all);
  showUnanswered($("unanswered"), status.peers);
  const isCopier = !status.worker.judges && !status.others?.length;
  $("partitions").hidden = isCopier;
  $("minutes").hidden = isCopier;
  showPartitions($("partitions"), all, rows(all), $("filter").value);
  showMinutes($("minutes"), minutes(all));
  showStages($("stages"), status.stages);
  showLists($("lists"), status.lists);
  showEvents($("events"), status.not_passed, status.at, status.worker.can_act ? askAbout : null);
  showAsking($("ask"), status, all.length === 1);
  put($("footer"), footer(status.worker));
}

function showNow() {
  const away = awaySince !== null;
  if (!status && !away) return;
  const { kind, word, sentence } = away ? { kind: "away", word: "No answer", sentence: "" } : standing(status);
  set($("now"), "class", `now ${kind}`);
  set($("sign").firstChild, "d", SIGNS[kind]);
  $("sentence").classList.toggle("long", sentence.length > 90);
  put($("sentence"), sentence ? `${word}: ${sentence}` : `${word} from the worker`);
  document.title = `${MARKS[kind]} ${status?.worker.name ?? "streamdedup"} – ${word}`;
}

// What moves between two answers: how long it has been.
function tick() {
  const now = Date.now();
  if (awaySince !== null) {
    const left = Math.max(0, Math.ceil((nextAt - now) / 1000));
    put($("since"), `since ${words.moment(awaySince / 1000, now / 1000)}, ${awayBecause}. Asking again in ${left} s.`);
    put($("asked"), status ? `as of ${words.moment(gotAt / 1000, now / 1000)}` : "");
  } else if (status) {
    const at = status.at + (now - gotAt) / 1000;
    put($("since"), `since ${words.moment(status.ready.since, at)}, for ${words.span(at - status.ready.since)}${beside()}`);
    put($("asked"), "");
  }
}

function beside() {
  const found = findings(workers(status)).length;
  const peers = status.peers ?? [];
  const answering = peers.filter((peer) => peer.answers).length;
  const answers = peers.length ? ` · ${answering} of ${words.plural(peers.length, "peer")} answer` : "";
  return (found ? ` · ${words.plural(found, "finding")}` : " · no findings") + answers;
}

function who(worker) {
  return `${worker.name} · ${worker.topic} → ${worker.output}`;
}

function footer(worker) {
  return [
    `streamdedup ${worker.version}`, `group ${worker.group}`, worker.delivery.replaceAll("_", " "),
    `${worker.filter} filter${worker.window_s === null ? "" : `, window ${words.span(worker.window_s)}`}`,
    worker.shadow ? "shadow: every event passes" : "", `up since ${words.moment(worker.up_since, status.at)}`,
    `Python ${worker.python}`, worker.meaning ? `meaning ${worker.meaning}` : "",
  ].filter(Boolean).join(" · ");
}

document.addEventListener("visibilitychange", ask);
document.addEventListener("show", show);
$("filter").addEventListener("input", show);
addEventListener("resize", () => status && showMinutes($("minutes"), minutes(workers(status))));
setInterval(() => document.hidden || tick(), 1000);
document.querySelectorAll("table, table *").forEach(nameRole);
beginAsking();
ask();
