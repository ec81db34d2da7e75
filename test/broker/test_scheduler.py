"""The scheduler on the family's ladder: what it declares, how a message travels, what is malformed, when it runs."""

import contextlib
import struct
import time

import pika.exceptions
import pytest

import ladder
from checks import await_until
from cluster import Database
from ladder import await_consuming, counters, header, in_ms, put
from wire import properties_set


@pytest.fixture
def queue(db):
    queue = db.vhost.declare("events", exchange="orders", binding="#")
    await_consuming(db)
    return queue


def consumers(db):
    with db.vhost.channel() as channel:
        # pika leaves the count in the answer of a passive declare.
        return channel.queue_declare(ladder.DUE, passive=True).method.consumer_count


def connection_names(broker):
    return broker.ctl("list_connections", "client_properties")


# -- topology ------------------------------------------------------------------


def test_another_client_declares_the_same(db, queue):
    """With the arguments of the contract, and only with them."""
    def declare(name, arguments):
        with db.vhost.channel() as channel:
            channel.queue_declare(name, durable=True, arguments=arguments)

    with db.vhost.channel() as channel:
        channel.exchange_declare(ladder.EXCHANGE, "direct", durable=True)
    for name in [ladder.DUE, *ladder.RUNGS]:
        right = ladder.arguments_of(name)
        declare(name, right)
        wrongs = [dict(right or {}, **{"x-message-ttl": 4711}), dict(right or {}, **{"x-max-length": 5})]
        if right:
            wrongs += [{key: value for key, value in right.items() if key != missing} for missing in right]
        for wrong in wrongs:
            with pytest.raises(pika.exceptions.ChannelClosedByBroker) as refusal:
                declare(name, wrong)
            assert refusal.value.reply_code == 406
    assert consumers(db) == 1


def test_a_rung_that_differs(db, queue, broker):
    """Reported by status and doctor; the other rungs and the relay go on; mended, it is used again."""
    db.sql(f'ALTER DATABASE "{db.name}" SET acemq.scheduler = off')
    db.sql("SELECT acemq.worker_restart()")
    await_until(lambda: db.status()["scheduler"] == "off", what="the scheduler is off")
    rung = "acemq.schedule.10s"
    db.vhost.delete(rung)
    with db.vhost.channel() as channel:
        channel.queue_declare(rung, durable=True)
        channel.queue_bind(rung, ladder.EXCHANGE, rung)
    db.sql(f'ALTER DATABASE "{db.name}" RESET acemq.scheduler')
    db.sql("SELECT acemq.worker_restart()")
    await_consuming(db)

    problem = await_until(lambda: db.status()["scheduler_problem"], what="status tells of it")
    assert f"queue {rung} is not as it should be: 406" in problem
    ok, detail, hint = db.sql("SELECT ok, detail, hint FROM acemq.doctor() WHERE \"check\" = 'ladder'")[0]
    assert not ok and rung in detail and "Delete" in hint
    message_id = db.value("SELECT acemq.outbox_add('orders', 'k', '{}')")
    assert db.vhost.get(queue).properties.message_id == message_id

    # Nothing goes onto it: it would never come back.
    hops, delivered, _ = counters(db)
    message_id = put(db.vhost, 11)
    ours = db.value("SELECT acemq.schedule_in('11 s', 'orders', 'k', '{}', via => 'ladder')")
    await_until(lambda: counters(db)[0] >= hops + 4 and db.status()["ladder_scheduled"] == 1, what="hops through the shorter rung")
    assert db.vhost.count(rung) == 0
    db.vhost.delete(rung)
    await_until(lambda: db.status()["scheduler_problem"] is None, 15, "the rung is declared again")
    assert db.value("SELECT ok FROM acemq.doctor() WHERE \"check\" = 'ladder'")
    assert {message.properties.message_id for message in db.vhost.drain(queue, 2, 20)} == {message_id, ours}


