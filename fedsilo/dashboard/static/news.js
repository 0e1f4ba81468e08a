// What a screen reader is told while the page stays open: what matters, not every change.

const PAUSE = 8000; // milliseconds between two announcements at least

const news = document.getElementById("news");
let waiting = [];
let timer = null;

/** Say what is new, of each name its latest sentence: `{ name, told }`; null is nothing. */
export function announce(items) {
  for (const { name, told } of items) {
    if (told) waiting = [...waiting.filter((item) => item.name !== name), { name, told }];
  }
  if (waiting.length && timer === null) speak();
}

function speak() {
  news.textContent = waiting.map(({ told }) => told).join(" ");
  waiting = [];
  timer = setTimeout(() => {
    timer = null;
    if (waiting.length) speak();
  }, PAUSE);
}
