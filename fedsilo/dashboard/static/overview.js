// The overview of all jobs.

import { spark } from "./chart.js";
import { h, table } from "./dom.js";
import { badge, events, marks, rounds, section, waitingFor } from "./parts.js";
import { count, figure, plural, size, spaced, time } from "./format.js";

/** All jobs, their silos, and what happened last. */
export function overviewPage(view) {
  document.getElementById("place").textContent = view.place === "machine" ? "on this machine" : "on this cluster";
  const rest = view.count - view.jobs.length;
  return [
    h("h1", { tabindex: "-1" }, "Jobs"),
    view.jobs.length > 1 && h("p", { class: "quiet" }, inAll(view.jobs)),
    view.jobs.length ? h("ul", { class: "jobs" }, view.jobs.map(card)) : h("p", { class: "quiet" }, "There are no jobs."),
    rest > 0 && h("p", { class: "quiet" }, `${plural(rest, "older job")} that ended not shown.`),
    view.silos.length > 0 && section("Silos", silos(view.silos)),
    events(view.events),
  ].filter(Boolean);
}

const linkTo = ({ namespace, name }) => `#/jobs/${encodeURIComponent(namespace)}/${encodeURIComponent(name)}`;

function inAll(jobs) {
  const counts = new Map();
  for (const { state } of jobs) counts.set(state, (counts.get(state) || 0) + 1);
  return [...counts].map(([state, number]) => `${number} ${spaced(state).toLowerCase()}`).join(", ");
}

function card(job) {
  const [name, value] = score(job);
  return h("li", { class: "job", "data-key": `${job.namespace}/${job.name}` },
    h("div", { class: "what" },
      h("h2", null, h("a", { href: linkTo(job) }, job.name), " ", badge(job.state, job.tone)),
      h("p", { class: "quiet" }, `${job.namespace} · ${job.method}`),
      waitingFor(job.waiting),
      job.waiting.message && job.waiting.reason && job.tone !== "good" && h("p", { class: `reason ${job.tone}` }, h("b", null, job.waiting.reason), " ", job.waiting.message)),
    h("div", { class: "how" }, rounds(job), marks(job),
      h("p", { class: "quiet" }, `${size(job.bytes)} received`,
        job.refused > 0 && h("span", { class: "refused" }, ` · ${count(job.refused)} refused`))),
    h("div", { class: "latest" }, name && [h("span", { class: "value" }, value), h("span", { class: "quiet" }, name)], spark(job.spark)));
}

function score(job) {
  const value = job.metrics[job.main];
  return value === undefined ? [] : [job.main, figure(job.main, value)];
}

function silos(rows) {
  const columns = [{ title: "Silo" }, { title: "Jobs going on", number: true }, { title: "Awaited", wide: true }, { title: "Sent in all", number: true }];
  return table("Silos of all jobs", columns, rows.map((silo) => ({
    key: `${silo.namespace}/${silo.name}`,
    cells: [
      [h("b", null, silo.name), h("span", { class: "quiet" }, ` ${silo.namespace}`)],
      `${silo.active} of ${silo.jobs}`,
      silo.awaited.length ? silo.awaited.slice(0, 3).map((job) =>
        h("span", { class: "awaited" }, "by ", h("a", { href: linkTo(job) }, job.name), " since ", time(job.since)))
        .concat(silo.awaited.length > 3 ? [h("span", null, `and ${silo.awaited.length - 3} more`)] : []) : null,
      size(silo.bytes),
    ],
  })));
}
