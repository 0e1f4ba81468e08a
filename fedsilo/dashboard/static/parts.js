// Parts that both pages have.

import { h } from "./dom.js";
import { plural, spaced, time } from "./format.js";

/** A part of a page under its own heading. */
export function section(title, ...content) {
  const id = `part-${title.toLowerCase().replace(/[^a-z]+/g, "-")}`;
  return h("section", { "data-key": id, "aria-labelledby": id }, h("h2", { id }, title), content);
}

/** A word with a sign and a colour. */
export function badge(state, tone) {
  return h("span", { class: `badge ${tone}` }, spaced(state));
}

/** Where a job stands: the sentence, since and until when. */
export function waitingFor({ text, since, until }) {
  return h("p", { class: "waiting" }, text,
    since && [h("span", { class: "quiet" }, " since "), time(since)],
    until && [h("span", { class: "quiet" }, ", at most until "), time(until)], ".");
}

/** How many rounds are complete, as a bar and in words. */
export function rounds({ round, rounds: all, step }) {
  if (!all) return h("p", { class: "rounds quiet" }, "no round yet");
  const done = `${round} of ${all} rounds`;
  return h("div", { class: "rounds" },
    h("progress", { max: all, value: round, "aria-label": "Rounds complete" }, done),
    h("span", null, done, step && [h("span", { class: "quiet" }, " · now "), step]));
}

/** One sign for each silo of the open round, and the counts in words. */
export function marks(job) {
  const counts = new Map();
  for (const { state } of job.marks) counts.set(state, (counts.get(state) || 0) + 1);
  const words = [...counts].map(([state, number]) => `${number} ${spaced(state).toLowerCase()}`).join(", ");
  return h("p", { class: "marks" },
    h("span", { "aria-hidden": "true" }, job.marks.map(({ name, state, tone }) => h("i", { class: tone, title: `${name}: ${spaced(state)}` }))),
    h("span", null, `${plural(job.silos, "silo")}: ${words}`));
}

/** What happened, newest first. */
export function events(rows) {
  if (!rows.length) return null;
  return section("Events", h("ol", { class: "events" }, rows.map((event) =>
    h("li", { class: event.type === "Warning" ? "warning" : null },
      h("span", { class: "head" }, h("b", null, event.reason), " ", h("span", { class: "quiet" },
        `${event.about.kind} ${event.about.namespace}/${event.about.name} · `, time(event.last, "relative"),
        event.count > 1 && ` · ${event.count} times`)),
      h("p", null, event.message)))));
}
