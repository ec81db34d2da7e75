"""The results file, one JSON object a line, and the tables made of it.

{"run": ..., "fault": kind, ...} for every fault as soon as it is over, and one
{"run": ..., "verdict": {...}} for the whole run, so that several runs add up
and one that was broken off can be told.

May depend on: nothing of ours.
"""

import collections
import json
import statistics


class Results:
    """Lines appended to the file, and kept."""

    def __init__(self, path, run):
        self._path = path
        self._run = run
        self.faults = []

    def _append(self, line):
        with open(self._path, "a", encoding="utf-8") as out:
            out.write(json.dumps({"run": self._run, **line}) + "\n")

    def fault(self, **what):
        self.faults.append(what)
        self._append(what)

    def verdict(self, verdict):
        self._append({"verdict": verdict})


def read(paths):
    """(faults, verdicts, numbers of runs without a verdict) of all files."""
    faults, verdicts, runs = [], {}, set()
    for path in paths:
        with open(path, encoding="utf-8") as lines:
            for line in map(json.loads, lines):
                runs.add(line["run"])
                if "verdict" in line:
                    verdicts[line["run"]] = line["verdict"]
                else:
                    faults.append(line)
    return faults, list(verdicts.values()), len(runs - verdicts.keys())


def fault_table(faults):
    """By kind: how often, duplicates, how long until the relay was through again."""
    by_kind = collections.defaultdict(list)
    for fault in faults:
        by_kind[fault["fault"]].append(fault)
    lines = ["| fault | times | connections lost | duplicates in all | most by one | relaying again, median | worst |",
             "|---|---:|---:|---:|---:|---:|---:|"]
    for kind, those in sorted(by_kind.items()):
        lines.append(_row(kind.replace("_", " "), those))
    if faults:
        lines.append(_row("**all**", faults))
    return "\n".join(lines)


def _row(name, faults):
    duplicates = [fault["duplicates"] for fault in faults]
    seconds = [fault["recovered"] for fault in faults]
    return (f"| {name} | {len(faults)} | {sum(fault['losses'] for fault in faults)} | {sum(duplicates)} | {max(duplicates)} |"
            f" {statistics.median(seconds):.2f} s | {max(seconds):.2f} s |")


# Of the verdict: what adds up, and of what the highest counts.
_SUMS = (("seconds", "seconds under load"), ("committed", "messages committed"), ("lost", "of them lost"),
         ("lost_on_the_ladder_by_the_broker", "of them lost on the ladder while the broker went down"),
         ("rolled_back", "messages rolled back"), ("invented", "messages delivered without a commit"),
         ("unknown", "COMMITs whose outcome the database had to tell"), ("losses", "connections and workers lost"),
         ("duplicates", "duplicates"),
         ("ladder_duplicates", "duplicates by way of the ladder"), ("disorder", "out of order within a key"),
         ("early", "scheduled messages before their time"), ("other_ids", "copies with another message id"),
         ("retired", "messages retired"), ("lost_commits", "acknowledged COMMITs that PostgreSQL lost"),
         ("broker_redelivered", "copies given out twice by the broker"),
         ("broker_disorder", "of them later than their successors"), ("wal_mb", "WAL, MB"))
_HIGHEST = (("max_in_flight", "acemq.max_in_flight"), ("worst_duplicates", "most duplicates per connection lost, by one fault"),
            ("worker_private_kb", "worker, most private memory, kB"),
            ("worker_private_growth_kb", "worker, most growth of it, kB"),
            ("worker_descriptors", "worker, most descriptors"),
            ("worker_descriptors_growth", "worker, most growth of them"),
            ("worker_oldest", "most faults one worker lived through"), ("dead_rows", "most dead rows"),
            ("outbox_mb", "largest outbox table with its indexes, MB"))


def sum_table(verdicts):
    lines = ["| of all runs | |", "|---|---:|", f"| runs | {len(verdicts)} |"]
    for name, text in _SUMS:
        lines.append(f"| {text} | {sum(verdict[name] for verdict in verdicts):,.0f} |")
    for name, text in _HIGHEST:
        lines.append(f"| {text} | {max(verdict[name] for verdict in verdicts):,.0f} |")
    return "\n".join(lines)


def add_up(paths):
    """The text for --add-up."""
    faults, verdicts, broken_off = read(paths)
    parts = [fault_table(faults)]
    if verdicts:
        parts.append(sum_table(verdicts))
    failures = [failure for verdict in verdicts for failure in verdict["failures"]]
    parts.append(f"{len(verdicts)} runs judged, {broken_off} broken off before their verdict; "
                 + (f"failures: {'; '.join(failures)}" if failures else "no failures"))
    return "\n\n".join(parts)
