// Numbers and times as a person reads them, in the reader's own time zone.

import { h } from "./dom.js";

let skew = 0; // milliseconds by which the server's clock is ahead of this one

/** Take over the server's clock: "since" and "until" are times of its. */
export function setClock(date) {
  const there = Date.parse(date);
  if (!Number.isNaN(there) && Math.abs(there - Date.now()) > 2000) skew = there - Date.now();
}

const now = () => Date.now() + skew;

export const count = (value) => (value === null || value === undefined ? null : value.toLocaleString("en"));

/** A count in at most two digits from 1,000 on: 1.9M. */
export const brief = (value) =>
  (value < 1000 ? String(value) : value.toLocaleString("en", { notation: "compact", maximumSignificantDigits: 2 }).replace("K", "k"));

/** Bytes in decimal units. */
export function size(value) {
  if (value === null || value === undefined) return null;
  const units = ["B", "kB", "MB", "GB", "TB"];
  let left = value;
  while (left >= 1000 && units.length > 1) {
    left /= 1000;
    units.shift();
  }
  return `${units[0] === "B" ? left : left.toFixed(1)} ${units[0]}`;
}

/** A score: shares in per cent, anything else with four digits. */
export function figure(name, value) {
  return isShare(name, value) ? `${(value * 100).toFixed(1)}%` : String(Number(value.toPrecision(4)));
}

export const isShare = (name, value) =>
  /accuracy|^(recall|precision|f1|dice|iou|auroc|average_precision|calibration_error)(_|$)/.test(name) && value >= 0 && value <= 1;

/** Whether a share is the better the smaller it is. */
export const isError = (name) => name.startsWith("calibration_error");

export const plural = (number, noun) => `${count(number)} ${noun}${number === 1 ? "" : "s"}`;

/** A state as two words: `ApprovalPending` is "Approval pending". */
export const spaced = (state) => state.replace(/(?<=[a-z])[A-Z]/g, (letter) => ` ${letter.toLowerCase()}`);

/** A length of time in its largest units. */
export function length(seconds) {
  const whole = Math.max(0, Math.round(seconds));
  if (whole < 60) return `${whole} s`;
  if (whole < 3600) return `${Math.floor(whole / 60)} min`;
  if (whole < 172800) {
    const minutes = Math.floor((whole % 3600) / 60);
    return `${Math.floor(whole / 3600)} h${minutes ? ` ${minutes} min` : ""}`;
  }
  return `${Math.floor(whole / 86400)} days`;
}

const two = (number) => String(number).padStart(2, "0");

function clock(date) {
  const time = [date.getHours(), date.getMinutes(), date.getSeconds()].map(two).join(":");
  const today = new Date(now()).toDateString() === date.toDateString();
  return today ? time : `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())} ${time}`;
}

function told(iso, how) {
  const date = new Date(iso);
  if (Number.isNaN(date.getTime())) return iso;
  const seconds = (now() - date.getTime()) / 1000;
  const relative = seconds < 0 ? `in ${length(-seconds)}` : `${length(seconds)} ago`;
  return how === "relative" ? relative : `${clock(date)} (${relative.replaceAll(" ", "\u00a0")})`;
}

/** A time that is told anew every second: `14:02:11 (3 min ago)`, or `relative` alone. */
export function time(iso, how = "both") {
  return iso ? h("time", { datetime: iso, "data-how": how }, told(iso, how)) : null;
}

/** Tell all times of the page anew. */
export function tick() {
  for (const element of document.querySelectorAll("time[data-how]")) {
    const text = told(element.getAttribute("datetime"), element.dataset.how);
    if (element.textContent !== text) element.firstChild.data = text;
  }
}

/** A length between two times. */
export function between(begin, end) {
  return length((Date.parse(end) - Date.parse(begin)) / 1000);
}
