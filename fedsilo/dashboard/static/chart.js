// Learning curves as SVG: one plot for each figure, scores solid and training dashed.

import { h } from "./dom.js";
import { figure, isError, isShare } from "./format.js";

const WIDTH = 400, HEIGHT = 200;
const LEFT = 46, RIGHT = 10, TOP = 10, BOTTOM = 24;

/** A small curve without axes. */
export function spark(curve) {
  if (!curve || curve.points.length < 2) return null;
  const plot = plane([curve.points], curve.points.at(-1)[0], 120, 32, { left: 1, right: 3, top: 3, bottom: 3 });
  const [x, y] = plot(curve.points.at(-1));
  return h("svg", { class: "spark", viewBox: "0 0 120 32", "aria-hidden": "true" },
    line(curve.points, plot, "score"), h("circle", { class: "last", cx: x, cy: y, r: 2.2 }));
}

/** A figure with axes, a legend with the last values, and what it shows in words. */
export function chart(name, curves, rounds) {
  const points = curves.flatMap((curve) => curve.points);
  const share = points.every(([, value]) => isShare(name, value));
  const last = Math.max(rounds || 0, ...points.map(([round]) => round));
  const perfect = share ? [isError(name) ? 0 : 1] : [];
  const ticks = scale([...points.map(([, value]) => value), ...perfect]);
  const bounds = [[1, ticks[0]], [last, ticks.at(-1)]];
  const plot = plane([bounds], last, WIDTH, HEIGHT, { left: LEFT, right: RIGHT, top: TOP, bottom: BOTTOM });
  const lines = ticks.map((value) => {
    const [, y] = plot([1, value]);
    return [h("line", { class: "grid", x1: LEFT, x2: WIDTH - RIGHT, y1: y, y2: y }),
      h("text", { x: LEFT - 6, y: y + 4, "text-anchor": "end" }, share ? `${short(value * 100)}%` : short(value))];
  });
  const places = [...new Set([1, Math.round((1 + last) / 2), last])].map((round, place, all) => {
    const [x] = plot([round, ticks[0]]);
    const anchor = place === 0 ? "start" : place === all.length - 1 ? "end" : "middle";
    return h("text", { x, y: HEIGHT - 6, "text-anchor": anchor }, place === 0 ? `round ${round}` : String(round));
  });
  const legend = curves.map((curve) => {
    const [, value] = curve.points.at(-1);
    return h("span", { class: `key ${curve.group}` }, `${label(curve)} `, h("b", null, figure(name, value)));
  });
  const said = curves.map((curve) => `${label(curve)}, ${trend(name, curve.points)}`).join("; ");
  return h("figure", { class: "chart", "data-key": name },
    h("figcaption", null, h("span", { class: "title" }, name), legend),
    h("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": `${name} by round: ${said}` },
      lines, places, curves.map((curve) => line(curve.points, plot, curve.group)), curves.map((curve) => end(curve, plot))));
}

const label = (curve) => (curve.group === "training" ? "in training" : "evaluated");

function trend(name, points) {
  const [[first, from], [last, to]] = [points[0], points.at(-1)];
  if (first === last) return `${figure(name, to)} in round ${last}`;
  return `from ${figure(name, from)} in round ${first} to ${figure(name, to)} in round ${last}`;
}

function end(curve, plot) {
  const [x, y] = plot(curve.points.at(-1));
  return h("circle", { class: `last ${curve.group}`, cx: x, cy: y, r: 3 });
}

function line(points, plot, group) {
  return h("polyline", { class: group, points: points.map((point) => plot(point).map((at) => at.toFixed(1)).join(",")).join(" ") });
}

// From (round, value) to (x, y).
function plane(series, last, width, height, edge) {
  const values = series.flat().map(([, value]) => value);
  const [low, high] = [Math.min(...values), Math.max(...values)];
  return ([round, value]) => [
    edge.left + ((round - 1) / Math.max(1, last - 1)) * (width - edge.left - edge.right),
    height - edge.bottom - (high === low ? 0.5 : (value - low) / (high - low)) * (height - edge.top - edge.bottom),
  ];
}

// Three to six round numbers that span the values.
function scale(values) {
  const high = Math.max(...values), low = Math.min(...values);
  const span = Math.max(high - low, Math.abs(high) * 0.05, 1e-6);
  const power = 10 ** Math.floor(Math.log10(span / 3));
  const step = [1, 2, 2.5, 5, 10].map((factor) => factor * power).find((size) => span / size <= 5);
  const begin = Math.floor(low / step + 1e-9);
  const finish = Math.max(begin + 1, Math.ceil(high / step - 1e-9));
  return Array.from({ length: finish - begin + 1 }, (_, place) => (begin + place) * step);
}

const short = (value) => String(Number(value.toPrecision(3)));
