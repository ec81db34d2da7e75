#!/usr/bin/python3
"""How results look: lines on the terminal, tables and charts in docs/performance.md.

    test/bench/report.py --write docs/performance.md run.json

replaces what stands between the two marker comments of the page, and the
charts beside it.

May depend on: figures.py, plot.py.
"""

import argparse
import datetime
import json
import os

import plot
from figures import verdict

BEGIN, END = "<!-- figures: begin -->", "<!-- figures: end -->"
PARTS = {
    "relay": "Relay throughput",
    "latency": "Latency",
    "add": "Adding",
    "flatness": "The relay in hard states of the table",
    "cost": "What it costs, and how soon it is back",
    "idempotency": "Idempotency store",
    "registry": "Schema registry",
}
CHARTS = {"latency": plot.latency, "flatness": plot.backlog}


# ---- where it was measured ----

def machine():
    """Cores, memory and CPU; no names."""
    with open("/proc/cpuinfo", encoding="utf-8") as info:
        model = next((line.partition(":")[2].strip() for line in info if line.startswith("model name")), "unknown")
    with open("/proc/meminfo", encoding="ascii") as info:
        memory = int(info.readline().split()[1]) // 1024
    return {"cpu": model, "cores": len(os.sched_getaffinity(0)), "memory_mb": memory,
            "kernel": os.uname().release, "load_average": os.getloadavg()[0], "nice": os.nice(0),
            "at": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC")}


def settings(stage):
    """Versions, and what was set."""
    (version,), = stage.cluster.sql("SHOW server_version")
    with stage.broker.connection("/") as connection:
        broker = connection._impl.server_properties["version"]  # pylint: disable=protected-access
    return {"postgresql": version, "rabbitmq": broker, "rounds": stage.rounds, "quick": stage.quick,
            "postgresql_settings": {name: str(value) for name, value in stage.cluster.settings.items()
                                    if "director" not in name and name not in ("listen_addresses", "log_line_prefix")}}


# ---- one figure ----

def number(value):
    if value is None:
        return "-"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def limits(result):
    """What is asked for, in words."""
    sign = ">=" if result["better"] == "higher" else "<="
    must, stretch = ("" if limit is None else f"{sign} {limit:g}" for limit in (result["must"], result["stretch"]))
    return must, result.get("stretch_text", stretch)


def spread(result):
    """Least and greatest of the rounds: ratios where there is a baseline."""
    values = result["rounds"]
    if "baseline_rounds" in result and all(result["baseline_rounds"]):
        values = [ours / base for ours, base in zip(values, result["baseline_rounds"])]
    return f"{number(min(values))} to {number(max(values))}" if len(values) > 1 else ""


def ratio(result):
    return f"{result['ratio']:.2f}" if result.get("ratio") is not None else ""


# ---- terminal ----

def heading(results):
    here, made = results["machine"], results["settings"]
    quick = "; QUICK: rough figures" if made["quick"] else ""
    return (f"{here['cores']} cores, {here['memory_mb']} MB, {here['cpu']}; PostgreSQL {made['postgresql']}, "
            f"RabbitMQ {made['rabbitmq']}; {made['rounds']} rounds; load {here['load_average']:.1f}{quick}\n"
            f"{'':62} {'ours':>10} {'baseline':>10} {'':10} {'ratio':>6}  {'must':8} {'stretch':8} reached")


def line(result):
    must, stretch = limits(result)
    return (f"{result['part'] + ': ' + result['name']:62} {number(result['ours']):>10} "
            f"{number(result.get('baseline')):>10} {result['unit']:10} {ratio(result):>6}  {must:8} {stretch:8} {verdict(result)}")


# ---- page ----

def table(figures):
    rows = ["| | unit | ours | baseline | ratio | rounds | must | stretch | reached |", "|---|---|--:|--:|--:|---|---|---|---|"]
    for result in figures:
        must, stretch = limits(result)
        cells = [result["name"], result["unit"], number(result["ours"]), number(result.get("baseline")), ratio(result),
                 spread(result), must, stretch, verdict(result)]
        rows.append("| " + " | ".join(cells) + " |")
    return "\n".join(rows)


def conditions(results):
    here, made = results["machine"], results["settings"]
    changed = ", ".join(f"`{name} = {value}`" for name, value in sorted(made["postgresql_settings"].items()))
    text = (f"Measured {here['at']} on {here['cores']} cores of an {here['cpu']} with {here['memory_mb'] // 1024} GB, Linux {here['kernel']}, "
            f"load average {here['load_average']:.1f} before. PostgreSQL {made['postgresql']}, RabbitMQ {made['rabbitmq']}, "
            f"{made['rounds']} rounds. Settings: {changed}.")
    if made["quick"]:
        text += "\n\n**A quick run: these figures are rough and prove nothing.**"
    return text


def write(page, results):
    """Replace the figures of the page, and its charts."""
    with open(page, encoding="utf-8") as existing:
        before, begin, rest = existing.read().partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise SystemExit(f"{page} has no lines {BEGIN} and {END}")
    parts = [conditions(results)]
    for part, title in PARTS.items():
        figures = [result for result in results["figures"] if result["part"] == part]
        if not figures:
            continue
        parts.append(f"## {title}: figures\n\n{table(figures)}")
        drawing = CHARTS[part](figures) if part in CHARTS else None
        if drawing:
            name = f"{os.path.splitext(os.path.basename(page))[0]}-{part}.svg"
            with open(os.path.join(os.path.dirname(page), name), "w", encoding="utf-8") as out:
                out.write(drawing)
            parts.append(f"![{title}]({name})")
    with open(page, "w", encoding="utf-8") as out:
        out.write(before + BEGIN + "\n\n" + "\n\n".join(parts) + "\n\n" + END + after)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", nargs="+", help="files that test/bench/run --json wrote; the first one tells of the machine")
    parser.add_argument("--write", metavar="PAGE", help="put tables and charts into this page; else show the lines")
    options = parser.parse_args()
    loaded = []
    for path in options.results:
        with open(path, encoding="utf-8") as results:
            loaded.append(json.load(results))
    results = dict(loaded[0], figures=[figure for one in loaded for figure in one["figures"]])
    if options.write:
        write(options.write, results)
        return
    print(heading(results))
    for figure in results["figures"]:
        print(line(figure))


if __name__ == "__main__":
    main()
