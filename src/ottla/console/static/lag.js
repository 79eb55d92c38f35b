// Chart of a group's lag since the page was opened.

const chart = document.getElementById("chart");
const text = document.getElementById("chart-text");
const figure = document.getElementById("lag");
const MOST = 600;
const samples = [];

function draw() {
  const most = Math.max(...samples.map((sample) => sample.lag));
  const first = samples[0].time;
  const span = Math.max(1, samples.at(-1).time - first);
  const points = samples.map((sample) => `${((sample.time - first) / span) * 600},${115 - (sample.lag / Math.max(1, most)) * 105}`);
  chart.querySelector("polyline").setAttribute("points", points.join(" "));
  const last = samples.at(-1);
  figure.textContent = last.lag.toLocaleString("en").replaceAll(",", "\u202f");
  text.textContent = `Lag ${last.lag} now, at most ${most}, in the last ${Math.round(span / 1000)} s.`;
}

async function sample() {
  if (!document.hidden) {
    try {
      const response = await fetch(chart.dataset.url);
      const latest = await response.json();
      if (latest.lag !== null) {
        samples.push(latest);
        if (samples.length > MOST) samples.shift();
        draw();
      } else {
        text.textContent = "The lag is not known: the group has no offsets yet, or the cluster does not report it.";
      }
    } catch {
      text.textContent = "The console does not answer; trying again.";
    }
  }
  setTimeout(sample, 2000);
}
sample();
