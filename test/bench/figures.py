"""Figures: what was measured, against what, and what the design asks for.

May depend on: nothing of ours.
"""

import statistics


def figure(part, name, unit, ours, baseline, better="higher", must=None, stretch=None, **details):
    """One line of the table.  `ours` and `baseline` are the rounds' values; without a baseline the value counts itself."""
    ours = list(ours)
    result = {"part": part, "name": name, "unit": unit, "better": better, "must": must, "stretch": stretch,
              "rounds": ours, "ours": statistics.median(ours), "details": details}
    if baseline is not None:
        result["baseline_rounds"] = list(baseline)
        result["baseline"] = statistics.median(baseline)
        result["ratio"] = result["ours"] / result["baseline"] if result["baseline"] else None
    return result


def verdict(result):
    """"stretch", "must", "missed", or "" where nothing is asked for."""
    value = result.get("ratio", result["ours"]) if "baseline" in result else result["ours"]
    if value is None:
        return ""

    def reached(limit):
        return value >= limit if result["better"] == "higher" else value <= limit

    if result["stretch"] is not None and reached(result["stretch"]):
        return "stretch"
    if result["must"] is None:
        return ""
    return "must" if reached(result["must"]) else "missed"


def clients(count):
    """In words."""
    return f"{count} client" if count == 1 else f"{count} clients"
