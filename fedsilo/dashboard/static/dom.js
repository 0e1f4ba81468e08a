// Elements from data. Every text becomes a text node and every attribute a value: nothing that a job or a silo says is
// ever read as markup.

const SVG = "http://www.w3.org/2000/svg";
const SHAPES = new Set(["svg", "g", "path", "line", "polyline", "circle", "rect", "text", "title"]);

/** An element with attributes and children; null and false are left out. */
export function h(tag, attributes, ...children) {
  const element = SHAPES.has(tag) ? document.createElementNS(SVG, tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value !== null && value !== undefined && value !== false) {
      element.setAttribute(name, value === true ? "" : String(value));
    }
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

/** Make one tree like another and keep what is the same, so that focus, scroll and open details stay. */
export function morph(old, fresh) {
  if (old.nodeType !== fresh.nodeType || old.nodeName !== fresh.nodeName) {
    old.replaceWith(fresh);
    return;
  }
  if (old.nodeType === Node.TEXT_NODE) {
    if (old.data !== fresh.data) old.data = fresh.data;
    return;
  }
  for (const { name } of [...old.attributes]) {
    if (!fresh.hasAttribute(name) && !(name === "open" && old.nodeName === "DETAILS")) old.removeAttribute(name);
  }
  for (const { name, value } of [...fresh.attributes]) {
    if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  }
  children(old, fresh);
}

// Children with a `data-key` are the same ones wherever they are; others count by their place.
function children(old, fresh) {
  const keyed = new Map([...old.children].filter((child) => child.dataset.key).map((child) => [child.dataset.key, child]));
  const wanted = [...fresh.childNodes];
  wanted.forEach((child, place) => {
    const there = old.childNodes[place];
    const known = child.dataset && child.dataset.key ? keyed.get(child.dataset.key) : undefined;
    if (known) {
      if (known !== there) old.insertBefore(known, there || null);
      morph(known, child);
    } else if (!there || (there.dataset && there.dataset.key && keyed.has(there.dataset.key))) {
      old.insertBefore(child, there || null);
    } else {
      morph(there, child);
    }
  });
  while (old.childNodes.length > wanted.length) old.lastChild.remove();
}

const isEmpty = (cell) => cell === null || cell === undefined || cell === "";

/** A table whose rows become blocks on a narrow screen; the roles keep it a table there for a screen reader.
 *  A column without any content is left out. */
export function table(caption, columns, rows) {
  const shown = columns.map((_, place) => place === 0 || rows.some((row) => !isEmpty(row.cells[place])));
  const head = columns.filter((_, place) => shown[place]).map((column) =>
    h("th", { role: "columnheader", scope: "col", class: column.number ? "number" : null }, column.title));
  const body = rows.map((row) =>
    h("tr", { role: "row", "data-key": row.key }, row.cells.map((cell, place) => {
      if (!shown[place]) return null;
      const { title, number, wide } = columns[place];
      const kind = place === 0 ? { role: "rowheader", scope: "row" } : { role: "cell" };
      const empty = isEmpty(cell);
      const attributes = { ...kind, "data-label": title, class: [number && "number", wide && "wide", empty && "empty"].filter(Boolean).join(" ") || null };
      return h(place === 0 ? "th" : "td", attributes, empty ? "–" : cell);
    })));
  return h("table", { role: "table" },
    h("caption", { class: "unseen" }, caption),
    h("thead", { role: "rowgroup" }, h("tr", { role: "row" }, head)),
    h("tbody", { role: "rowgroup" }, body));
}