# -- the way of a message --------------------------------------------------------

KEPT = (header("x-acemq-correlation", b"S", "basket-7") + header("x-acemq-first-seen", b"l", 1700000000000)
        + header("x-acemq-attempt", b"I", 1) + header("tiny", b"b", -3) + header("tiny+", b"B", 200)
        + header("short", b"s", -300) + header("short+", b"u", 60000) + header("word+", b"i", 4000000000)
        + header("long+", b"L", 2**63 + 5) + header("half", b"f", 0.5) + header("share", b"d", 0.1)
        + header("when", b"T", 1700000000) + header("bytes", b"x", b"\x00\xff\xfe") + header("yes", b"t", True)
        + header("nothing", b"V") + header("X-Death", b"S", "not the broker's")
        + header("table", b"F", header("deep", b"A", b"V" + b"t\x01")))


def test_what_arrives(db, queue):
    """Content type, id, reply-to, priority and the headers, byte for byte; nothing of the ladder."""
    # A broker that lets a message expire writes its headers anew (3.10: L as l): that much is not our doing.
    db.vhost.declare("expired")
    db.vhost.declare("expiring", x_message_ttl=1, x_dead_letter_exchange="", x_dead_letter_routing_key="expired")
    with db.vhost.channel() as channel, ladder.raw_headers_kept():
        channel.basic_publish("", "expiring", b"", ladder.Properties(KEPT + header("x-acemq-id", b"S", "first")))
        expected = {name: value for name, value in db.vhost.get("expired").properties.raw.items()
                    if not name.startswith(("x-death", "x-first-death-", "x-last-death-"))}
        message_id = put(db.vhost, 1.5, "acemq.schedule.1s", b"\x00body\xff", "first", KEPT,
                         {"reply_to": "answers", "priority": 3})
        message = db.vhost.get(queue)
    assert message.body == b"\x00body\xff"
    assert (message.exchange, message.routing_key) == ("orders", "order.due")
    assert properties_set(message.properties) == {
        "content_type": "text/plain", "delivery_mode": 2, "message_id": message_id, "reply_to": "answers", "priority": 3,
        "raw": message.properties.raw}
    assert len(expected) == 18 and message.properties.raw == expected
    await_until(lambda: counters(db) == (0, 1, 0), what=lambda: counters(db))


DUE_KINDS = [(b"l", None), (b"L", None), (b"T", "malformed"), (b"b", 100), (b"B", 200), (b"s", 30000), (b"u", 60000),
             (b"I", 2000000000), (b"i", 4000000000), (b"S", "text"), (b"x", "text"), (b"d", "malformed")]


def test_due_at_of_every_kind(db, queue):
    """The widths too narrow for a time of our days mean one that is long past."""
    expected = set()
    for kind, value in DUE_KINDS:
        due = in_ms(1.2) if value in (None, "text", "malformed") else value
        name = f"kind-{kind.decode()}"
        put(db.vhost, message_id=name, due=float(due) if kind == b"d" else str(due) if value == "text" else due,
            due_kind=kind)
        if value != "malformed":
            expected.add(name)
    found = {message.properties.message_id for message in db.vhost.drain(queue, len(expected))}
    assert found == expected
    await_until(lambda: counters(db)[1:] == (len(expected), 2), what=lambda: counters(db))


def test_what_is_missing_may_be_missing(db, queue):
    """No content type: JSON.  No id as property: the one of the header, else a new one.  The default exchange."""
    put(db.vhost, content_type=None, message_id="no-type")
    assert db.vhost.get(queue).properties.content_type == "application/json"
    ladder.put_raw(db.vhost, ladder.schedule_headers(due=in_ms(0)) + header("x-acemq-id", b"S", "of-the-header"))
    assert db.vhost.get(queue).properties.message_id == "of-the-header"
    ladder.put_raw(db.vhost, ladder.schedule_headers(due=in_ms(0)))
    assert len(db.vhost.get(queue).properties.message_id) == 36
    put(db.vhost, exchange="", routing_key=queue, message_id="default exchange")
    message = db.vhost.get(queue)
    assert (message.exchange, message.routing_key) == ("", queue)


