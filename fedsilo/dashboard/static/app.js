// The jobs of a cluster or of a run: an overview, and a page for each job.

import { start } from "./follow.js";
import { jobPage } from "./job.js";
import { overviewPage } from "./overview.js";
import { figure, plural, spaced } from "./format.js";

function route() {
  const parts = location.hash.replace(/^#\/?/, "").split("/").map(decodeURIComponent);
  if (parts[0] === "jobs" && parts.length === 3) {
    return { path: `api/jobs/${parts.slice(1).map(encodeURIComponent).join("/")}`, page: jobPage, name: parts[2] };
  }
  return { path: "api/jobs", page: overviewPage, name: "" };
}

function lost(before) {
  return before && before.place === "machine" ? "not live: the run has ended, or cannot be reached" : "connection lost, trying again";
}

function differences(before, fresh) {
  const old = new Map(jobs(before).map((job) => [`${job.namespace}/${job.name}`, job]));
  return jobs(fresh).map((job) => ({ name: job.name, told: difference(old.get(`${job.namespace}/${job.name}`), job) }));
}

const jobs = (view) => view.jobs || [view];

function difference(old, job) {
  if (!old) return `New job ${job.name}.`;
  if (old.state !== job.state) return `${job.name} is now ${spaced(job.state).toLowerCase()}.`;
  if (old.round === job.round) return null;
  const value = job.metrics[job.main];
  const score = value === undefined ? "" : `, ${job.main} ${figure(job.main, value)}`;
  return `${job.name}: ${plural(job.round, "round")} of ${job.rounds} complete${score}.`;
}

start({
  route, lost, differences,
  words: { all: "All jobs", none: "There is no such job, or you may not see it.", show: "Show the jobs", kind: "FederatedJobs" },
});
