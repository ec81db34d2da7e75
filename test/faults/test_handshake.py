"""A broker that goes wrong, or silent, at any step until messages can flow; limits it may set; and who waits for it meanwhile (nobody).

Against a scripted broker.
"""

import time

import pytest

from checks import await_until
from fake_broker import frame, method_frame, spec
from load import Load, holds_nothing, pending, worker_pid

NOISE = b"\x15\x03\x01\x00\x02\x02\x28 noise \x00\xff" * 20


def on(stage, act):
    """What a broker does that goes wrong at that step, and only there."""

    def set_up(fake):
        if stage == "protocol-header":
            fake.on_protocol_header = act
        elif stage == "login":
            fake.on_login = act
        else:
            def on_method(conn, channel, method):
                dashed = method.NAME.lower().replace("connection.open", "connection-open")
                return dashed == stage and (act(conn) or True)
            fake.on_method = on_method

    return set_up


STAGES = ("protocol-header", "login", "connection-open", "channel.open", "confirm.select")
WAYS = {"makes noise": lambda conn: conn.raw(NOISE), "hangs up": lambda conn: conn.cut(),
        "says nothing": lambda conn: None, "resets": lambda conn: conn.reset()}
SPECIAL = {
    "answers with another version": on("protocol-header", lambda conn: (conn.raw(b"AMQP\x00\x01\x00\x00"), conn.cut())),
    "sends half of its greeting": on("protocol-header", lambda conn: conn.raw(method_frame(
        0, spec.Connection.Start(server_properties={}))[:9])),
    "offers no way to log in": on("protocol-header", lambda conn: conn.start(mechanisms="")),
    "offers another way to log in": on("protocol-header", lambda conn: conn.start(mechanisms="GSSAPI")),
    "closes the connection at the login": on("login", lambda conn: conn.close(530, "NOT_ALLOWED - vhost not found")),
    "refuses the login": on("login", lambda conn: conn.close(403, "ACCESS_REFUSED - \xff\x00")),
    "asks for a secret": on("login", lambda conn: conn.method(0, spec.Connection.Secure("challenge"))),
    "wants one channel": on("login", lambda conn: conn.method(0, spec.Connection.Tune(1, 131072, 0))),
    "wants two channels": on("login", lambda conn: conn.method(0, spec.Connection.Tune(2, 131072, 0))),
    "closes the first channel": on("channel.open", lambda conn: conn.close_channel(1, 504, "CHANNEL_ERROR")),
    "refuses to confirm": on("confirm.select", lambda conn: conn.close_channel(1, 540, "NOT_IMPLEMENTED")),
    "closes the connection for a channel": on("channel.open", lambda conn: conn.close(530, "NOT_ALLOWED")),
    "answers with something else": on("channel.open", lambda conn: conn.method(1, spec.Confirm.SelectOk())),
    "never ends its answer": on("channel.open", lambda conn: conn.raw(frame(1, 1, b"", size=100)[:-1])),
}
FAULTS = {**{f"{way} at {stage}": on(stage, act) for stage in STAGES for way, act in WAYS.items()}, **SPECIAL}


def is_through_again(db):
    """It does not ask again soon after a refusal; a reload says that somebody has mended something."""
    db.sql("SELECT pg_reload_conf()")
    return not pending(db)


@pytest.mark.thin(2)
@pytest.mark.parametrize("fault", FAULTS)
def test_a_step_goes_wrong(shared_fake, fault):
    """Told of in status; nobody charged, no connection storm, nothing held in the database; then it flows."""
    db, fake = shared_fake, shared_fake.fake
    fake.begin_again()
    fake.conn()
    load, pid, mark = Load(db), worker_pid(db), db.cluster.log_mark()
    FAULTS[fault](fake)
    before, begun = fake.accepted, time.monotonic()
    for conn in list(fake.conns):
        conn.reset()
    await_until(lambda: fake.accepted > before, what="the worker has come again")
    ids = load.add(20)
    db.await_state("disconnected")
    assert db.status()["last_error"]
    assert pending(db) == dict.fromkeys(ids, 0)
    await_until(lambda: holds_nothing(db), 5, "it holds nothing in the database")
    attempts, seconds = fake.accepted - before, time.monotonic() - begun
    assert attempts <= 6 + 10 * seconds, f"{attempts} connections in {seconds} s"
    fake.behave()
    await_until(lambda: is_through_again(db), 15, lambda: f"all are sent; {db.status()}", interval=0.2)
    load.check(fake.ids)
    load.check_uncharged()
    assert worker_pid(db) == pid
    said = db.cluster.log_since(mark)
    assert "ERROR:" not in said and "FATAL:" not in said
