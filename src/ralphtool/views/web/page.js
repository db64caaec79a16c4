"use strict";
// The server sends elements as lists (name, attributes, children); this adds them to the page, and never as text that
// could be parsed as HTML.
const page = document, $ = id => page.getElementById(id), all = selector => [...page.querySelectorAll(selector)];
const on = (target, name, act) => target.addEventListener(name, act, true);
const MOST = 2000, SVG = "http://www.w3.org/2000/svg";
let keys = null, live = "", source = null, place = null, first = 0, wait = 500, retry = 0;
let route = {}, known = null, wasState = "", isBack = false, isLoading = false, isDrawing = false, dueStory = 0;

// --- elements

function make(tree, space = page.body.namespaceURI) {
  if (typeof tree === "string") return Object.assign(page.createTextNode(tree), { tree });
  const [name, attributes, ...children] = tree;
  if (name === "svg") space = SVG;
  const made = page.createElementNS(space, name);
  for (const key in attributes) set(made, key, attributes[key]);
  for (const child of children) made.append(make(child, space));
  made.tree = tree;
  return made;
}

function set(element, key, value) {
  if (/^on/i.test(key) || (/^(href|src)$/i.test(key) && !value.startsWith("#"))) return;
  if (key === "style") element.style.cssText = value;
  else element.setAttribute(key, value);
}

const keyOf = tree => Array.isArray(tree) ? tree[1]["data-key"] : undefined;

// Changes as little as possible: focus, open details, scroll positions and unsent text are kept.
function patch(old, tree) {
  const before = old.tree;
  if (typeof tree === "string" || !Array.isArray(before) || before[0] !== tree[0]) {
    if (before === tree) return old;
    const made = make(tree, old.parentNode.namespaceURI);
    old.replaceWith(made);
    return made;
  }
  if (JSON.stringify(before) === JSON.stringify(tree)) return old;
  for (const key in before[1]) if (!(key in tree[1])) old.removeAttribute(key);
  for (const key in tree[1]) if (before[1][key] !== tree[1][key]) set(old, key, tree[1][key]);
  // Old elements are removed first, so that the others need not be moved: a field that is moved loses the focus.
  const keyed = new Map(), keep = new Set(tree.slice(2).map(keyOf));
  for (const child of [...old.childNodes]) if (keep.has(keyOf(child.tree))) keyed.set(keyOf(child.tree), child); else child.remove();
  let at = old.firstChild;
  for (const child of tree.slice(2)) {
    const key = keyOf(child);
    let node = key === undefined ? (at && keyOf(at.tree) === undefined ? at : null) : keyed.get(key);
    keyed.delete(key);
    if (node && node === at) at = at.nextSibling;
    node = node ? patch(node, child) : make(child, old.namespaceURI);
    if (node.nextSibling !== at || node.parentNode !== old) old.insertBefore(node, at);
  }
  while (at) { const next = at.nextSibling; at.remove(); at = next; }
  old.tree = tree;
  return old;
}

const h = (name, attributes = {}, ...children) => {
  const made = page.createElement(name);
  for (const key in attributes) made.setAttribute(key, attributes[key]);
  made.append(...children);
  return made;
};

function put(id, tree) {
  const box = $(id);
  if (!box) return;
  if (box.firstChild && box.firstChild.tree) patch(box.firstChild, tree);
  else box.replaceChildren(make(tree));
  tick();
}

// --- time

function tick() {
  const now = Date.now() / 1000;
  for (const one of all("time[data-since],time[data-at]")) {
    const past = Math.max(0, now - (one.dataset.since || one.dataset.at));
    const words = one.dataset.since ? clock(past) : ago(past);
    if (one.firstChild && one.firstChild.nodeValue !== words) one.firstChild.nodeValue = words;
  }
}
const two = number => String(Math.floor(number)).padStart(2, "0");
const clock = s => s < 3600 ? `${Math.floor(s / 60)}:${two(s % 60)}` : `${Math.floor(s / 3600)}:${two(s / 60 % 60)}:${two(s % 60)}`;
function ago(s) {
  const [size, name] = s < 60 ? [] : s < 3600 ? [60, "min"] : s < 86400 ? [3600, "h"] : [86400, "d"];
  return size ? `${Math.floor(s / size)} ${name} ago` : "just now";
}
setInterval(tick, 1000);

// --- the server

async function call(path, body) {
  const headers = { "Content-Type": "application/json", "X-CSRF-Token": keys?.csrf || "" };
  const answer = await fetch("/api/" + path, { method: body ? "POST" : "GET", headers, body: body && JSON.stringify(body) });
  const told = await answer.json();
  if (answer.status === 401) showLogin();
  if (!answer.ok) throw Object.assign(new Error(told.error), { status: answer.status });
  return told;
}

