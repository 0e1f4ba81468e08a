// Follows one document at a time and shows it. A request says which version it has and is answered when there is
// another; when the connection breaks, it is tried again.

import { h, morph } from "./dom.js";
import { announce } from "./news.js";
import { setClock, tick } from "./format.js";

const WAIT = 25, LIMIT = 60000; // seconds that the server may keep a request; milliseconds until it counts as lost
const FIRST_PAUSE = 500, LAST_PAUSE = 15000;

const main = document.getElementById("main");
const live = document.getElementById("live");
const leave = document.getElementById("leave");
let following = new AbortController();

let site = null;

/** Begin to show a site.
 *  `route()` says what the address means: `path` of the document, `page` that makes elements of it, `name` for the title.
 *  `difference(before, fresh)` says in sentences what is new. `words` are those of the site. */
export function start(it) {
  site = it;
  history.replaceState("first", "");
  open();
}

function open() {
  if (location.hash === "#main") return;
  following.abort();
  following = new AbortController();
  const place = site.route();
  document.title = place.name ? `${place.name} · fedsilo` : "fedsilo";
  main.replaceChildren(h("p", { class: "quiet" }, "Loading …"));
  follow(place, following.signal);
}

async function follow(place, signal) {
  let tag = null, pause = FIRST_PAUSE, before = null;
  while (!signal.aborted) {
    try {
      const response = await ask(place.path, tag, signal);
      setClock(response.headers.get("Date"));
      if (response.status === 401) return signIn(place, signal, Boolean(sessionStorage.getItem("token")));
      if (response.status === 403) throw new Refusal(await response.text());
      if (response.status === 404) throw new Refusal(site.words.none);
      if (response.status !== 304) {
        if (!response.ok) throw new Error(`HTTP ${response.status}`);
        const fresh = await response.json();
        if (signal.aborted) return;
        tag = response.headers.get("ETag");
        show(place.page(fresh), before === null);
        if (before) announce(site.differences(before, fresh));
        before = fresh;
      }
      tell("live", "live");
      pause = FIRST_PAUSE;
    } catch (error) {
      if (signal.aborted) return;
      if (error instanceof Refusal) {
        show(message(error.message), before === null);
        tell("refused", "lost");
        tag = null;
      } else {
        tell(site.lost(before), "lost");
      }
      await sleep(pause * (0.5 + Math.random() / 2), signal);
      pause = Math.min(2 * pause, LAST_PAUSE);
    }
  }
}

class Refusal extends Error {}

function ask(path, tag, signal) {
  const headers = { Accept: "application/json" };
  const token = sessionStorage.getItem("token");
  leave.hidden = !token;
  if (token) headers.Authorization = `Bearer ${token}`;
  if (tag) Object.assign(headers, { "If-None-Match": tag, Prefer: `wait=${WAIT}` });
  return fetch(path, { headers, cache: "no-store", credentials: "same-origin", signal: either(signal, LIMIT) });
}

function either(signal, milliseconds) {
  const both = new AbortController();
  const timer = setTimeout(() => both.abort(), milliseconds);
  signal.addEventListener("abort", () => { clearTimeout(timer); both.abort(); }, { once: true });
  return both.signal;
}

function sleep(milliseconds, signal) {
  return new Promise((done) => {
    const timer = setTimeout(done, milliseconds);
    for (const [target, event] of [[window, "online"], [signal, "abort"]]) {
      target.addEventListener(event, () => { clearTimeout(timer); done(); }, { once: true });
    }
  });
}

function show(content, first) {
  if (!first) return morph(main, h("main", { id: "main", tabindex: "-1" }, content));
  main.replaceChildren(...content);
  // Whoever follows a link by keyboard or hears the page is taken to what it leads to.
  if (history.state !== "first") main.querySelector("h1")?.focus({ preventScroll: true });
  history.replaceState(null, "");
  window.scrollTo(0, 0);
}

function message(text) {
  return [h("h1", { tabindex: "-1" }, "Nothing to show"), h("p", null, text), h("p", null, h("a", { href: "#/" }, site.words.all))];
}

function tell(text, state) {
  if (live.textContent !== text) live.textContent = text;
  live.dataset.state = state;
}

function signIn(place, signal, wrong) {
  sessionStorage.removeItem("token");
  leave.hidden = true;
  tell("not signed in", "lost");
  const field = h("input", { id: "token", type: "password", autocomplete: "off", spellcheck: "false", required: true,
    "aria-describedby": "token-help", "aria-invalid": wrong ? "true" : null });
  const form = h("form", { class: "sign-in" },
    h("label", { for: "token" }, "Token"), field, h("button", { type: "submit" }, site.words.show),
    h("p", { id: "token-help" }, wrong ? "The cluster does not know this token, or not any more. " : "",
      `A token of an account that may list ${site.words.kind}, for instance from `,
      h("code", null, "kubectl create token NAME -n NAMESPACE"), ". It stays in this tab."));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    sessionStorage.setItem("token", field.value.trim());
    main.replaceChildren(h("p", { class: "quiet" }, "Loading …"));
    follow(place, signal);
  });
  main.replaceChildren(h("h1", { tabindex: "-1" }, "Who asks?"), form);
  field.focus();
}

leave.addEventListener("click", () => {
  sessionStorage.removeItem("token");
  open();
});
window.addEventListener("hashchange", open);
setInterval(tick, 1000);
