"""What a broker may say of the messages in flight, and what it may not (G2): each row's outcome is its own.

Against a scripted broker.  `stored` is what it has confirmed and not returned:
at every moment a row is in the outbox or in there.
"""

import contextlib
import threading

import pytest

from checks import await_until
from fake_broker import method_frame, spec
from load import Load, pending, restart_worker

ONE_HOUR = {"acemq.retry_delay": "1h", "acemq.retry_delay_max": "1h"}


@pytest.fixture
def load(faked):
    return trusted_load(faked)


def trusted_load(db):
    """One message is through, so that its exchange is trusted and the next ones share a channel."""
    made = Load(db)
    made.add(1, keys=0)
    made.await_empty()
    return made


@contextlib.contextmanager
def settings_of(db, settings):
    """In force for a worker that begins now."""
    for name, value in settings.items():
        db.cluster.sql(f"ALTER DATABASE {db.name} SET {name} = '{value}'")
    restart_worker(db)
    try:
        yield trusted_load(db)
    finally:
        for name in settings:
            db.cluster.sql(f"ALTER DATABASE {db.name} RESET {name}")


class Holder:
    """Holds messages back until so many are there, then hands them over, in a list, to `release`."""

    def __init__(self, fake, count, release):
        self.count = count
        self.release = release
        self.held = []
        self.released = threading.Event()
        fake.on_publish = self

    def __call__(self, conn, message):
        self.held.append(message)
        if len(self.held) == self.count and not self.released.is_set():
            self.release(conn, self.held)
            self.released.set()
        elif self.released.is_set():
            conn.ack(message.tag, channel=message.channel)


def reversed_acks(conn, held):
    for message in reversed(held):
        conn.ack(message.tag)


def one_multiple(conn, held):
    conn.ack(held[-1].tag, multiple=True)


def multiple_of_zero(conn, held):
    conn.ack(0, multiple=True)


def each_twice(conn, held):
    for message in held:
        conn.ack(message.tag)
        conn.ack(message.tag)


def overlapping_multiples(conn, held):
    for message in held[3::4] + held[2::4] + held[-1:]:
        conn.ack(message.tag, multiple=True)


def byte_by_byte(conn, held):
    for byte in method_frame(1, spec.Basic.Ack(held[-1].tag, True)):
        conn.raw(bytes([byte]))


@pytest.mark.parametrize("way", [reversed_acks, one_multiple, multiple_of_zero, each_twice, overlapping_multiples,
                                 byte_by_byte])
def test_confirms_in_every_legal_form(faked, load, way):
    """Out of order, several at once, twice: each row leaves once, and is sent once."""
    Holder(faked.fake, 40, way)
    load.add(40, keys=0)
    load.await_empty()
    load.check(faked.fake.ids)
    load.check_uncharged()


def test_a_confirm_of_what_was_never_sent(faked, load):
    """A tag that was not used settles nothing, alone or with all before it; the rows wait for their own."""
    def unused_tags(conn, held):
        for tag in (10 ** 6, held[-1].tag + 1, 2 ** 63):
            conn.ack(tag)
            conn.ack(tag, multiple=True)
            conn.nack(tag, multiple=True)
        conn.ack(held[0].tag)

    holder = Holder(faked.fake, 20, unused_tags)
    ids = load.add(20, keys=0)
    # The one real confirm came last, so the others have been read when its row is gone.
    await_until(lambda: ids[0] not in pending(faked), what="the one that was confirmed is gone")
    assert pending(faked) == dict.fromkeys(ids[1:], 0)
    holder.held[0].conn.ack(0, multiple=True)
    load.await_empty()
    load.check(faked.fake.ids)


def test_the_outcome_of_one_row_is_written_to_no_other(faked):
    """Of ten, the fourth is returned and the seventh refused; the others are confirmed in one go, and the two twice."""
    def mixed(conn, held):
        conn.give_back(held[3])
        conn.nack(held[6].tag)
        conn.ack(held[-1].tag, multiple=True)
        conn.ack(held[3].tag)

    with settings_of(faked, ONE_HOUR):
        before = faked.status()
        Holder(faked.fake, 10, mixed)
        ids = Load(faked).add(10, keys=0)
        left = {ids[3]: 1, ids[6]: 1}
        await_until(lambda: pending(faked) == left, what=lambda: f"two are left, with an attempt each: {pending(faked)}")
        after = faked.status()
        assert [after[name] - before[name] for name in ("returned", "nacked", "failed")] == [1, 1, 2]
        errors = dict(faked.sql("SELECT message_id, last_error FROM acemq.outbox"))
        assert "312 NO_ROUTE" in errors[ids[3]] and "nack" in errors[ids[6]]