const about = more => new URLSearchParams({ project: route.project, run: route.run, ...more });
const tell = error => say(error.message);
const say = text => { $("said").textContent = text; clearTimeout(say.timer); say.timer = setTimeout(() => $("said").textContent = "", 8000); };
const link = (state, words) => { $("link").className = "chip is-" + state; $("link").textContent = words; page.body.classList.toggle("lost", state === "failed"); };

function listen(after) {
  hush();
  if (route.part === "report") return;
  const key = keys.stream, query = route.run ? about(after === null ? { key } : { key, after }) : "key=" + key;
  source = new EventSource("/api/stream?" + query);
  source.onopen = () => { wait = 500; link("done", live); };
  source.onerror = () => { hush(); link("failed", "connection lost, runs continue"); retry = setTimeout(reconnect, wait = Math.min(wait * 2, 8000)); };
  on(source, "page", event => show(JSON.parse(event.data)));
  on(source, "restart", event => restart(+event.data));
  on(source, "log", event => { place = +event.lastEventId; addRows(JSON.parse(event.data)); });
}
function hush() { if (source) source.close(); source = null; clearTimeout(retry); }
// A refused stream gives no reason, and the browser does not retry it.
async function reconnect() {
  try { await call("session?" + (route.run ? about() : "")); } catch (error) {
    if (error.status === 404) { $("view").replaceChildren(h("p", { class: "report notice" }, error.message)); return; }
  }
  if (!$("login") && !page.hidden) listen(place);
}
on(page, "visibilitychange", () => {
  if (!page.hidden) { if (keys && !source) listen(place); } else if (!wants()) { hush(); link("open", "resting"); }
});

// --- views

function show(sections) {
  for (const name in sections) put("s-" + name, sections[name]);
  if (sections.head) {
    const state = sections.head[1]["data-state"];
    page.title = sections.head[1]["data-title"] + ", " + state + " · ralphtool";
    if (wasState && state !== wasState && !/running|paused/.test(state)) { notify("The run has ended: " + state); loadTimeline(); }
    wasState = state;
  }
  if (sections.ask) noticeQuestions(sections.ask.slice(2));
  if (sections.stories) { fillFilter(); mark(); if (route.story) dueStory = 1; }
}

function noticeQuestions(cards) {
  if (known && cards.some(one => !known.has(keyOf(one)))) notify("A question needs your answer");
  known = new Set(cards.map(keyOf));
}

function mark() {
  for (const one of all("#s-stories a")) one.ariaCurrent = one.hash === location.hash ? "true" : null;
}

const section = (id, ...before) => h("section", {}, ...before, h("div", { id }));

function draw() {
  const [project, run, part, story] = location.hash.slice(2).split("/");
  const isSame = run && run === route.run && project === route.project && part !== "report" && route.part !== "report";
  route = { project, run, part, story: part === "story" ? new URLSearchParams("s=" + story).get("s") : "" };
  $("where").textContent = run || "";
  if (!isSame) drawAnew();
  if (run && part !== "report") { mark(); drawStory(); }
}

function drawAnew() {
  hush(); place = null; wasState = ""; known = null; page.title = "ralphtool";
  if (!route.run) { $("view").replaceChildren(h("main", { class: "home" }, h("h1", { class: "unseen" }, "Projects"), h("div", { id: "s-home" }))); listen(null); return; }
  if (route.part === "report") { drawReport(); return; }
  $("view").replaceChildren(h("main", {}, section("s-head"), h("div", { id: "s-controls" }), h("div", { id: "s-ask" }),
    h("div", { class: "cols" }, section("s-stories", h("h2", {}, "Stories")),
      h("div", {}, section("s-lanes"), h("div", { id: "story-box" }),
        h("section", {}, h("details", { id: "timeline" }, h("summary", {}, "Timeline"), h("div", { id: "s-timeline" }))),
        h("section", {}, h("div", { class: "tools" }, h("h2", { id: "log-title" }, "Log"),
          h("button", { type: "button", id: "newest", hidden: "" }, "Newest"),
          h("select", { id: "filter", "aria-label": "Story" }, h("option", { value: "" }, "all stories"))),
          h("div", { id: "log", role: "log", "aria-live": "off", "aria-labelledby": "log-title", tabindex: "0" }))))));
  $("timeline").ontoggle = loadTimeline;
  $("log").onscroll = lookBack;
  $("newest").onclick = () => listen(null);
  $("filter").onchange = () => listen(null);
  listen(null);
}

function drawReport() {
  link("open", "loading");
  const back = h("p", { class: "report" }, h("a", { href: `#/${route.project}/${route.run}` }, "Back to the run"));
  $("view").replaceChildren(back);
  call("report?" + about()).then(tree => { if (back.isConnected) { back.after(make(tree)); link("open", "report"); } }, tell);
}

