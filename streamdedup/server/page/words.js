// Numbers, spans and times as texts, with units.

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const tenth = new Intl.NumberFormat("en", { minimumFractionDigits: 1, maximumFractionDigits: 1 });
const clock = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const hours = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit" });
const day = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short" });

export const NONE = "–";
export const count = (n) => (n === null || n === undefined ? NONE : whole.format(n));

export const rate = (n) =>
  n === null || n === undefined ? NONE : n === 0 ? "0" : n < 100 ? tenth.format(n) : whole.format(n);

// Three digits, and the unit: 4.66 M.
export function short(n) {
  if (n === null || n === undefined) return NONE;
  return scaled(n, ["", " k", " M", " G", " T"]);
}

export const bytes = (n) => (n === null || n === undefined ? NONE : scaled(n, [" B", " kB", " MB", " GB", " TB"]));

function scaled(n, units) {
  let step = 0;
  while (Math.abs(n) >= 999.5 && step < units.length - 1) {
    n /= 1000;
    step += 1;
  }
  const digits = step === 0 || Math.abs(n) >= 99.95 ? 0 : Math.abs(n) >= 9.995 ? 1 : 2;
  return n.toFixed(digits) + units[step];
}

// An axis has few digits: 1.5 M.
export const round = (n) => short(n).replace(/\.(\d*?)0+( |$)/, (_, left, end) => (left && `.${left}`) + end);

export const probability = (p) => (p === null || p === undefined ? NONE : p === 0 ? "0" : p.toExponential(1));

export const limit = (p) => probability(p).replace(".0e", "e");

export const percent = (ratio) => `${Math.floor(ratio * 100)} %`;

export function span(s) {
  if (s === null || s === undefined) return NONE;
  if (s < 0.05) return "0 s";
  if (s < 9.95) return `${tenth.format(s)} s`;
  if (s < 99.5) return `${Math.round(s)} s`;
  if (s < 5970) return `${Math.round(s / 60)} min`;
  if (s < 48 * 3600) return `${Math.floor(s / 3600)} h ${String(Math.floor((s % 3600) / 60)).padStart(2, "0")}`;
  return s < 730 * 86400 ? `${whole.format(Math.floor(s / 86400))} d` : `${whole.format(Math.floor(s / 31557600))} years`;
}

// Dates have ends.
const date = (at) => new Date(Math.max(0, Math.min(at, 8e12)) * 1e3);

// A moment in the reader's time; with the day if that is not the day of `now`.
export function moment(at, now) {
  const then = date(at);
  const isToday = then.toDateString() === date(now).toDateString();
  return isToday ? clock.format(then) : `${day.format(then)}, ${hours.format(then)}`;
}

export const minute = (at) => hours.format(date(at));

export const plural = (n, noun) => `${whole.format(n)} ${noun}${n === 1 ? "" : "s"}`;
