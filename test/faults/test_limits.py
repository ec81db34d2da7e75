"""Limits that a broker sets, being blocked, being closed: what the worker keeps to, and how it goes on.

Against a scripted broker.
"""

import time

import pytest

from checks import await_until
from fake_broker import FakeBroker, method_frame, spec
from load import Load, pending, worker_pid


@pytest.fixture
def limited(make_database):
    """Function of limits: a context manager of a database with a broker that has them."""
    import contextlib

    @contextlib.contextmanager
    def make(settings=None, **limits):
        with FakeBroker(**limits) as fake, make_database({"acemq.url": fake.url(), **(settings or {})}) as database:
            database.fake = fake
            fake.conn()
            yield database

    return make


def test_small_frames(limited):
    """Bodies go out in as many as it takes, none of them longer; headers that do not fit are that message's own fault."""
    with limited(frame_max=4096) as db:
        load = Load(db)
        load.add(3, keys=0, body="x" * 100_000)
        db.sql("SELECT acemq.outbox_add('orders', 'k', '{}', message_id => 'long', ordering_key => 'long',"
               " headers => jsonb_build_object('h', repeat('x', 5000)))")
        load.add(3, keys=0, body="x" * (4096 - 8))
        await_until(lambda: list(pending(db)) == ["long"], 20, "the others are through")
        assert [len(message.body) for message in db.fake.published] == [100_001] * 3 + [4089] * 3
        assert max(db.fake.conn().frame_sizes) == 4096
        assert "do not fit into one frame" in db.value("SELECT last_error FROM acemq.outbox WHERE attempts > 0")
        assert db.fake.accepted == 1


@pytest.mark.thin(3)
@pytest.mark.parametrize("channels", [1, 2, 6])
def test_too_few_channels(limited, channels):
    """It says what it needs instead of being thrown out over and over."""
    with FakeBroker(channel_max=channels) as fake, limited(channel_max=7) as db:
        db.cluster.sql(f"ALTER DATABASE {db.name} SET acemq.url = '{fake.url()}'")
        db.sql("SELECT acemq.worker_restart()")
        await_until(lambda: "channels it needs" in (db.status()["last_error"] or ""), 15, lambda: db.status())
        ids = Load(db).add(3)
        assert pending(db) == dict.fromkeys(ids, 0) and fake.accepted <= 2 and fake.published == []


@pytest.mark.parametrize("heartbeat", [0, 1])
def test_heartbeats_of_the_brokers_choice(limited, heartbeat, long_run):
    """
    It asks for one a second: an idle worker sends them, however long the interval
    of its own.  It asks for none: the connection stays all the same.
    """
    with limited({"acemq.heartbeat": "60s"}, heartbeat=heartbeat) as db:
        conn = db.fake.conn()
        until = time.monotonic() + (20 if long_run else 3)
        while time.monotonic() < until:  # what is tested is that nothing happens meanwhile
            conn.heartbeat()
            if heartbeat:
                await_until(lambda: time.monotonic() - conn.heard_at < 1.9, 0.1, "it is heard at least every two seconds")
            time.sleep(0.2)
        assert conn.alive and db.fake.accepted == 1
        assert heartbeat == 0 or conn.heartbeats > 0


def test_a_broker_whose_heartbeats_stop(limited):
    """Noticed after two intervals, idle or not; nobody is charged."""
    with limited(heartbeat=1) as db:
        conn = db.fake.conn()
        await_until(lambda: not conn.alive, 8, "the worker has hung up")
        load = Load(db)
        load.add(20)
        load.await_empty()
        load.check(db.fake.ids, losses=1)
        load.check_uncharged()