def test_hops_and_a_detour(db, queue, long_run):
    """12 s: ten, then one and one.  Targets that are not there meanwhile, and one beside them that is."""
    started = time.monotonic()
    with db.vhost.collect(queue) as collector:
        put(db.vhost, 12.4, message_id="hops")
        unbound = put(db.vhost, exchange="amq.topic", message_id="unbound")
        missing = [put(db.vhost, exchange="later", message_id=f"missing-{i}") for i in range(5)]
        unknown = put(db.vhost, exchange="", routing_key="later", message_id="no queue")
        beside = put(db.vhost, message_id="beside")
        assert collector.wait(1, 5)[0].properties.message_id == beside
        await_until(lambda: counters(db) == (8, 1, 0), what=lambda: counters(db))
        late = db.vhost.declare("later", exchange="later", binding="#")
        with db.vhost.channel() as channel:
            channel.queue_bind(late, "amq.topic", "#")

        found = db.vhost.drain(late, 7, 20)
        assert {message.properties.message_id for message in found} == {unbound, unknown, *missing}
        assert time.monotonic() - started > 9.5
        for message in found:
            assert not [name for name in message.headers if name.startswith(("x-schedule", "x-death", "x-first-death"))]
        arrived = [message for message in collector.wait(2, 20) if message.properties.message_id == "hops"]
    assert 11.3 < arrived[0].at - started < 14.5
    assert not [name for name in arrived[0].headers if name.startswith(("x-schedule", "x-death", "x-first-death"))]
    # Into the control queue by hand, so the first of its hops is ours too: 10 s, 1 s, 1 s.
    await_until(lambda: counters(db) == (10, 9, 0), what=lambda: counters(db))
    assert db.vhost.count(late) == 0
    if long_run:
        put(db.vhost, 31.5, message_id="thirty", queue="acemq.schedule.1s")
        assert db.vhost.get(queue, 40).properties.message_id == "thirty"


def test_many_at_once(db, queue, long_run):
    """More than are ever unsettled, all due now; the relay goes on beside them."""
    count = 100_000 if long_run else 2_000
    ids = ladder.put_all(db.vhost, [{"seconds": 0, "message_id": f"due-{i}"} for i in range(count)])
    added = time.monotonic()
    db.value("SELECT acemq.outbox_add('orders', 'relayed', '{}', message_id => 'relayed')")
    with db.vhost.collect(queue) as collector:
        found = collector.wait(count + 1, 180 if long_run else 20)
    print(f"{count} delivered {found[-1].at - added:.1f} s after the last was put")
    assert sorted(collector.ids) == sorted([*ids, "relayed"])
    assert counters(db) == (0, count, 0)
    relayed = next(message.at for message in found if message.properties.message_id == "relayed")
    assert relayed - added < 5


# -- malformed messages ------------------------------------------------------------

def nested(levels, kind=b"A"):
    """A header of so many lists in each other."""
    name = b"\x00" if kind == b"F" else b""
    size = len(name) + 5
    return b"\x01n" + b"".join((name if i else b"") + kind + struct.pack(">I", (levels - 1 - i) * size)
                               for i in range(levels))