async function drawStory() {
  dueStory = 0; isDrawing = true;
  const id = route.story;
  if (!id) {
    const closed = $("story")?.dataset.of;
    $("story-box").replaceChildren();
    all("#s-stories li").find(row => row.dataset.key === closed)?.firstChild.focus();  // with it, the scroll position
    isDrawing = false;
    return;
  }
  try {
    const tree = await call("story?" + about({ story: id }));
    if (id !== route.story || !$("story-box")) { isDrawing = false; return; }
    if (!$("story") || $("story").dataset.of !== id) {
      const close = h("a", { class: "button", href: `#/${route.project}/${route.run}` }, "Close");
      $("story-box").replaceChildren(h("section", { id: "story", "data-of": id, tabindex: "-1", "aria-label": "Story" }, h("div", { id: "s-story" }), close));
      $("story").focus();
    }
    put("s-story", tree);
  } catch (error) { tell(error); }
  isDrawing = false;
}
setInterval(() => { if (dueStory && route.story && !page.hidden && !isDrawing) drawStory(); if (/running|paused/.test(wasState)) loadTimeline(); }, 3000);

function loadTimeline() {
  if (!$("timeline") || !$("timeline").open || page.hidden) return;
  call("timeline?" + about()).then(tree => put("s-timeline", tree), tell);
}

// --- the log: a limited number of rows; older ones are loaded when the user scrolls back

function makeRow([at, ms, kind, story, text, more]) {
  const when = h("time", { title: new Date(ms).toLocaleString() }, new Date(ms).toTimeString().slice(0, 8));
  const row = h("div", { class: "e " + kind }, when);
  Object.assign(row, { at, story });
  const lines = text.split("\n");
  if (kind.startsWith("tool")) row.append(h("p", {}, h("i", {}, story), h("b", {}, text), " " + more));
  else if (!/^(back|out)/.test(kind)) row.append(h("p", {}, ...(kind === "say" && story ? [h("i", {}, story)] : []), text));
  else if (lines.length < 5) row.append(h("pre", {}, text));
  else row.append(h("details", {}, h("summary", {}, `${lines[0]} … ${lines.length - 1} more lines`), h("pre", {}, text)));
  row.hidden = isHidden(row);
  return row;
}
const isHidden = row => !!$("filter").value && row.story !== $("filter").value;
const isAtEnd = () => $("log").scrollHeight - $("log").scrollTop - $("log").clientHeight < 60;
const toEnd = () => { $("log").scrollTop = $("log").scrollHeight; };

function restart(from) {
  first = from; place = from; isBack = false; $("newest").hidden = true; $("log").replaceChildren();
}

function addRows(items) {
  if (isBack) return;
  const log = $("log"), follows = isAtEnd(), rows = items.slice(-MOST).map(makeRow);
  log.append(...rows);
  if (follows) { while (log.childElementCount > MOST) log.firstChild.remove(); toEnd(); }
  if (log.firstChild) first = log.childElementCount >= MOST ? log.firstChild.at : first;
  if (!follows && log.childElementCount > 2 * MOST) detach();
  lookBack();
}

// The user reads far back: new rows are not added below, but loaded when the user returns to the end.
function detach() {
  isBack = true; $("newest").hidden = false;
  while ($("log").childElementCount > MOST) $("log").lastChild.remove();
}

async function lookBack() {
  const log = $("log"), from = first, isShort = () => log.scrollHeight <= log.clientHeight;
  if (isLoading || !first || (log.scrollTop > 300 && !isShort())) return;
  isLoading = true;
  try {
    const { items, before } = await call("log?" + about({ before: first, story: $("filter").value }));
    if ($("log") !== log || first !== from) return;
    const height = log.scrollHeight;
    first = before;
    log.prepend(...items.map(makeRow));
    log.scrollTop += log.scrollHeight - height;
    if (log.childElementCount > MOST + 500) detach();
  } catch (error) { tell(error); } finally { isLoading = false; }
  if (isShort()) lookBack();
}

function fillFilter() {
  const rows = all("#s-stories > ul > li:has(.name)"), box = $("filter"), chosen = box.value;
  if (box.options.length === rows.length + 1) return;
  box.replaceChildren(box.options[0], ...rows.map(row => h("option", { value: row.dataset.key }, row.querySelector(".name").textContent)));
  box.value = chosen;
}

// --- commands of the user

on(page, "click", event => {
  const button = event.target.closest("[data-do]"), anchor = event.target.closest("a[href^='#']");
  if (button) act(button);
  else if (anchor && !anchor.hash.startsWith("#/")) { event.preventDefault(); page.querySelector(anchor.hash)?.scrollIntoView(); }
});

