// What the last evaluation found of each class: bars for each metric, and the confusion matrix, as SVG.

import { h, table } from "./dom.js";
import { brief, count, figure } from "./format.js";
import { fitting, widest } from "./labels.js";

const ROW = 18, NAME = 150, BAR = 190, VALUE = 60;
const MATRIX = 280, LARGEST = 42; // sides of a matrix and of a cell at most
const LINE = 14; // height of a name
const DARKEST = 0.45; // opacity of a cell with a whole class, on which a number can still be read

/** Bars by class, the confusion matrix, and both as a table. */
export function classes(rows) {
  const names = [...new Set(rows.flatMap(({ figures }) => Object.keys(figures)))];
  return [
    h("div", { class: "charts" }, names.map((name) => bars(name, rows)), rows.some(({ answers }) => answers.length) && matrix(rows)),
    h("details", null, h("summary", null, "The figures by class"), numbers(names, rows)),
  ];
}

function bars(name, rows) {
  const labels = fitting(rows.map((row) => row.name), NAME - 6);
  const largest = Math.max(1, ...rows.map(({ figures }) => figures[name] || 0));
  const lines = rows.map((row, place) => {
    const value = row.figures[name], y = place * ROW;
    const known = value !== undefined;
    return h("g", null, h("title", null, `${row.name}: ${known ? figure(name, value) : "undefined"}`),
      h("text", { x: NAME - 6, y: y + 13, "text-anchor": "end" }, labels[place]),
      h("rect", { class: "track", x: NAME, y: y + 4, width: BAR, height: ROW - 7 }),
      known && h("rect", { class: "bar", x: NAME, y: y + 4, width: (BAR * value) / largest, height: ROW - 7 }),
      h("text", { x: NAME + BAR + 6, y: y + 13 }, known ? figure(name, value) : "–"));
  });
  const said = rows.map((row) => `${row.name} ${row.figures[name] === undefined ? "undefined" : figure(name, row.figures[name])}`).join(", ");
  return h("figure", { class: "chart", "data-key": `class ${name}` },
    h("figcaption", null, h("span", { class: "title" }, `${name} by class`)),
    h("svg", { viewBox: `0 0 ${NAME + BAR + VALUE} ${rows.length * ROW}`, role: "img", "aria-label": `${name} by class: ${said}` }, lines));
}

// Each row is shaded by its shares: the diagonal is the recall of its class.
function matrix(rows) {
  const side = Math.min(LARGEST, MATRIX / rows.length), left = NAME, top = 22;
  const numbered = widest(rows.flatMap(({ answers }) => answers.map(brief))) <= side - 4;
  const cells = rows.map((row, place) => {
    const total = row.answers.reduce((sum, number) => sum + number, 0);
    return row.answers.map((number, answer) => {
      const [x, y, share] = [left + answer * side, top + place * side, total ? number / total : 0];
      return h("g", null, h("title", null, `${row.name} taken for ${rows[answer].name}: ${count(number)}`),
        h("rect", { class: answer === place ? "cell right" : "cell wrong", x, y, width: side, height: side, "fill-opacity": (DARKEST * share).toFixed(3) }),
        h("rect", { class: "edge", x, y, width: side, height: side }),
        numbered && number > 0 && h("text", { class: "number", x: x + side / 2, y: y + side / 2 + 4, "text-anchor": "middle" }, brief(number)));
    });
  });
  const every = Math.ceil(LINE / side); // of narrow rows only some are named
  const labels = fitting(rows.map((row) => row.name), NAME - 6).map((name, place) =>
    place % every === 0 && h("text", { x: left - 6, y: top + place * side + side / 2 + 4, "text-anchor": "end" }, name));
  const width = left + rows.length * side;
  const said = rows.map((row, place) => `${row.name}: ${count(row.answers[place] || 0)} of ${count(row.answers.reduce((sum, number) => sum + number, 0))}`).join(", ");
  return h("figure", { class: "chart", "data-key": "confusion" },
    h("figcaption", null, h("span", { class: "title" }, "Confusion matrix"), h("span", null, "rows: class, columns: answer, in the same order")),
    h("svg", { viewBox: `0 0 ${Math.max(width + 2, NAME + BAR + VALUE)} ${top + rows.length * side + 2}`, role: "img", "aria-label": `Correct answers by class: ${said}` },
      h("text", { x: left, y: 14 }, "answer →"), labels, cells));
}

function numbers(names, rows) {
  const counted = rows.some(({ answers }) => answers.length);
  const columns = [{ title: "Class" }, ...names.map((name) => ({ title: name, number: true })),
    ...counted ? [{ title: "Count", number: true }, { title: "Mostly taken for", wide: true }] : []];
  return table("Figures by class", columns, rows.map((row, place) => ({
    key: row.name,
    cells: [row.name, ...names.map((name) => (row.figures[name] === undefined ? null : figure(name, row.figures[name]))),
      ...counted ? [count(row.answers.reduce((sum, number) => sum + number, 0)), confused(row, place, rows)] : []],
  })));
}

// The wrong answers of a class, most frequent first.
function confused(row, place, rows) {
  const wrong = row.answers.map((number, answer) => [number, answer]).filter(([number, answer]) => number > 0 && answer !== place);
  return wrong.sort(([one], [other]) => other - one).slice(0, 3).map(([number, answer]) => `${rows[answer].name} (${count(number)})`).join(", ");
}
