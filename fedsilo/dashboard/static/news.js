// What a screen reader is told while the page stays open: ends and completed rounds, not every change.

import { figure, plural, spaced } from "./format.js";

const PAUSE = 8000; // milliseconds between two announcements at least

const news = document.getElementById("news");
let waiting = [];
let timer = null;

/** Say what is new in a document compared with the one before. */
export function announce(before, fresh) {
  if (!before) return;
  const old = new Map(jobs(before).map((job) => [`${job.namespace}/${job.name}`, job]));
  for (const job of jobs(fresh)) {
    const told = difference(old.get(`${job.namespace}/${job.name}`), job);
    if (told) waiting = [...waiting.filter((item) => item.name !== job.name), { name: job.name, told }];
  }
  if (waiting.length && timer === null) speak();
}

const jobs = (view) => view.jobs || [view];

function difference(old, job) {
  if (!old) return `New job ${job.name}.`;
  if (old.state !== job.state) return `${job.name} is now ${spaced(job.state).toLowerCase()}.`;
  if (old.round === job.round) return null;
  const { accuracy } = job.metrics;
  const score = accuracy === undefined ? "" : `, accuracy ${figure("accuracy", accuracy)}`;
  return `${job.name}: ${plural(job.round, "round")} of ${job.rounds} complete${score}.`;
}

function speak() {
  news.textContent = waiting.map(({ told }) => told).join(" ");
  waiting = [];
  timer = setTimeout(() => {
    timer = null;
    if (waiting.length) speak();
  }, PAUSE);
}