async function act(button) {
  const told = button.dataset, form = button.closest("[data-form]");
  const field = form?.querySelector("textarea");
  let text = field?.value.trim() || "";
  if (field && !text) { field.focus(); say("Write an answer first."); return; }
  if (told.ask) {
    const said = await ask(told.ask, told.text);
    if (said === null) return;
    text = said;
  }
  button.disabled = true;
  try {
    const { said, run } = await call("do", { project: told.project || route.project, do: told.do, change: told.change, story: told.story || "", text });
    if (field) field.value = "";
    say(said);
    if (run) location.hash = `#/${told.project || route.project}/${run}`;
    dueStory = 1;
  } catch (error) { tell(error); }
  button.disabled = false;
}

function ask(words, text) {
  const dialog = $("dialog"), area = dialog.querySelector("textarea");
  $("ask").textContent = words; area.hidden = !text; area.value = "";
  area.placeholder = text === "required" ? "" : "Why? (optional)";
  dialog.showModal();
  return new Promise(resolve => {
    dialog.onclick = event => {
      const button = event.target.closest("button");
      if (!button) return;
      if (button.value && text === "required" && !area.value.trim()) { area.focus(); return; }
      dialog.close(button.value);
    };
    dialog.onclose = () => { resolve(dialog.returnValue ? area.value.trim() : null); dialog.returnValue = ""; };
  });
}

on(page, "toggle", event => {
  const box = event.target, load = box.dataset.load;
  if (!load || !box.open || box.lastChild.matches("pre")) return;
  call(`${load}&${about()}`).then(tree => box.append(make(tree)), tell);
});

const KEYS = "j, k: stories\na: answer\np: pause or resume\ng: guide\nl: log\nh: all runs\nEsc: close the story";
const press = selector => page.querySelector(selector)?.click();
on(page, "keydown", event => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input,textarea,select,dialog")) return;
  const links = all(".rows > li > a"), now = page.querySelector(".rows a:focus") || page.querySelector("a[aria-current]");
  const here = links.indexOf(now);
  const act = {
    j: () => links[Math.min(links.length - 1, here + 1)]?.focus(),
    k: () => links[Math.max(0, here - 1)]?.focus(),
    a: () => page.querySelector("#s-ask textarea")?.focus(),
    p: () => press("[data-do=pause],[data-do=resume]"),
    g: () => press("[data-do=guide]"),
    l: () => $("log")?.focus(),
    h: () => press(".bar a"),
    Escape: () => { if (route.story) location.hash = `#/${route.project}/${route.run}`; },
    "?": () => ask(KEYS),
  }[event.key];
  if (act) { event.preventDefault(); act(); }
});
$("keys").onclick = () => ask(KEYS);

// --- notices

const wants = () => window.Notification?.permission === "granted" && localStorage.notify === "yes";
function notify(words) {
  // Some mobile browsers have notifications, but refuse to create one here.
  try { if (wants()) new Notification("ralphtool", { body: words + ": " + page.title }); } catch { }
}
$("notify").onclick = async event => {
  const was = wants();
  if (!was && await window.Notification?.requestPermission() !== "granted") { say("This browser does not allow notifications."); return; }
  localStorage.notify = was ? "no" : "yes";
  event.target.ariaPressed = !was;
};

// --- login

function showLogin() {
  hush(); keys = null; link("open", "not logged in");
  const field = h("input", { id: "login", "aria-label": "Address", placeholder: "http://127.0.0.1:…/#token=…", autocomplete: "off" });
  const enter = h("button", { type: "button", class: "main" }, "Open");
  enter.onclick = () => logIn(field.value.split("token=").pop().trim());
  field.onkeydown = event => { if (event.key === "Enter") enter.click(); };
  $("view").replaceChildren(h("main", {}, h("section", {}, h("h1", {}, "Open your address"),
    h("p", {}, h("code", {}, "ralphtool web"), " printed it. Open it, or paste it here."), field, h("p", { class: "controls" }, enter))));
}

async function logIn(token) {
  try {
    keys = await call("login", { token });
    localStorage.keys = JSON.stringify(keys);
    begin();
  } catch (error) { if (!$("login")) showLogin(); tell(error); }
}

function begin() {
  live = keys.read_only ? "read-only" : "live";
  $("notify").ariaPressed = wants();
  route = {};
  draw();
}

// The address with the key may also be pasted into a tab that already shows the page.
function enter() {
  const token = /^#token=(\w+)$/.exec(location.hash);
  if (token) { history.replaceState(null, "", "#/"); logIn(token[1]); }
  return token;
}
on(window, "hashchange", () => { if (!enter() && keys) draw(); });
if (!enter()) {
  keys = JSON.parse(localStorage.keys || "null");
  call("session").then(begin, error => { if (!$("login")) tell(error); });
}
