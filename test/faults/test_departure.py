"""A worker that is to leave, a server that is to stop, while the broker does what it can to keep them (G7)."""

import threading
import time

import pytest

from checks import await_until
from fake_broker import FakeBroker, spec
from load import Load, worker_pid


def nothing_is_said(fake):
    """Of the next connection, after its login."""
    fake.on_method = lambda conn, channel, method: method.NAME == "Channel.Open"


def silent_greeting(fake):
    fake.on_protocol_header = lambda conn: None


def half_a_body(fake):
    """The broker stops reading in the middle of a long one."""
    fake.begun = threading.Event()
    fake.on_body = lambda conn, channel, length: (fake.begun.set(), time.sleep(15))


def blocked(fake):
    fake.on_method = lambda conn, channel, method: method.NAME == "Confirm.Select" and (
        conn.answer(channel, method), conn.method(0, spec.Connection.Blocked("for good"))) and True


def no_confirm(fake):
    fake.on_publish = lambda conn, message: None


STATES = [silent_greeting, nothing_is_said, half_a_body, blocked, no_confirm]


def bring_about(db, state):
    """The worker is in it when this returns, as far as the broker can tell."""
    fake = db.fake
    state(fake)
    before, published = fake.accepted, len(fake.published)
    for conn in list(fake.conns):
        conn.reset()
    await_until(lambda: fake.accepted > before, what="the worker has come again")
    load = Load(db)
    load.add(1, keys=0, body="x" * 14_000_000 if state is half_a_body else None)
    if state is blocked:
        db.await_state("blocked")
    elif state is no_confirm:
        await_until(lambda: len(fake.published) > published, what="it is sent")
    elif state is half_a_body:
        assert fake.begun.wait(10)
    return load


@pytest.fixture
def patient(make_database):
    """The longest timeouts that a user may set: it is not they that end the wait."""
    settings = {name: "60s" for name in ("acemq.io_timeout", "acemq.connect_timeout", "acemq.confirm_timeout")}
    with FakeBroker() as fake, make_database({"acemq.url": fake.url(), **settings}) as database:
        database.fake = fake
        fake.conn()
        yield database


@pytest.mark.thin(2)
@pytest.mark.parametrize("state", STATES)
def test_asked_to_leave(patient, state):
    """By our own launcher: it goes at once, and no FATAL is left behind that would be an alarm somewhere."""
    load = bring_about(patient, state)
    pid, mark, begun = worker_pid(patient), patient.cluster.log_mark(), time.monotonic()
    patient.fake.behave()  # the connection that there is stays as it is
    patient.sql("SELECT acemq.worker_restart()")
    await_until(lambda: pid not in patient.cluster.backends("acemq worker", patient.name), 15, "it has left")
    assert time.monotonic() - begun < 10  # all timeouts are of a minute
    load.await_empty()
    load.check(patient.fake.ids, losses=1)
    load.check_uncharged()
    assert "FATAL:" not in patient.cluster.log_since(mark)


@pytest.mark.thin(3)
@pytest.mark.parametrize("state", STATES)
def test_the_server_stops(patient, state):
    """pg_ctl stop -m fast, in ten seconds at most; afterwards everything goes out."""
    load = bring_about(patient, state)
    patient.close()
    seconds = patient.cluster.stop("fast")
    patient.fake.behave()
    patient.cluster.start()
    load.failed_before = 0
    load.await_empty()
    load.check(patient.fake.ids, losses=1)
    load.check_uncharged()
    print(f"{state.__name__}: stopped in {seconds:.2f} s")
    assert seconds < 10
