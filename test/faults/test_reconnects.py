"""Connections that come and go leave nothing behind in the worker."""

import os

from checks import await_until
from load import Load, worker_pid


def descriptors(pid):
    return len(os.listdir(f"/proc/{pid}/fd"))


def private_memory(pid):
    """In kB: what is not shared with other processes."""
    with open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as rollup:
        return sum(int(line.split()[1]) for line in rollup if line.startswith(("Private_Clean", "Private_Dirty")))


def test_memory_and_descriptors_stay(faked, capsys, long_run):
    """Two hundred connections, each with messages in flight when it ends; in every way of ending."""
    load, fake, pid = Load(faked), faked.fake, worker_pid(faked)
    ways = [lambda conn: conn.reset(), lambda conn: conn.cut(), lambda conn: conn.close(),
            lambda conn: conn.raw(b"noise" * 10), lambda conn: conn.close_channel(1, 404, "NOT_FOUND")]
    measured = []
    rounds = 2000 if long_run else 200

    def one_round(number):
        conn, before = fake.conn(), len(fake.published)
        fake.on_publish = lambda conn, message: None
        load.add(5)
        await_until(lambda: len(fake.published) > before, what="some are in flight", interval=0.005)
        fake.behave()
        ways[number % len(ways)](conn)
        if number % len(ways) == 4:
            conn.cut()
        await_until(lambda: not conn.alive, what="the worker has hung up", interval=0.005)
        load.await_empty()

    for number in range(rounds):
        one_round(number)
        if number in (rounds // 5, rounds - 1):
            measured.append((descriptors(pid), private_memory(pid)))
    load.check(fake.ids, losses=rounds)
    load.check_uncharged()
    with capsys.disabled():
        print(f"\n  {rounds} connections: descriptors and kB {measured[0]} -> {measured[-1]}")
    assert worker_pid(faked) == pid
    assert measured[-1][0] <= measured[0][0] + 1
    assert measured[-1][1] <= measured[0][1] + 1024
