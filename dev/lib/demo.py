"""The story that dev/demo tells, against servers of its own.

Every step checks what it shows; a step that does not hold ends the demo with
an error.

May depend on: test/lib.
"""

import json
import os
import signal
import statistics
import subprocess
import sys
import textwrap
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "test", "lib"))

from checks import await_until  # noqa: E402
from cluster import Cluster  # noqa: E402
from rabbit import Broker  # noqa: E402
from wire import properties_set  # noqa: E402

COMMITS = 200


def heading(text):
    print(f"\n{text}\n{'-' * len(text)}", flush=True)


def expect(truth, text):
    if not truth:
        sys.exit(f"demo: this should not have happened: {text}")


class Shop:
    """A database with an orders table, and psql sessions shown as they run."""

    def __init__(self, cluster):
        self.cluster = cluster

    def run(self, script):
        """Run SQL through psql, printing each statement and its result."""
        argv = [os.path.join(self.cluster.bin, "psql"), "-X", "-e", "-v", "ON_ERROR_STOP=1", "-P", "pager=off"]
        done = subprocess.run(argv, input=textwrap.dedent(script).strip() + "\n", text=True, check=False,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              env={**os.environ, **self.cluster.environment("shop")})
        print(textwrap.indent(done.stdout.rstrip("\n"), "    "), flush=True)
        expect(done.returncode == 0, "psql failed")

    def value(self, query):
        return self.cluster.sql(query, dbname="shop")[0][0]


def set_up(cluster, vhost):
    heading("Setting up")
    print("RabbitMQ: a topic exchange `orders`, and a queue `order-events` bound to it with `order.#`.")
    vhost.declare("order-events", exchange="orders", binding="order.#")
    password_file = cluster.secret_file("broker-password", vhost.broker.password + "\n")
    cluster.sql("CREATE DATABASE shop")
    shop = Shop(cluster)
    shop.run(f"""
        ALTER SYSTEM SET acemq.url = '{vhost.url()}';
        ALTER SYSTEM SET acemq.password_file = '{password_file}';
        SELECT pg_reload_conf();
        CREATE EXTENSION acemq;
        CREATE TABLE orders (id int PRIMARY KEY, customer text NOT NULL, total numeric NOT NULL);
    """)
    await_until(lambda: shop.value("SELECT state FROM acemq.status") in ("idle", "relaying"), 15,
                lambda: f"the worker relays; status is {cluster.sql('SELECT * FROM acemq.status', dbname='shop')}")
    shop.run("SELECT state, broker FROM acemq.status;")
    return shop


def commit(shop):
    heading("1. An order and its message, committed together")
    shop.run("""
        BEGIN;
        INSERT INTO orders VALUES (1, 'acme', 99.50);
        SELECT acemq.outbox_add('orders', 'order.placed', '{"id": 1, "total": 99.50}',
                                headers => '{"x-tenant": "acme", "x-items": 3}');
        COMMIT;
        SELECT acemq.outbox_sweep();
    """)


def read_back(vhost):
    heading("2. What is in the queue, read by a client that is not ours (pika)")
    message = vhost.get("order-events")
    print(f"    body         {message.body.decode()}")
    print(f"    exchange     {message.exchange}")
    print(f"    routing key  {message.routing_key}")
    print("    properties")
    for name, value in properties_set(message.properties).items():
        print(f"        {name:24} {value!r}")
    print("    headers")
    for name, value in sorted(message.headers.items()):
        print(f"        {name:24} {value!r}")
    expect(json.loads(message.body) == {"id": 1, "total": 99.5}, "the body changed on the way")
    expect(message.headers["x-tenant"] == "acme" and message.headers["x-items"] == 3, "headers are missing")
    expect(message.headers["x-acemq-id"] == message.properties.message_id, "two different message ids")


def roll_back(shop, vhost):
    heading("3. An order that is rolled back sends nothing")
    shop.run("""
        BEGIN;
        INSERT INTO orders VALUES (2, 'acme', 12.00);
        SELECT acemq.outbox_add('orders', 'order.placed', '{"id": 2, "total": 12.00}');
        ROLLBACK;
        SELECT acemq.outbox_sweep();
        SELECT * FROM orders;
    """)
    waiting = vhost.count("order-events")
    print(f"\n    messages in order-events: {waiting}")
    expect(waiting == 0, "a rolled-back message was sent")


def latency(shop, vhost):
    heading(f"4. From COMMIT to the consumer, {COMMITS} commits one after the other")
    delays, commits = [], []
    connection = shop.cluster.connect("shop", autocommit=False)
    with vhost.collect("order-events") as consumer, connection.cursor() as cursor:
        for number in range(COMMITS):
            cursor.execute("INSERT INTO orders VALUES (%s, 'acme', 1)", (number + 1000,))
            cursor.execute("SELECT acemq.outbox_add('orders', 'order.placed', %s)", (json.dumps({"id": number}),))
            begun = time.monotonic()
            connection.commit()
            commits.append(time.monotonic() - begun)
            message = consumer.wait(number + 1)[number]
            expect(json.loads(message.body)["id"] == number, "out of order")
            delays.append(message.at - begun)
    connection.close()
    print(f"    {'':38} median     p99")
    for label, values in (("COMMIT itself (with its flush to disk)", commits), ("COMMIT sent until consumer has it", delays)):
        p99 = statistics.quantiles(values, n=100)[98]
        print(f"    {label:38} {statistics.median(values) * 1000:6.2f}  {p99 * 1000:6.2f}  ms")
    print()
    shop.run("""
        SELECT published, failed, returned, pending FROM acemq.status;
        SELECT * FROM acemq.doctor();
    """)


def main():
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, lambda number, _frame: sys.exit(128 + number))
    with Cluster() as cluster, Broker() as broker:
        vhost = broker.vhost()
        shop = set_up(cluster, vhost)
        commit(shop)
        read_back(vhost)
        roll_back(shop, vhost)
        latency(shop, vhost)
        print("\nDone: both servers are being stopped.", flush=True)


if __name__ == "__main__":
    main()
