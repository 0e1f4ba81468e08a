// One job: curves, silos, contract, receipts.

import { chart } from "./chart.js";
import { classes } from "./classes.js";
import { h, table } from "./dom.js";
import { badge, events, marks, rounds, section, waitingFor } from "./parts.js";
import { between, count, figure, plural, size, spaced, time } from "./format.js";

/** Everything about one job. */
export function jobPage(view) {
  document.getElementById("place").textContent = view.place === "machine" ? "on this machine" : "on this cluster";
  return [
    h("p", { class: "way" }, h("a", { href: "#/" }, "All jobs"), h("span", { class: "quiet" }, ` / ${view.namespace}`)),
    h("h1", { tabindex: "-1" }, view.name, " ", badge(view.state, view.tone)),
    h("div", { class: `now ${view.tone}` }, waitingFor(view.waiting),
      view.waiting.message && h("p", { class: "message" },
        view.waiting.reason && view.waiting.reason !== view.state && [h("b", null, view.waiting.reason), " "], view.waiting.message)),
    h("div", { class: "facts" }, rounds(view), marks(view), facts(view)),
    curves(view),
    view.scores && section("Scores by silo", scores(view.scores)),
    view.classes.length > 0 && section("Classes", classes(view.classes)),
    view.findings.length > 0 && section("Data", findings(view.findings)),
    section("Silos", members(view.members)),
    events(view.events),
    section("Contract", contract(view.contract)),
    section("Refused", refusals(view)),
    section("Receipts", receipts(view)),
    view.conditions.length > 0 && section("Conditions", conditions(view.conditions)),
    view.place === "cluster" && section("In a terminal", h("pre", { tabindex: "0" }, commands(view))),
  ].filter(Boolean);
}

function facts(view) {
  const rows = [
    ["method", view.method],
    ["model", view.parameters ? `${view.model}, ${count(view.parameters)} parameters` : view.model],
    ...mainFirst(view, Object.keys(view.metrics)).map((name) => [name, figure(name, view.metrics[name])]),
    ...Object.entries(view.training).map(([name, value]) => [`${name} in training`, figure(name, value)]),
    ["best model", view.best && `round ${view.best.round}, ${view.best.metric} ${figure(view.best.metric, view.best.value)}`],
    ["received", size(view.bytes)],
    ["quorum", view.quorum ? `at least ${plural(view.quorum, "silo")}` : "all silos"],
    ["created", time(view.created)],
    ["started", time(view.started)],
    ["took", view.started && view.ended && between(view.started, view.ended)],
  ].filter(([, value]) => value);
  return h("dl", null, rows.map(([name, value]) => h("div", { "data-key": name }, h("dt", null, name), h("dd", null, value))));
}

// The names of metrics, that of the score which stands for the job before the others.
function mainFirst({ main }, names) {
  return names.includes(main) ? [main, ...names.filter((name) => name !== main)] : names;
}

function curves(view) {
  if (!view.curves.length) return null;
  const names = mainFirst(view, [...new Set(view.curves.map(({ name }) => name))]);
  const columns = [{ title: "Round", number: true },
    ...view.curves.map(({ name, group }) => ({ title: group === "training" ? `${name} in training` : name, number: true }))];
  const byRound = new Map();
  view.curves.forEach(({ name, points }, place) => {
    for (const [round, value] of points) {
      if (!byRound.has(round)) byRound.set(round, Array(view.curves.length).fill(null));
      byRound.get(round)[place] = figure(name, value);
    }
  });
  const figures = [...byRound].sort(([one], [other]) => other - one);
  return section("Learning curves",
    h("div", { class: "charts" }, names.map((name) => chart(name, view.curves.filter((curve) => curve.name === name), view.rounds))),
    h("details", null, h("summary", null, "The figures by round"),
      table("Figures by round", columns, figures.map(([round, cells]) => ({ key: String(round), cells: [String(round), ...cells] })))));
}

// What the latest scores are of, and each silo's own where all permit it.
function scores({ round, basis, whole, refusal, names, rows }) {
  const columns = [{ title: "Silo" }, { title: "Examples", number: true }, ...names.map((name) => ({ title: name, number: true }))];
  return [
    h("p", { class: whole ? "quiet" : "sentence" }, `After round ${round}, on ${basis}.${refusal ? ` Not by silo: ${refusal}.` : ""}`),
    rows.length > 0 && table("Scores by silo", columns, rows.map((row, place) => ({
      key: `${place} ${row.name}`,
      cells: [h("b", null, row.name), count(row.examples), ...row.figures.map((value, column) => value === null ? "" : figure(names[column], value))],
    }))),
  ];
}

