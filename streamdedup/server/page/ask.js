// Asking about a key or an event, and acting: both with the operator's token, which this tab keeps.

import { $, make, put } from "./dom.js";

const KEPT = "streamdedup token";
const HINTS = {
  key: "As an event has it, before it is normalized. The answer shows it; no log does.",
  at: "topic/partition/offset",
};
const POLL_MS = 1000;
let asked = 0;

export function beginAsking() {
  const token = $("token");
  token.value = sessionStorage.getItem(KEPT) ?? "";
  token.addEventListener("input", () => sessionStorage.setItem(KEPT, token.value));
  $("by").addEventListener("change", hint);
  $("token-form").addEventListener("submit", (event) => event.preventDefault());
  $("question").addEventListener("submit", (event) => {
    event.preventDefault();
    explain($("by").value, $("asked-for").value);
  });
  for (const button of document.querySelectorAll("[data-act]")) button.addEventListener("click", () => act(button));
  hint();
}

export function showAsking(section, status, isAlone) {
  section.hidden = false;
  $("how").hidden = status.worker.can_act;
  $("desk").hidden = !status.worker.can_act;
  put($("acts-on"), isAlone ? "this worker" : `${status.worker.name} alone`);
}

export function askAbout(place) {
  $("by").value = "at";
  $("asked-for").value = place;
  hint();
  $("ask").scrollIntoView({ block: "start" });
  $("asked-for").focus({ preventScroll: true });
}

function hint() {
  put($("asked-says"), HINTS[$("by").value]);
}

async function explain(by, value) {
  const mine = (asked += 1);
  if (!value.trim()) return answer("bad", by === "key" ? "Type a key first." : "Type an event's place first: topic/partition/offset.");
  answer("busy", "Asking");
  try {
    const { id } = await call("POST", "/api/explain", { [by]: by === "at" ? value.trim() : value });
    for (;;) {
      const got = await call("GET", `/api/explain/${id}`);
      if (mine !== asked) return undefined;
      if (got.state === "done") return answer("done", got.text ?? JSON.stringify(got.answer, null, 2), got.said);
      if (got.state === "failed") return answer("bad", got.error);
      answer("busy", got.progress || "Looking");
      await new Promise((resolve) => setTimeout(resolve, POLL_MS));
    }
  } catch (error) {
    return mine === asked ? answer("bad", error.message) : undefined;
  }
}

function answer(kind, text, said = []) {
  $("answer").replaceChildren(make("p", { class: kind }, text), ...said.map((line) => make("p", { class: "quiet" }, line)));
}

async function act(button) {
  const name = button.dataset.act;
  if (name === "drain" && !(await isSure())) return;
  put($("acted"), "Working");
  button.disabled = true;
  try {
    const { done } = await call("POST", `/api/${name}`, {});
    $("acted").className = "done";
    put($("acted"), done);
  } catch (error) {
    $("acted").className = "bad";
    put($("acted"), error.message);
  }
  button.disabled = false;
  button.focus({ preventScroll: true });
}

function isSure() {
  const dialog = $("sure");
  dialog.returnValue = "no";
  dialog.showModal();
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => resolve(dialog.returnValue === "yes"), { once: true });
  });
}

async function call(method, path, body) {
  const token = $("token").value.trim();
  if (!token) {
    $("token").focus();
    throw new Error("Give the token first.");
  }
  const headers = { Authorization: `Bearer ${token}`, ...(body ? { "Content-Type": "application/json" } : {}) };
  let response;
  try {
    response = await fetch(path, { method, headers, body: body && JSON.stringify(body), cache: "no-store" });
  } catch {
    throw new Error("The worker did not answer.");
  }
  if (response.status === 401) throw new Error("The worker does not take this token.");
  if (!response.ok) throw new Error((await response.text()).trim() || `The worker answered ${response.status}.`);
  return response.json();
}
