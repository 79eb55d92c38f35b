// Live tail: new messages of a topic by server-sent events, above those of the search.

import { label } from "./tables.js";

const MOST_ROWS = 500;
const button = document.getElementById("tail");
const status = document.getElementById("status");
const table = document.getElementById("messages");
const body = table.tBodies[0];
let source = null;
let count = 0;

function cell(row, className, ...content) {
  const td = document.createElement("td");
  if (className) td.className = className;
  td.append(...content);
  row.append(td);
}

function time(ms) {
  return ms < 0 ? "–" : new Date(ms).toISOString().replace("T", " ").replace("Z", "");
}

function element(name, className, ...content) {
  const created = document.createElement(name);
  if (className) created.className = className;
  created.append(...content);
  return created;
}

// The value as in messages.html: a long one is opened by a click, one that is not all here by its page.
function value(shown, page) {
  const text = element("pre", "", shown.text + (shown.is_cut ? " …" : ""));
  text.tabIndex = 0;
  if (!shown.is_long) return text;
  const link = element("a", "", "Open all");
  link.href = page;
  const opener = shown.is_cut ? link : element("details", "", element("summary", "", `${shown.length} B: `));
  return element("div", "long", opener, text);
}

function show(message) {
  const row = document.createElement("tr");
  row.className = "fresh";
  const link = document.createElement("a");
  link.href = `${button.dataset.page}/${message.partition}/${message.offset}`;
  link.textContent = message.offset;
  cell(row, "", String(message.partition));
  cell(row, "", link);
  const moment = document.createElement("time");
  moment.textContent = time(message.timestamp);
  cell(row, "", moment);
  cell(row, "mono", message.key.text);
  cell(row, "value", value(message.value, link.href));
  cell(row, "", ...message.headers.map(([name, text]) => {
    const line = document.createElement("div");
    line.className = "mono";
    line.textContent = `${name}=${text}`;
    return line;
  }));
  table.hidden = false;
  body.prepend(row);
  while (body.rows.length > MOST_ROWS) body.lastElementChild.remove();
  label(table);
  count += 1;
  const skipped = message.skipped ? `, ${message.skipped} left out` : "";
  status.textContent = `Live: ${count} new${skipped}.`;
}

function stop() {
  source.close();
  source = null;
  button.setAttribute("aria-pressed", "false");
  button.textContent = "Live tail";
  status.textContent = `Live tail stopped after ${count} new.`;
}

button.hidden = false;
button.addEventListener("click", () => {
  if (source) {
    stop();
    return;
  }
  count = 0;
  source = new EventSource(button.dataset.url);
  button.setAttribute("aria-pressed", "true");
  button.textContent = "Stop";
  status.textContent = "Live: connecting.";
  source.addEventListener("open", () => { status.textContent = `Live: ${count} new.`; });
  source.addEventListener("message", (event) => show(JSON.parse(event.data)));
  source.addEventListener("error", () => { status.textContent = "Live tail: the connection was lost; trying again."; });
});
