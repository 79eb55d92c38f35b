// Enhancements of all pages. Everything works without them, except the live tail and the chart.

import { label, sortable } from "./tables.js";

const root = document.documentElement;

function isDark() {
  return root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
}

const theme = document.getElementById("theme");
theme.hidden = false;
theme.addEventListener("click", () => {
  root.dataset.theme = isDark() ? "light" : "dark";
  document.cookie = `ottla-theme=${root.dataset.theme}; path=/; max-age=31536000; samesite=strict`;
});

for (const table of document.querySelectorAll("table")) {
  label(table);
  sortable(table);
}

for (const button of document.querySelectorAll("button.copy")) {
  if (!navigator.clipboard) continue; // not a secure context
  button.hidden = false;
  button.addEventListener("click", async () => {
    await navigator.clipboard.writeText(button.previousElementSibling.textContent);
    button.textContent = "Copied";
  });
}

// "/" moves to the search field, Escape closes menus.
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape") {
    document.querySelectorAll("details.menu[open]").forEach((menu) => { menu.open = false; });
  }
  if (event.key !== "/" || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.target.closest("input, textarea, select")) return;
  const field = document.querySelector("input[type=search], form input:not([type=hidden])");
  if (field) {
    event.preventDefault();
    field.focus();
  }
});
