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

function show(message) {
  const row = document.createElement("tr");
  row.className = "fresh";
  const link = document.createElement("a");
  link.href = `${button.dataset.page}/${message.partition}/${message.offset}`;
  link.textContent = message.offset;
  const value = document.createElement("pre");
  value.tabIndex = 0;
  value.textContent = message.value.text + (message.value.is_cut ? " …" : "");
  cell(row, "", String(message.partition));
  cell(row, "", link);
  cell(row, "", time(message.timestamp));
  cell(row, "mono", message.key.text);
  cell(row, "value", value);
  cell(row, "", ...message.headers.map(([name, text]) => {
    const line = document.createElement("div");
    line.className = "mono";
    line.textContent = `${name}=${text}`;
    return line;
  }));
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