def test_several_refused_at_once(faked, load):
    """nack with `multiple`: these and no others, and they go out again in their order."""
    def refuse_first_half(conn, held):
        conn.nack(held[4].tag, multiple=True)
        conn.ack(held[-1].tag, multiple=True)

    Holder(faked.fake, 10, refuse_first_half)
    before = faked.status()["nacked"]
    ids = load.add(10, keys=0)
    load.await_empty()
    assert faked.status()["nacked"] - before == 5
    sent = [one for one in faked.fake.ids if one in set(ids)]
    assert sent[:10] == ids and sent[10:] == ids[:5]


def test_returned_and_then_confirmed(faked):
    """The ack that follows a return is not a confirm: the row stays, with one attempt each time."""
    def nobody_wants_it(conn, message):
        if message.id == "bad":
            conn.give_back(message)
        conn.ack(message.tag, channel=message.channel)

    with settings_of(faked, {"acemq.max_attempts": "3"}) as load:
        faked.fake.on_publish = nobody_wants_it
        faked.sql("SELECT acemq.outbox_add('orders', 'k', '{}', message_id => 'bad')")
        good = load.add(5, keys=0)
        await_until(lambda: faked.sql("SELECT message_id, attempts FROM acemq.outbox_retired") == [("bad", 3)],
                    what="it is retired after three attempts")
        await_until(lambda: list(pending(faked)) == ["bad"], what="the others are through")
    assert faked.fake.ids.count("bad") == 3 and all(faked.fake.ids.count(one) == 1 for one in good)


def test_a_return_of_what_was_not_sent(faked, load):
    """Whose ack might be taken for a confirm is not known: the connection goes, and all is sent again, uncharged."""
    def unknown(conn, held):
        conn.give_back(held[5], message_id="nobody knows it")
        conn.ack(held[-1].tag, multiple=True)

    Holder(faked.fake, 10, unknown)
    load.add(10, keys=0)
    load.await_empty()
    load.check(faked.fake.ids, losses=1)
    load.check_uncharged()
    assert faked.fake.accepted == 2


def test_a_confirm_that_never_comes(faked, load):
    """The connection goes first, nobody is charged, and the lane is probed with one row; others go on meanwhile."""
    stuck = Load(faked, "stuck")

    def stuck_are_forgotten(conn, message):
        if message.exchange != "stuck":
            conn.ack(message.tag, channel=message.channel)

    faked.fake.on_publish = stuck_are_forgotten
    ids = stuck.add(30, keys=0)
    await_until(lambda: faked.fake.accepted >= 2, 15, "it has hung up")
    await_until(lambda: ids[0] in faked.fake.ids[faked.fake.ids.index(ids[0]) + 1:], 15, "it is sent again")
    others = load.add(50)
    await_until(lambda: not set(others) & set(pending(faked)), 15, "the others go on")
    assert pending(faked) == dict.fromkeys(ids, 0)
    faked.fake.behave()
    stuck.await_empty()
    stuck.check([one for one in faked.fake.ids if one in stuck.numbers], losses=3)
    stuck.check_uncharged()


@pytest.mark.parametrize("confirmed_before", [True, False])
def test_one_poisoned_message_among_many(faked, load, confirmed_before):
    """
    The broker closes the channel for one of them; those before it are stored,
    confirmed or not, those behind it are not.  The culprit alone is charged, and
    everybody else goes out.
    """
    stored = []

    def poisoned(conn, message):
        if message.id == "bad":
            conn.close_channel(message.channel, 404, "NOT_FOUND - no exchange 'ghost' in vhost '/'")
            return
        stored.append(message.id)
        if confirmed_before or message.channel != 1:
            conn.ack(message.tag, channel=message.channel)

    faked.fake.on_publish = poisoned
    with faked.connect() as connection, connection.cursor() as cursor:
        for n in range(41):
            name = "bad" if n == 20 else f"n{n}"
            cursor.execute("SELECT acemq.outbox_add('orders', 'k', '1', message_id => %s, ordering_key => %s)",
                           (name, name))
    await_until(lambda: set(pending(faked)) == {"bad"}, 20, lambda: f"the others are through: {pending(faked)}")
    await_until(lambda: pending(faked)["bad"] >= 2, 20, "it has been tried again")
    assert set(stored) == {f"n{n}" for n in range(41) if n != 20}
    # It goes on being tried meanwhile, and what is counted is written down a little later.
    tried = pending(faked)["bad"]
    charged = faked.status()["failed"] - load.failed_before
    assert tried <= charged <= pending(faked)["bad"] + 1
    assert "NOT_FOUND" in faked.value("SELECT last_error FROM acemq.outbox")
    # Confirms that never come end the connection sooner or later.
    assert faked.fake.accepted == 1 or not confirmed_before
