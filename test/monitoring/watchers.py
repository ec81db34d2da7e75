"""The real exporter and a real Prometheus, each on a free loopback port with a directory of its own.

May depend on: test/lib (processes, checks).
"""

import json
import os
import re
import subprocess
import urllib.error
import urllib.parse
import urllib.request

import yaml

import processes
from checks import await_until

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
MONITORING = os.path.join(TOP, "monitoring")

# The packages' programs; their services are not ours.
EXPORTER = "/usr/bin/prometheus-postgres-exporter"
PROMETHEUS = "/usr/bin/prometheus"


def read(name):
    """A file of monitoring/."""
    with open(os.path.join(MONITORING, name), encoding="utf-8") as file:
        return file.read()


def get(url):
    with urllib.request.urlopen(url, timeout=10) as answer:
        return answer.read().decode("utf-8")


class Watcher:
    """A process that answers on a port; ended by its id."""

    name = ""
    ready = "/"

    def __init__(self):
        self.user = processes.server_user("postgres")
        self.directory = processes.new_dir(self.name, self.user)
        self.log = os.path.join(self.directory, "log")
        self.port = processes.free_ports(1)[0]
        self.process = None

    def __enter__(self):
        self.process = processes.spawn(self.argv(), self.user, self.directory, self.log, self.environment())
        try:
            await_until(self.answers, 60, lambda: f"{self.name} answers; its log:\n{processes.tail(self.log)}",
                        ignoring=(OSError,))
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_):
        self.stop()

    def answers(self):
        if self.process.poll() is not None:
            raise processes.StartFailed(f"{self.name} ended at start:\n{processes.tail(self.log)}")
        return get(self.url(self.ready)) is not None

    def url(self, path):
        return f"http://127.0.0.1:{self.port}{path}"

    def stop(self):
        if self.process is None:
            return
        self.process.terminate()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process = None

    def argv(self):
        raise NotImplementedError

    def environment(self):
        return {"PATH": "/usr/bin:/bin", "HOME": self.directory}


class Exporter(Watcher):
    """prometheus-postgres-exporter with the shipped queries."""

    name = "exporter"
    ready = "/"

    def __init__(self, source):
        super().__init__()
        self.source = source
        self.queries = processes.write_file(os.path.join(self.directory, "queries.yaml"), read("queries.yaml"), self.user)

    def argv(self):
        return [EXPORTER, f"--web.listen-address=127.0.0.1:{self.port}", f"--extend.query-path={self.queries}"]

    def environment(self):
        return dict(super().environment(), DATA_SOURCE_NAME=self.source)


def impatient(rules):
    """The shipped rules as they are for a test: no waiting, and seconds for limits."""
    groups = yaml.safe_load(rules)
    for group in groups["groups"]:
        for rule in group["rules"]:
            rule["for"] = "0s"
            rule["expr"] = re.sub(r"> \d{2,}$", "> 1", rule["expr"])
    return yaml.safe_dump(groups)


class Prometheus(Watcher):
    """Scrapes one target and evaluates the rules twice a second."""

    name = "prometheus"
    ready = "/-/ready"

    def __init__(self, target, rules):
        super().__init__()
        processes.write_file(os.path.join(self.directory, "alerts.yaml"), rules, self.user)
        self.config = processes.write_file(os.path.join(self.directory, "prometheus.yaml"), yaml.safe_dump({
            "global": {"scrape_interval": "500ms", "scrape_timeout": "500ms", "evaluation_interval": "500ms"},
            "rule_files": ["alerts.yaml"],
            "scrape_configs": [{"job_name": "acemq", "static_configs": [{"targets": [f"127.0.0.1:{target}"]}]}]}), self.user)

    def argv(self):
        return [PROMETHEUS, f"--config.file={self.config}", f"--storage.tsdb.path={self.directory}/data",
                f"--web.listen-address=127.0.0.1:{self.port}"]

    def query(self, expression):
        """[(labels, value)] of an instant query."""
        try:
            answer = get(self.url("/api/v1/query?" + urllib.parse.urlencode({"query": expression})))
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{expression}: {error.read().decode('utf-8')}") from None
        return [(row["metric"], float(row["value"][1])) for row in json.loads(answer)["data"]["result"]]

    def value(self, expression):
        """The one value of it; None: there is none."""
        rows = self.query(expression)
        assert len(rows) <= 1, f"{expression}: {rows}"
        return rows[0][1] if rows else None

    def firing(self):
        alerts = json.loads(get(self.url("/api/v1/alerts")))["data"]["alerts"]
        return {alert["labels"]["alertname"]: alert for alert in alerts if alert["state"] == "firing"}

    def await_firing(self, name, timeout=30):
        return await_until(lambda: self.firing().get(name), timeout, lambda: f"{name} fires; firing: {self.firing()}")

    def await_quiet(self, *names, timeout=30):
        await_until(lambda: not set(names or self.firing()) & set(self.firing()), timeout,
                    lambda: f"{names} are over; firing: {self.firing()}")