def test_malformed_messages(db, queue, broker, cluster):
    """Dropped and counted; nothing of it reaches anybody, and no process ends."""
    started = cluster.sql("SELECT pg_postmaster_start_time()")
    worker = db.status()["worker_pid"]
    four = ladder.schedule_headers
    now = in_ms(0)
    zoo = [
        b"", header("x-acemq-id", b"S", "x"), four(None, "k", now), four("orders", None, now), four("orders", "k", None),
        four("orders", "k", -1), four("orders", "k", -2**63), four("orders", "k", 2**63, due_kind=b"L"),
        four("orders", "k", str(2**63), due_kind=b"S"), four("orders", "k", "soon", due_kind=b"S"),
        four("orders", "k", "", due_kind=b"S"), four("orders", "k", f"-{now}", due_kind=b"S"),
        four("orders", "k", f"{now}.0", due_kind=b"S"), four("orders", "k", 1e300, due_kind=b"d"),
        four("orders", "k", True, due_kind=b"t"), four("orders", "k", None) + header("x-schedule-due-at", b"V"),
        four("", "", now), four("e" * 256, "k", now), four("orders", "k" * 256, now), four("or\0ders", "k", now),
        four("orders", "k", now, "t" * 256), four(None, "k", now) + header("x-schedule-exchange", b"I", 5),
        four("orders", "k", now) + nested(33), four("orders", "k", now) + nested(20_000),
        four("orders", "k", now) + nested(15_000, b"F"),
    ]
    mark = cluster.log_mark()
    for raw in zoo:
        ladder.put_raw(db.vhost, raw)
    with db.vhost.channel() as channel:  # no headers at all
        channel.basic_publish("", ladder.DUE, b"x")
    put(db.vhost, message_id="good")
    # A client library that limits nesting itself loses the connection over such a message, twice.
    assert db.vhost.get(queue, timeout=90).properties.message_id == "good"
    await_until(lambda: counters(db) == (0, 1, len(zoo) + 1), what=lambda: counters(db))
    assert db.vhost.count(ladder.DUE) == 0 and db.vhost.count(queue) == 0
    assert cluster.log_since(mark).count("malformed") == 1
    assert cluster.sql("SELECT pg_postmaster_start_time()") == started and db.status()["worker_pid"] == worker
    assert db.status()["scheduler"] == "consuming"


def test_bodies(db, queue, cluster):
    """One as long as it may be, one that is too long, and more than fit into memory together."""
    db.sql(f'ALTER DATABASE "{db.name}" SET acemq.max_body_size = \'6MB\'')
    db.sql("SELECT acemq.worker_restart()")
    await_until(lambda: consumers(db) == 1, what="the new worker consumes")
    await_consuming(db)
    megabyte = 1024 * 1024
    put(db.vhost, body=b"b" * (6 * megabyte + 1), message_id="too long")
    ladder.put_all(db.vhost, [{"body": bytes([65 + i]) * (6 * megabyte), "message_id": str(i)} for i in range(6)])
    found = db.vhost.drain(queue, 6, 30)
    assert sorted(message.properties.message_id for message in found) == [str(i) for i in range(6)]
    assert all(message.body == bytes([65 + int(message.properties.message_id)]) * (6 * megabyte) for message in found)
    await_until(lambda: counters(db) == (0, 6, 1), what=lambda: counters(db))


def test_headers_that_fit_no_frame(db, queue):
    """They came in one, and go out in one; with what we would have to add they may not."""
    room = 131072 - 8 - 14 - 2 - (1 + len("application/octet-stream")) - 4 - 1
    base = ladder.schedule_headers(due=in_ms(0)) + header("x-acemq-id", b"S", "long-id-" + "x" * 100)
    filler = header("filler", b"S", b"f" * (room - len(base) - 12))
    ladder.put_raw(db.vhost, base + filler)
    await_until(lambda: sum(counters(db)) == 1, what=lambda: counters(db))
    put(db.vhost, message_id="next")
    await_until(lambda: db.vhost.drain(queue)[-1].properties.message_id == "next", ignoring=(IndexError,))


# -- when it runs -------------------------------------------------------------------