def test_blocked_for_good(faked):
    """State and reason are shown, adding goes on, nothing is sent or charged, and a worker that is told to leave leaves."""
    load, conn = Load(faked), faked.fake.conn()
    conn.method(0, spec.Connection.Blocked("low on memory"))
    faked.await_state("blocked")
    assert "low on memory" in faked.status()["last_error"]
    ids = load.add(50)
    # Longer than acemq.confirm_timeout and acemq.io_timeout: none of them counts now.
    until = time.monotonic() + 3
    while time.monotonic() < until:
        conn.heartbeat()
        time.sleep(0.2)
    assert faked.status()["state"] == "blocked" and faked.fake.published == [] and conn.alive
    assert pending(faked) == dict.fromkeys(ids, 0)
    pid, begun = worker_pid(faked), time.monotonic()
    faked.sql("SELECT pg_terminate_backend(%s)", (pid,))
    await_until(lambda: worker_pid(faked) != pid, 5, "another worker has taken its place")
    assert time.monotonic() - begun < 5
    load.await_empty()
    load.check(faked.fake.ids)


def test_blocked_with_messages_in_flight(faked):
    """Their confirms are waited for as long as it lasts, and they are not sent again."""
    load, held = Load(faked), []
    load.add(1, keys=0)
    load.await_empty()
    faked.fake.on_publish = lambda conn, message: held.append(message)
    load.add(20, keys=0)
    await_until(lambda: len(held) == 20, what="all are in flight")
    conn = held[0].conn
    conn.method(0, spec.Connection.Blocked("low on disk"))
    faked.await_state("blocked")
    time.sleep(3)  # acemq.confirm_timeout is 2 s
    assert conn.alive
    conn.method(0, spec.Connection.Unblocked())
    conn.ack(0, multiple=True)
    load.await_empty()
    load.check(faked.fake.ids)
    load.check_uncharged()
    assert faked.fake.accepted == 1


@pytest.mark.thin(2)
@pytest.mark.parametrize("code, charged", [(320, 0), (501, 1), (541, 1)])
def test_closed_in_the_middle_of_a_frame(faked, code, charged):
    """
    The broker's words arrive in pieces while a long body is on its way.  An
    operator's order (320) is nobody's fault; with another code whoever was alone
    on the wire is charged, and goes out alone next time.
    """
    load = Load(faked)
    load.add(1, keys=0)
    load.await_empty()
    words = method_frame(0, spec.Connection.Close(code, "said the broker", 0, 0))
    closed = []

    def interrupted(conn, channel, length):
        if not closed:
            closed.append(conn)
            for piece in (words[:5], words[5:11], words[11:]):
                conn.raw(piece)
                time.sleep(0.02)

    faked.fake.on_body = interrupted
    (long,) = load.add(1, keys=0, body="x" * 3_000_000)
    await_until(lambda: faked.fake.accepted == 2, 15, "it has come again")
    load.await_empty()
    load.check(faked.fake.ids, losses=1)
    assert faked.status()["failed"] - load.failed_before == charged
    assert f"{code} said the broker" in faked.status()["last_error"]


def test_closed_with_many_in_flight(faked):
    """With a code that blames us: they go out one at a time until the culprit is found, and it alone is charged."""
    load = Load(faked)
    load.add(1, keys=0)
    load.await_empty()

    def picky(conn, message):
        if message.id == "bad":
            conn.close(502, "SYNTAX_ERROR - that one")
        else:
            conn.ack(message.tag, channel=message.channel)

    faked.fake.on_publish = picky
    with faked.connect() as connection, connection.cursor() as cursor:
        for n in range(31):
            name = "bad" if n == 15 else f"n{n}"
            cursor.execute("SELECT acemq.outbox_add('orders', 'k', '1', message_id => %s, ordering_key => %s)",
                           (name, name))
    await_until(lambda: list(pending(faked)) == ["bad"], 20, lambda: f"the others are through: {pending(faked)}")
    await_until(lambda: pending(faked)["bad"] >= 1, 20, "the culprit is charged")
    assert set(faked.fake.ids) >= {f"n{n}" for n in range(31) if n != 15}
    assert "502 SYNTAX_ERROR" in faked.value("SELECT last_error FROM acemq.outbox")
    # It goes on being tried meanwhile, and what is counted is written down a little later.
    tried = pending(faked)["bad"]
    charged = faked.status()["failed"] - load.failed_before
    assert tried <= charged <= pending(faked)["bad"] + 1
