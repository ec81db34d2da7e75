"""Charts as SVG, without a library: text that git can compare.

May depend on: nothing of ours.
"""

import math
import statistics
from xml.sax.saxutils import escape

WIDTH, HEIGHT = 420, 300
LEFT, RIGHT, TOP, BOTTOM = 62, 30, 46, 46
COLOURS = {"ours": "#c2410c", "plain": "#1d4ed8"}


class Axis:
    """Numbers to pixels: evenly, or by their logarithm."""

    def __init__(self, low, high, first, last, logarithmic=False):
        self._of = math.log10 if logarithmic else float
        self._low, self._high = self._of(low), self._of(high)
        self._first, self._last = first, last

    def at(self, value):
        share = (self._of(value) - self._low) / ((self._high - self._low) or 1)
        return self._first + share * (self._last - self._first)


def text(x, y, words, anchor="middle", size=11, weight="normal"):
    return (f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}" font-weight="{weight}">'
            f"{escape(words)}</text>")


def decades(low, high):
    """Powers of ten around the values."""
    return [10.0 ** power for power in range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)]


def chart(title, x_title, y_title, x_ticks, y_ticks, series, x_log=False, y_log=False):
    """One chart as a group.  x_ticks, y_ticks: (value, words); series: (name, colour, points)."""
    x_axis = Axis(x_ticks[0][0], x_ticks[-1][0], LEFT, WIDTH - RIGHT, x_log)
    y_axis = Axis(y_ticks[0][0], y_ticks[-1][0], HEIGHT - BOTTOM, TOP, y_log)
    parts = [text(LEFT, 16, title, "start", 12, "bold"), text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 8, x_title),
             text(LEFT, 32, y_title, "start", 10)]
    for value, words in x_ticks:
        x = x_axis.at(value)
        parts.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{HEIGHT - BOTTOM}" stroke="#e5e7eb"/>')
        parts.append(text(x, HEIGHT - BOTTOM + 15, words, size=9))
    for value, words in y_ticks:
        y = y_axis.at(value)
        parts.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}" stroke="#e5e7eb"/>')
        parts.append(text(LEFT - 6, y + 4, words, "end", 9))
    for number, (name, colour, points) in enumerate(series):
        path = " ".join(f"{x_axis.at(x):.1f},{y_axis.at(y):.1f}" for x, y in points)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.5"/>')
        parts += [f'<circle cx="{x_axis.at(x):.1f}" cy="{y_axis.at(y):.1f}" r="2.5" fill="{colour}"/>' for x, y in points]
        parts.append(f'<text x="{WIDTH - RIGHT}" y="{18 + 14 * number}" text-anchor="end" font-size="11" fill="{colour}">'
                     f"{escape(name)}</text>")
    return "\n".join(parts)


def page(charts, columns=2):
    """Charts side by side, as a document."""
    rows = math.ceil(len(charts) / columns)
    width, height = WIDTH * min(columns, len(charts)), HEIGHT * rows
    groups = [f'<g transform="translate({WIDTH * (n % columns)},{HEIGHT * (n // columns)})">\n{body}\n</g>'
              for n, body in enumerate(charts)]
    return (f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}"'
            f' font-family="sans-serif">\n<rect width="100%" height="100%" fill="white"/>\n' + "\n".join(groups) + "\n</svg>\n")


def latency(figures):
    """Percentiles of each case, both sides; None if nothing was measured."""
    charts = []
    for figure in (f for f in figures if f["part"] == "latency" and "curve" in f["details"] and f["name"].endswith("p50")):
        curves = {side: {share: max(statistics.median(values), 0.001) for share, values in curve.items()}
                  for side, curve in figure["details"]["curve"].items()}
        shares = list(curves["ours"])
        everything = [value for curve in curves.values() for value in curve.values()]
        series = [({"ours": "commit to delivery", "plain": "publish to delivery"}[side], COLOURS[side],
                   [(n, curve[share]) for n, share in enumerate(shares)]) for side, curve in curves.items()]
        charts.append(chart(figure["name"].removesuffix(", p50"), "percentile", "ms",
                            [(n, share) for n, share in enumerate(shares)],
                            [(value, f"{value:g}") for value in decades(min(everything), max(everything))], series, y_log=True))
    return page(charts) if charts else None


def medians(points):
    """One point for those whose x agrees in two digits."""
    groups = {}
    for x, y in points:
        groups.setdefault(float(f"{x:.1e}"), []).append(y)
    return sorted((x, statistics.median(values)) for x, values in groups.items())


def backlog(figures):
    """Rate over rows that wait, as a share of the empty table's; None if nothing was measured."""
    series = {"rows waiting, due": ("ours", []), "rows not yet due": ("plain", [])}
    for figure in (f for f in figures if f["part"] == "flatness"):
        for name, (_, points) in series.items():
            if name.partition(",")[0] in figure["name"]:
                points += [(max(rows, 1), rate / figure["baseline"])
                           for rows, rate in zip(figure["details"]["waiting"], figure["rounds"])]
    lines = [(name, COLOURS[colour], medians(points)) for name, (colour, points) in series.items() if points]
    if not lines:
        return None
    rows = [x for _, _, points in lines for x, _ in points]
    top = max(1.2, *(math.ceil(y * 5) / 5 for _, _, points in lines for _, y in points))
    return page([chart("relay throughput over the backlog", "rows waiting", "of the rate with an empty table",
                       [(value, f"{value:,.0f}") for value in decades(min(rows), max(rows))],
                       [(n / 5, f"{n / 5:.1f}") for n in range(round(top * 5) + 1)], lines, x_log=True)])
