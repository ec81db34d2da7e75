"""What the benchmarks share: alternating rounds, pgbench, CPU time, options.

May depend on: cluster.py.
"""

import argparse
import os
import re
import statistics
import time

# One vacuum or checkpoint in the wrong run would be taken for a difference of the two sides.
QUIET_SETTINGS = {"shared_buffers": "512MB", "max_wal_size": "8GB", "checkpoint_timeout": "1h", "autovacuum": "off"}


def alternate(rounds, sides):
    """Call each side's function `rounds` times, A B then B A; the results by side, in order."""
    results = {side: [] for side in sides}
    for number in range(rounds):
        for side in list(sides) if number % 2 == 0 else list(reversed(list(sides))):
            results[side].append(sides[side]())
    return results


def median_columns(results):
    """Of tuples of figures, the medians column by column."""
    return tuple(statistics.median(column) for column in zip(*results))


def cpu_seconds(pid, children=False):
    """CPU time a process took; with `children`, what its children took that have ended."""
    with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as stat:
        fields = stat.read().rpartition(")")[2].split()
    first = 13 if children else 11
    return (int(fields[first]) + int(fields[first + 1])) / os.sysconf("SC_CLK_TCK")


def pgbench(cluster, database, script, clients, seconds, variables=None):
    """Time and backends' CPU time in microseconds that one run of the script takes."""
    path = cluster.secret_file("bench.sql", script)
    defines = [f"-D{name}={value}" for name, value in (variables or {}).items()]
    burnt = -cpu_seconds(cluster.pid, children=True)
    output = cluster.run("pgbench", "-h", cluster.sockets, "-p", str(cluster.port), "-U", "postgres", "-n",
                         "-M", "prepared", "-c", str(clients), "-j", str(min(clients, 2)), "-T", str(seconds),
                         "-f", path, *defines, database.name, timeout=seconds + 120)
    time.sleep(0.1)  # the last backends end
    burnt += cpu_seconds(cluster.pid, children=True)
    rate = float(re.search(r"tps = ([0-9.]+)", output).group(1))
    count = int(re.search(r"actually processed: ([0-9]+)", output).group(1))
    return 1e6 / rate, 1e6 * burnt / count


def options(description, shapes):
    """A parser with what these programs have in common."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=int, default=2, help="length of one run")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default=",".join(shapes))
    parser.add_argument("--clients", default="1,8")
    return parser
