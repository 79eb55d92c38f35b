// Charts of values over time, as the server has kept them. A line is broken where the server did not look for a while.

const MOST_POINTS = 720;
const GAP_MS = 60000;
const SIZES = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

function amount(value, unit) {
  if (unit.startsWith("bytes")) {
    let step = 0;
    while (value >= 1024 && step < SIZES.length - 1) { value /= 1024; step += 1; }
    return `${step ? value.toFixed(1) : Math.round(value)} ${SIZES[step]}${unit.slice(5)}`;
  }
  const text = value >= 10 || Number.isInteger(value) ? Math.round(value).toLocaleString("en") : value.toFixed(1);
  return text.replaceAll(",", "\u202f") + unit;
}

function span(ms) {
  const seconds = Math.round(ms / 1000);
  return seconds < 120 ? `${seconds} s` : `${Math.round(seconds / 60)} min`;
}

function draw(svg, points) {
  const { unit } = svg.dataset;
  const box = svg.parentElement;
  const values = points.map(([, value]) => value);
  const most = Math.max(...values);
  const first = points[0][0];
  const length = Math.max(1, points.at(-1)[0] - first);
  svg.firstElementChild.setAttribute("d", points.map(([time, value], index) => {
    const x = ((time - first) / length) * 600;
    const y = 115 - (value / Math.max(most, 1e-9)) * 105;
    const isStart = index === 0 || time - points[index - 1][0] > GAP_MS;
    return `${isStart ? "M" : "L"}${x.toFixed(1)} ${y.toFixed(1)}`;
  }).join(""));
  box.querySelector("[data-latest]").textContent = amount(values.at(-1), unit);
  box.querySelector("[data-text]").textContent =
    `${amount(values.at(-1), unit)} now, at most ${amount(most, unit)}, in the last ${span(length)}.`;
}

function follow(charts) {
  const svgs = [...charts.querySelectorAll("svg[data-series]")];
  const all = Object.fromEntries(svgs.map((svg) => [svg.dataset.series, []]));
  let after = -1;
  async function look() {
    if (!document.hidden) {
      try {
        const url = new URL(charts.dataset.charts, location.href);
        url.searchParams.set("after", after);
        const response = await fetch(url);
        const { series } = await response.json();
        for (const svg of svgs) {
          const points = all[svg.dataset.series];
          points.push(...(series[svg.dataset.series] ?? []));
          points.splice(0, points.length - MOST_POINTS);
          if (points.length) {
            after = Math.max(after, points.at(-1)[0]);
            draw(svg, points);
          }
        }
      } catch {
        for (const svg of svgs) svg.parentElement.querySelector("[data-text]").textContent = "The console does not answer; trying again.";
      }
    }
    setTimeout(look, Number(charts.dataset.every ?? 5000));
  }
  look();
}

document.querySelectorAll("[data-charts]").forEach(follow);
