// An institution's own page: what waits for a person here, what runs, what has left, and whether the hub is reached.

import { start } from "./follow.js";
import { h, table } from "./dom.js";
import { badge, section } from "./parts.js";
import { count, plural, size, spaced, time } from "./format.js";

function page(view) {
  document.getElementById("place").textContent = view.place === "machine" ? `in ${view.directory}` : "in this institution's cluster";
  const waiting = view.agents.filter((agent) => agent.approve);
  const silos = view.silos.map(({ namespace, name }) => `${namespace}/${name}`).join(", ");
  return [
    h("h1", { tabindex: "-1" }, silos || "No silo"),
    view.silos.map(silo),
    waiting.length > 0 && section("Waits for you", waiting.map(question)),
    section("What runs here", agents(view)),
    section("What has left", left(view)),
  ].flat().filter(Boolean);
}

function silo(item) {
  const rows = [
    ["datasets", item.datasets.join(", ")],
    ["jobs are admitted", item.manualApproval ? "by the policy, and by a person each" : "by the policy"],
    ["key", item.fingerprint && h("code", null, item.fingerprint)],
    ["hub", item.hub],
  ].filter(([, value]) => value);
  const columns = [{ title: "Condition" }, { title: "State" }, { title: "Since" }, { title: "Message", wide: true }];
  return h("div", { "data-key": `${item.namespace}/${item.name}`, class: "facts" },
    h("dl", null, rows.map(([name, value]) => h("div", { "data-key": name }, h("dt", null, name), h("dd", null, value)))),
    item.budgets.length > 0 && budgets(item),
    item.conditions.length > 0 && table(`Conditions of ${item.name}`, columns, item.conditions.map((one) => ({
      key: one.type, cells: [spaced(one.type), badge(one.status === "True" ? "Yes" : one.reason, one.tone), time(one.since), one.message],
    }))));
}

function budgets(item) {
  const columns = [{ title: "Dataset" }, { title: "Epsilon", number: true }, { title: "Delta", number: true },
    { title: "Spent", number: true }, { title: "Reserved", number: true }, { title: "Left", number: true }, { title: "By job", wide: true }];
  return table(`Privacy budgets of ${item.name}`, columns, item.budgets.map((one) => ({
    key: one.dataset,
    cells: [one.dataset, epsilon(one.epsilon), epsilon(one.delta), epsilon(one.spent), epsilon(one.reserved), epsilon(one.left),
      one.jobs.map(({ job, spent, reserved }) => `${job} ${epsilon(spent)}${reserved ? ` (${epsilon(reserved)} reserved)` : ""}`).join(", ")],
  })));
}

const epsilon = (value) => String(Number(value.toPrecision(4)));

function question(agent) {
  return h("div", { class: "question", "data-key": agent.name },
    h("h3", null, agent.job, " ", badge(agent.state, agent.tone)),
    h("p", { class: "sentence" }, agent.leaves.sentence || agent.leaves.unknown),
    h("dl", null, [
      ["method", agent.method], ["rounds", count(agent.rounds)], ["aggregator", agent.aggregator],
      ...agent.images ? [["trainer", agent.images.trainer], ["guard", agent.images.guard]] : [],
      ...agent.members ? [["members", `${plural(agent.members.silos, "silo")}, digest of their keys ${agent.members.digest}`]] : [],
    ].map(([name, value]) => h("div", { "data-key": name }, h("dt", null, name), h("dd", null, value)))),
    agent.leaves.notes && h("ul", { class: "notes" }, agent.leaves.notes.map((note) => h("li", null, note))),
    h("p", { class: "quiet" }, "These commands show all that is decided on, and ask before they decide:"),
    h("pre", { tabindex: "0" }, `${agent.approve}\n${agent.refuse}`));
}

function agents(view) {
  if (!view.agents.length) return h("p", { class: "quiet" }, "The hub has proposed no job.");
  const rest = view.count - view.agents.length;
  const columns = [{ title: "Job" }, { title: "State" }, { title: "Since" }, { title: "Method" },
    { title: "Decided" }, { title: "Message", wide: true }];
  return [
    table("Jobs in this institution", columns, view.agents.map((agent) => ({
      key: agent.name,
      cells: [
        [h("b", null, agent.job || agent.name), h("span", { class: "quiet" }, ` ${agent.name}`)],
        [badge(agent.state, agent.tone), agent.gone && [" taken back by the hub ", time(agent.gone)]], time(agent.since),
        agent.method && `${agent.method}, ${plural(agent.rounds, "round")}`, decided(agent.decision), agent.message,
      ],
    }))),
    rest > 0 && h("p", { class: "quiet" }, `${plural(rest, "older job")} not shown.`),
  ];
}

function decided(decision) {
  if (!decision) return null;
  return [decision.decision.toLowerCase(), decision.by && ` by ${decision.by}`, " ", time(decision.time)];
}

function left(view) {
  const told = view.agents.filter((agent) => agent.receipts);
  const running = view.agents.filter(({ state }) => view.place === "cluster" && state === "Running");
  return [
    h("p", { class: "sentence" }, view.left.updates ? `${plural(view.left.updates, "update")}, ${size(view.left.bytes)}.` : "Nothing is on record."),
    h("p", null, "Each is a line of the silo's own audit log with the SHA-256 of what left. The job's provenance names the same digests."),
    running.length > 0 && h("p", null, "On a cluster a guard reports when it ends. What has left since then is in its audit log:"),
    running.length > 0 && h("pre", { tabindex: "0" }, running.map(({ name, namespace }) =>
      `kubectl exec -n ${namespace} job/${name}-guard -- fedsilo silo receipts /var/lib/fedsilo`).join("\n")),
    told.map(receipts),
  ];
}

function receipts(agent) {
  const { updates, bytes, latest, auditLines, auditHash } = agent.receipts;
  const columns = [{ title: "Round", number: true }, { title: "Holds", wide: true }, { title: "Bytes", number: true },
    { title: "Digest", wide: true }, { title: "Outcome" }];
  return h("details", { "data-key": agent.name },
    h("summary", null, h("b", null, agent.job), ` · ${plural(updates, "update")}, ${size(bytes)}`,
      latest.length < updates && `, the last ${latest.length} shown`),
    table(`Updates for ${agent.job}`, columns, latest.map((one) => ({
      key: one.digest,
      cells: [
        [count(one.round), h("span", { class: "quiet" }, ` ${one.phase}`)],
        one.kinds.map(({ kind, blocks, bytes: held }) => `${spaced(kind)}: ${plural(blocks, "block")}, ${size(held)}`).join("; ") || "scalars",
        count(one.bytes), h("code", { class: "digest" }, one.digest), one.outcome,
      ],
    }))),
    h("p", { class: "quiet" }, `Audit log: ${plural(auditLines, "line")}, the last hash is `, h("code", { class: "digest" }, auditHash), "."));
}

function differences(before, fresh) {
  const old = new Map(before.agents.map((agent) => [agent.name, agent]));
  return fresh.agents.map((agent) => ({ name: agent.name, told: difference(old.get(agent.name), agent) }));
}

function difference(old, agent) {
  if (agent.approve && !(old && old.approve)) return `${agent.job} waits for your approval.`;
  if (!old) return `New job ${agent.job}.`;
  return old.state === agent.state ? null : `${agent.job} is now ${spaced(agent.state).toLowerCase()}.`;
}

start({
  route: () => ({ path: "api/silo", page, name: "" }),
  lost: () => "connection lost, trying again",
  differences,
  words: { all: "This institution", none: "There is nothing here.", show: "Show the silo", kind: "SiloAgents" },
});
