// Texts beside a picture, in the type of style.css: how wide they are, and what of them fits.

const SIZE = 11.5; // of `.chart text`

const pen = document.createElement("canvas").getContext("2d");

/** Width of the widest text. */
export function widest(texts) {
  pen.font = `${SIZE}px ${getComputedStyle(document.body).fontFamily}`;
  return Math.max(0, ...texts.map((text) => pen.measureText(text).width));
}

/** Names with their ends cut off where they are too wide; with their middle, where others begin with the same letters. */
export function fitting(names, width) {
  const cut = names.map((name) => longest(name, width, (letters, size) => `${letters.slice(0, size).join("")}…`));
  return cut.map((text, place) =>
    text !== names[place] && cut.indexOf(text) !== cut.lastIndexOf(text) ? longest(names[place], width, ends) : text);
}

const ends = (letters, size) =>
  `${letters.slice(0, Math.ceil(size / 2)).join("")}…${letters.slice(letters.length - Math.floor(size / 2)).join("")}`;

// The name, or as many of its letters as there is room for.
function longest(name, width, part) {
  if (widest([name]) <= width) return name;
  const letters = [...name];
  let size = Math.min(letters.length, 60) - 1;
  while (size > 1 && widest([part(letters, size)]) > width) size -= 1;
  return part(letters, size);
}