function members(rows) {
  // Only where all silos that tell it permit it.
  const told = rows.some((silo) => silo.personalAccuracy !== null);
  const ruled = rows.some((silo) => silo.kept !== null);
  const columns = [{ title: "Silo" }, { title: "State" }, { title: "Since" }, { title: "Last round", number: true },
    { title: "Samples", number: true }, ...ruled ? [{ title: "Kept", number: true }] : [],
    ...told ? [{ title: "Own model", number: true }] : [], { title: "Sent", number: true },
    { title: "Message", wide: true }];
  return table("Silos of this job", columns, rows.map((silo) => ({
    key: `${silo.namespace}/${silo.name}`,
    cells: [
      [h("b", null, silo.name), h("span", { class: "quiet" }, ` ${silo.namespace || ""}`)],
      badge(silo.state, silo.tone), time(silo.since), count(silo.lastRound), count(silo.samples),
      ...ruled ? [silo.kept === null ? "" : figure("accuracy", silo.kept)] : [],
      ...told ? [silo.personalAccuracy === null ? "" : figure("accuracy", silo.personalAccuracy)] : [], size(silo.bytes), silo.message,
    ],
  })));
}

// What the silos say of their data before round 1, the gravest first.
function findings(rows) {
  const columns = [{ title: "Silo" }, { title: "Severity" }, { title: "Finding" }, { title: "Place" }, { title: "Found" },
    { title: "Remedy", wide: true }];
  return table("What the silos say of their data", columns, rows.map((found, place) => ({
    key: `${found.silo} ${found.code} ${place}`,
    cells: [h("b", null, found.silo), badge(found.severity, found.tone), spaced(found.code), found.place, found.value, found.remedy],
  })));
}

function contract(told) {
  if (told.unknown) return h("p", null, told.unknown);
  const columns = [{ title: "Phase" }, { title: "Rounds", number: true }, { title: "Asked" }, { title: "An update holds", wide: true }, { title: "Figures" }];
  return [
    h("p", { class: "sentence" }, told.sentence),
    table("What an update holds, by phase", columns, told.phases.map((phase) => ({
      key: phase.phase,
      cells: [phase.phase, count(phase.rounds), phase.silos, phase.receives.join("; ") || "nothing else", phase.figures.join(", ")],
    }))),
    h("ul", { class: "notes" }, told.notes.map((note) => h("li", null, note))),
    h("p", { class: "quiet" }, `${told.title}. ${told.citation}`),
  ];
}

function refusals(view) {
  if (!view.refusals.length) return h("p", { class: "quiet" }, "The aggregator has refused no request and no update.");
  const columns = [{ title: "Code" }, { title: "Times", number: true }];
  return [
    h("p", null, "Requests and updates that the aggregator refused, by problem code."),
    table("Refusals", columns, view.refusals.map(({ code, count: times }) => ({ key: code, cells: [h("code", null, code), count(times)] }))),
  ];
}

function receipts(view) {
  const { complete, model, updates, count: all } = view.receipts;
  const seen = complete
    ? "The digest (SHA-256) of every update that the aggregator accepted. A silo's audit log has the same digest beside what left it."
    : "The consortium sees the digest (SHA-256) of each silo's last accepted update, here, and of all of them in model.json beside "
      + "the model. A silo's audit log has the same digests, and its own refusals, which nobody else sees.";
  const columns = [{ title: "Silo" }, { title: "Round", number: true }, { title: "Digest", wide: true }];
  const rows = updates.map(({ silo, round, phase, digest }) => ({
    key: `${round}-${phase}-${silo}`,
    cells: [silo, phase ? [count(round), h("span", { class: "quiet" }, ` ${phase}`)] : count(round), h("code", { class: "digest" }, digest)],
  }));
  const list = rows.length ? table("Receipts", columns, rows) : h("p", { class: "quiet" }, "No update was accepted yet.");
  return [
    h("p", null, seen),
    model && h("p", null, "The model: ", h("code", { class: "digest" }, model.sha256), ` (${model.path}${model.claim ? ` in claim ${model.claim}` : ""})`),
    complete ? h("details", null, h("summary", null, `${count(all)} updates${all > updates.length ? `, the last ${updates.length} shown` : ""}`), list) : list,
  ];
}

function conditions(rows) {
  const columns = [{ title: "Condition" }, { title: "Status" }, { title: "Reason" }, { title: "Since" }, { title: "Message", wide: true }];
  const latest = rows.reduce((one, other) => (other.since >= one.since ? other : one));
  return h("details", null,
    h("summary", null, `${latest.type} is ${latest.status} since `, time(latest.since)),
    table("Conditions", columns, rows.map((item) => ({
      key: item.type, cells: [item.type, item.status, item.reason, time(item.since), item.message],
    }))));
}

function commands({ name, namespace }) {
  return ["why", "status", "logs"].map((command) => `kubectl fedsilo ${command} ${name} -n ${namespace}`).join("\n");
}
