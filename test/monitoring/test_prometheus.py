"""What monitoring/ ships, with the programs that it is for: the exporter's queries, the alerts, the dashboard."""

import contextlib
import json
import os
import re
import subprocess
import threading

import jsonschema
import pytest
import yaml

import ladder
import processes
from checks import await_until
from watchers import MONITORING, read

HERE = os.path.dirname(os.path.abspath(__file__))

# These go on changing when nothing happens.
MOVING = re.compile(r"\.(age|lag\.p\d+)$|skipped")


def prometheus_name(name):
    return re.sub(r"[^A-Za-z0-9_]", "_", name)


@contextlib.contextmanager
def load(db):
    """Messages to three destinations and one that has no queue, until the block ends."""
    over = threading.Event()

    def run():
        with contextlib.closing(db.connect(autocommit=True)) as connection, connection.cursor() as cursor:
            while not over.wait(0.02):
                cursor.execute("SELECT acemq.outbox_add('orders', 'order.' || n % 3, '1') FROM generate_series(1, 30) n")

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def test_files_are_sound():
    rules = os.path.join(MONITORING, "alerts.yaml")
    checked = subprocess.run(["promtool", "check", "rules", rules], check=False, capture_output=True, text=True)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    for group in yaml.safe_load(read("alerts.yaml"))["groups"]:
        for rule in group["rules"]:
            text = rule["annotations"]["description"]
            assert "acemq.doctor()" in text or rule["alert"] == "AcemqNotWatched", f"{rule['alert']} does not say what to do"


def test_every_metric_is_exported(shop, prometheus):
    """Each row of acemq.metrics is a series with that value; names and labels are the view's."""
    with load(shop):
        published = 'sum(acemq_outbox_total{outcome="published"})'
        first = await_until(lambda: prometheus.value(published), 30, "messages are counted")
        await_until(lambda: prometheus.value(published) > first, 30, "and go on being counted")
        await_until(lambda: (prometheus.value(f"sum(rate(acemq_outbox_total{{outcome='published'}}[5s]))") or 0) > 1, 30, "as a rate")
        lags = [await_until(lambda p=p: prometheus.value(f"acemq_outbox_lag_{p}"), 30, p) for p in ("p50", "p95", "p99")]
    assert 0 < lags[0] <= 60 and lags == sorted(lags)
    shop.sql("SELECT acemq.outbox_sweep('60 s')")
    assert shop.status()["published"] == shop.vhost.count(shop.queue)

    def differences():
        found = []
        for name, labels, value in shop.sql("SELECT name, labels, value FROM acemq.metrics"):
            labels = ",".join(f'{prometheus_name(key)}={json.dumps(text)}' for key, text in labels.items())
            shown = prometheus.value(f'{prometheus_name(name)}{{datname="shop",{labels}}}')
            if shown is None or not (MOVING.search(name) or shown == pytest.approx(value)):
                found.append((name, labels, value, shown))
        return found

    await_until(lambda: not differences(), 30, lambda: f"the same in Prometheus as in the view: {differences()}")


def test_dashboard_is_as_grafana_wants_it():
    """The schema was made from the types that Grafana publishes: see README.md."""
    dashboard = json.loads(read("grafana-dashboard.json"))
    with open(os.path.join(HERE, "grafana-dashboard.schema.json"), encoding="utf-8") as file:
        jsonschema.validate(dashboard, json.load(file))
    numbers = [panel["id"] for panel in dashboard["panels"]]
    assert len(numbers) == len(set(numbers))


def test_every_query_of_the_dashboard_has_data(shop, prometheus):
    dashboard = json.loads(read("grafana-dashboard.json"))
    queries = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    assert len(queries) > 20
    for variable in dashboard["templating"]["list"]:
        if variable["type"] == "query":
            series, = re.fullmatch(r"label_values\((.*), \w+\)", variable["query"]["query"]).groups()
            queries.append(series)
    for query in queries:
        query = query.replace("$__rate_interval", "10s").replace("$instance", ".*").replace("$datname", "shop")
        assert "$" not in query
        await_until(lambda query=query: prometheus.query(query), 20, f"data for {query}")


def test_old_message(shop, prometheus):
    prometheus.await_quiet()
    shop.sql("SELECT acemq.relay_pause()")
    shop.await_state("paused")
    shop.sql("SELECT acemq.outbox_add('orders', 'order.late', '1')")
    alert = prometheus.await_firing("AcemqMessageTooOld")
    assert "shop" in alert["annotations"]["summary"]
    assert set(prometheus.firing()) == {"AcemqMessageTooOld"}
    shop.sql("SELECT acemq.relay_resume()")
    prometheus.await_quiet()


def test_held_lane_and_retired_message(shop, prometheus):
    shop.sql("SELECT acemq.outbox_add('orders', 'no queue', '1', message_id => 'bad')")
    prometheus.await_firing("AcemqLaneHeld")
    assert "AcemqMessagesRetired" not in prometheus.firing()
    shop.sql("ALTER DATABASE shop SET acemq.max_attempts = 1")
    shop.sql("SELECT acemq.worker_restart()")
    try:
        alert = prometheus.await_firing("AcemqMessagesRetired", 60)
        assert alert["annotations"]["summary"].startswith("1 messages of shop")
        shop.sql("SELECT acemq.outbox_discard('bad', 'test')")
        prometheus.await_quiet()
    finally:
        shop.sql("ALTER DATABASE shop RESET acemq.max_attempts")
        shop.sql("SELECT acemq.worker_restart()")
    shop.await_state("idle", "relaying")


def test_scheduler_not_consuming(shop, prometheus):
    ladder.await_consuming(shop)
    prometheus.await_quiet()
    with contextlib.ExitStack() as stack:
        ladder.consume_alone(shop.vhost, stack)
        prometheus.await_firing("AcemqSchedulerNotConsuming")
        assert set(prometheus.firing()) == {"AcemqSchedulerNotConsuming"}
    ladder.await_consuming(shop)
    prometheus.await_quiet()


def test_not_relaying(shop, prometheus):
    """No broker where the relay looks for it."""
    shop.sql("ALTER DATABASE shop SET acemq.url = %s", (shop.vhost.url(port=processes.free_ports(1)[0]),))
    shop.sql("SELECT acemq.worker_restart()")
    shop.await_state("disconnected")
    alert = prometheus.await_firing("AcemqNotRelaying")
    await_until(lambda: "disconnected" in prometheus.firing()["AcemqNotRelaying"]["annotations"]["summary"], 30, lambda: alert)
    assert "AcemqSchedulerNotConsuming" not in prometheus.firing()
    shop.sql("ALTER DATABASE shop SET acemq.url = %s", (shop.vhost.url(),))
    shop.sql("SELECT acemq.worker_restart()")
    shop.await_state("idle", "relaying")
    prometheus.await_quiet("AcemqNotRelaying")


def test_nobody_watches(exporter, prometheus):
    """The last one: the exporter does not come back."""
    prometheus.await_quiet("AcemqNotWatched")
    exporter.stop()
    prometheus.await_firing("AcemqNotWatched")