def test_switched_off(db, queue, broker):
    assert "acemq scheduler, database" in connection_names(broker)
    db.sql(f'ALTER DATABASE "{db.name}" SET acemq.scheduler = off')
    db.sql("SELECT acemq.worker_restart()")
    await_until(lambda: consumers(db) == 0, what="nobody consumes")
    db.await_state("idle", "relaying")
    status = await_until(lambda: db.status()["scheduler"] == "off" and db.status(), what="it is off")
    assert status["scheduler_problem"] is None
    oid = db.value("SELECT oid::bigint FROM pg_database WHERE datname = current_database()")
    names = connection_names(broker)
    assert f"acemq relay, database {oid}" in names and f"acemq scheduler, database {oid}" not in names
    put(db.vhost, message_id="waits")
    report = {check: ok for check, ok in db.sql('SELECT "check", ok FROM acemq.doctor()')}
    assert report["scheduler"] and report["ladder"]
    assert db.vhost.count(ladder.DUE) == 1


def test_reload_switches_it(db, queue, cluster):
    """No restart of the worker is needed."""
    worker = db.status()["worker_pid"]
    cluster.configure(acemq__scheduler="off")
    try:
        await_until(lambda: db.status()["scheduler"] == "off", what="it is off")
        await_until(lambda: consumers(db) == 0, what="nobody consumes")
    finally:
        cluster.configure(acemq__scheduler=None)
    await_consuming(db)
    put(db.vhost, message_id="on again")
    assert db.vhost.get(queue).properties.message_id == "on again"
    assert db.status()["worker_pid"] == worker


def test_a_paused_relay_and_a_locked_table(db, queue):
    """The ladder goes on, and is looked after, whatever happens to the table."""
    db.sql("SELECT acemq.relay_pause()")
    db.await_state("paused")
    put(db.vhost, message_id="paused")
    assert db.vhost.get(queue).properties.message_id == "paused"
    db.sql("SELECT acemq.relay_resume()")
    db.await_state("idle", "relaying")
    with contextlib.closing(db.connect()) as locker, locker.cursor() as cursor:
        cursor.execute("LOCK acemq.outbox IN ACCESS EXCLUSIVE MODE")
        put(db.vhost, 1.2, message_id="locked")
        assert db.vhost.get(queue).properties.message_id == "locked"
        assert db.status()["scheduler"] == "consuming"


def test_a_copy_keeps_away(db, queue, cluster, relay_settings):
    """A database whose identity is another's has no connection at all, until it is told that it may."""
    dump = cluster.run("pg_dump", "-h", cluster.sockets, "-p", str(cluster.port), "-U", "postgres", "-Fp", db.name)
    name = f"{db.name}_copy"
    cluster.sql(f'CREATE DATABASE "{name}" TEMPLATE template0')
    for setting, value in relay_settings(db.vhost).items():
        cluster.sql(f'ALTER DATABASE "{name}" SET {setting} = %s', (str(value),))
    path = cluster.secret_file("dump.sql", dump)
    cluster.run("psql", "-X", "-q", "-h", cluster.sockets, "-p", str(cluster.port), "-U", "postgres", "-d", name, "-f", path)
    copy = Database(cluster, name)
    try:
        copy.await_state("fenced")
        status = await_until(lambda: copy.status()["scheduler_problem"] and copy.status(), what="it says why")
        assert status["scheduler"] == "off" and "copy" in status["scheduler_problem"]
        assert consumers(db) == 1
        copy.sql("SELECT acemq.relay_resume()")
        await_consuming(copy)
        assert consumers(db) == 2
    finally:
        copy.drop()


def test_two_databases_share_the_control_queue(db, queue, cluster, relay_settings):
    with cluster.database(f"{db.name}_too", relay_settings(db.vhost)) as other:
        await_consuming(other)
        assert consumers(db) == 2
        ids = ladder.put_all(db.vhost, [{"seconds": 1.1} for _ in range(200)])
        found = db.vhost.drain(queue, 200, 20)
        assert sorted(message.properties.message_id for message in found) == sorted(ids)
        await_until(lambda: counters(db)[1] + counters(other)[1] == 200, what="both have counted")
        assert counters(db)[1] > 0 and counters(other)[1] > 0
