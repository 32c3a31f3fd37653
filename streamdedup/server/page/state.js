// What a document says, as data: nothing here touches the page.

export const VERDICTS = ["pass", "duplicate", "blocked", "malformed", "rejected"];
export const ROWS_MAX = 512;

// These end by themselves.
const STARTS = new Set(["starting", "partition-starts", "repartition-starts"]);
const SEVERITIES = ["failure", "warning", "note"];
const STATES = ["stopped", "full", "assigned", "fencing", "folding", "live"];

export const named = (verdict) => (verdict === "pass" ? "passed" : verdict);

// The statuses of all workers that are known, this one first.
export function workers(status) {
  const others = (status.peers ?? []).filter((peer) => peer.answers && peer.status && !isSame(peer.status, status));
  return [status, ...others.map((peer) => peer.status)];
}

const isSame = (one, other) =>
  one.worker.name === other.worker.name && one.worker.up_since === other.worker.up_since;

// How it stands: a kind (the sign and its color), a word, and the server's sentence.
export function standing(status) {
  const failures = status.findings.filter((each) => each.severity === "failure");
  const sentence = whatIsReady(status);
  if (status.worker.phase === "draining") return { kind: "starts", word: "Draining", sentence };
  if (status.ready.is) return { kind: "ready", word: "Ready", sentence };
  const starts = failures.length > 0 && failures.every((each) => STARTS.has(each.id));
  return starts ? { kind: "starts", word: "Starting", sentence } : { kind: "fails", word: "Not ready", sentence };
}

// The remedy stands with the finding.
function whatIsReady({ ready, shards, worker, findings }) {
  const failures = findings.filter((each) => each.severity === "failure");
  if (failures.length === 1) return [failures[0].place, failures[0].sentence].filter(Boolean).join(": ");
  if (!ready.is || !shards.length) return ready.sentence.replace(/^(not )?ready[:,] /, "");
  return `${shards.length} partition${shards.length === 1 ? " of" : "s of"} ${worker.topic} ${shards.length === 1 ? "is" : "are"} live`;
}

// The findings of all workers, the worst first; those that differ in nothing but the place are one.
export function findings(all) {
  const groups = new Map();
  for (const { worker, findings } of all) {
    for (const each of findings) {
      const starts = STARTS.has(each.id);
      const alike = JSON.stringify([each.id, each.remedy, starts ? "" : each.sentence, worker.name]);
      const group = groups.get(alike) ?? { ...each, starts, worker: worker.name, places: [], since: each.since };
      if (each.place) group.places.push(each.place);
      group.since = Math.min(group.since, each.since);
      groups.set(alike, group);
    }
  }
  const weight = (each) => SEVERITIES.indexOf(each.severity) + (each.starts ? 0.5 : 0);
  return [...groups.values()].sort((a, b) => weight(a) - weight(b) || a.since - b.since);
}

// One row a partition: of the workers, then those that only Kafka knows; by trouble, then by number.
export function rows(all) {
  const found = all.flatMap(({ worker, shards }) =>
    shards.map((shard) => ({ ...shard, topic: worker.topic, worker: worker.name, instance: worker.instance, at: all[0].at })),
  );
  const known = new Set(found.map((row) => `${row.topic}/${row.partition}`));
  const others = new Map();
  for (const each of all.flatMap((status) => status.others ?? [])) {
    const place = `${each.topic}/${each.partition}`;
    if (!known.has(place)) others.set(place, { ...each, state: each.owner ? "elsewhere" : "no owner", isOther: true });
  }
  return [...found, ...others.values()].sort(
    (a, b) => trouble(a) - trouble(b) || a.topic.localeCompare(b.topic) || a.partition - b.partition,
  );
}

function trouble(row) {
  if (row.isOther) return row.owner ? 9 : 1.5;
  const state = STATES.indexOf(row.state);
  if (row.state !== "live" || !row.trouble) return state < 2 || row.state === "live" ? state : 2;
  return 4;
}

// Each word must match: a number the partition, other words anything that the row names.
export function matches(row, query) {
  const named = `${row.topic}/${row.partition} ${row.state} ${row.worker ?? ""} ${row.owner ?? ""} ${row.host ?? ""} ${row.trouble ?? ""}`.toLowerCase();
  return query.toLowerCase().split(/\s+/).filter(Boolean)
    .every((word) => (/^\d+$/.test(word) ? Number(word) === row.partition : named.includes(word)));
}

// The minutes of all workers, by this one's clock: {first, pass: [60], ...}; null: none has counted.
export function minutes(all) {
  const { first } = all[0].minutes;
  const sum = { first };
  for (const verdict of VERDICTS) {
    sum[verdict] = Array.from({ length: 60 }, (_, index) => {
      const values = all.map((status) => status.minutes[verdict][index + Math.round((first - status.minutes.first) / 60)] ?? null);
      const counted = values.filter((value) => value !== null);
      return counted.length ? counted.reduce((a, b) => a + b, 0) : null;
    });
  }
  return sum;
}

export function totals(all) {
  const shards = all.flatMap((status) => status.shards);
  const ages = shards.map((shard) => shard.oldest_unread_s).filter((age) => age !== null);
  const minute = Object.fromEntries(
    VERDICTS.map((verdict) => [verdict, all.reduce((sum, status) => sum + status.totals.minute[verdict], 0)]),
  );
  const judged = VERDICTS.reduce((sum, verdict) => sum + minute[verdict], 0);
  return {
    rate: all.reduce((sum, status) => sum + status.totals.rate, 0),
    lag: all.reduce((sum, status) => sum + status.totals.lag, 0),
    oldest_unread_s: ages.length ? Math.max(...ages) : null,
    passed: judged ? minute.pass / judged : null,
    keys: shards.some((shard) => shard.keys !== null) ? shards.reduce((sum, shard) => sum + (shard.keys ?? 0), 0) : null,
    filter_bytes: shards.reduce((sum, shard) => sum + (shard.filter_bytes ?? 0), 0),
  };
}
