// Tables on narrow screens: each row is a card, and its cells are labelled by the titles of the columns.

export function label(table) {
  const titles = [...table.querySelectorAll("thead th")].map((th) => th.textContent.trim());
  for (const row of table.tBodies[0]?.rows ?? []) {
    [...row.cells].forEach((cell, index) => cell.setAttribute("data-label", titles[index] ?? ""));
  }
  table.classList.add("labelled");
}
