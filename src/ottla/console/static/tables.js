// Tables: on narrow screens each row is a card, whose cells are labelled by the titles of the columns. Those whose rows are all
// on the page are sorted here; headers of the others are links.

const SIZES = { B: 1, KiB: 2 ** 10, MiB: 2 ** 20, GiB: 2 ** 30, TiB: 2 ** 40, PiB: 2 ** 50 };

// The number of a cell, with its unit; undefined for a text.
function amount(text) {
  const found = text.replace(/[\u202f\u00a0,]/g, "").match(/^(-?\d+(?:\.\d+)?)(?: (B|[KMGTP]iB))?$/);
  return found ? Number(found[1]) * (SIZES[found[2]] ?? 1) : undefined;
}

function compare(one, other) {
  const numbers = [amount(one), amount(other)];
  if (numbers.every((number) => number !== undefined)) return numbers[0] - numbers[1];
  return one.localeCompare(other, "en", { numeric: true });
}

function sortBy(table, header) {
  const descending = header.getAttribute("aria-sort") === "ascending";
  const index = header.cellIndex;
  const text = (row) => row.cells[index]?.textContent.trim() ?? "";
  const rows = [...table.tBodies[0].rows];
  const known = rows.filter((row) => text(row) !== "–").sort((one, other) => compare(text(one), text(other)));
  if (descending) known.reverse();
  table.tBodies[0].append(...known, ...rows.filter((row) => text(row) === "–"));
  for (const other of table.tHead.rows[0].cells) other.setAttribute("aria-sort", "none");
  header.setAttribute("aria-sort", descending ? "descending" : "ascending");
}

export function sortable(table) {
  if ("unsorted" in table.dataset || table.querySelector("th[aria-sort]") || table.tBodies[0]?.rows.length < 2) return;
  for (const header of table.tHead?.rows[0].cells ?? []) {
    const button = document.createElement("button");
    button.type = "button";
    button.className = "sort";
    button.textContent = header.textContent;
    button.addEventListener("click", () => sortBy(table, header));
    header.replaceChildren(button);
    header.setAttribute("aria-sort", "none");
  }
}

export function label(table) {
  const titles = [...table.querySelectorAll("thead th")].map((th) => th.textContent.trim());
  for (const row of table.tBodies[0]?.rows ?? []) {
    [...row.cells].forEach((cell, index) => cell.setAttribute("data-label", titles[index] ?? ""));
  }
  table.classList.add("labelled");
}
