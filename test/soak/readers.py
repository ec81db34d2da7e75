"""The consumers: they note every copy of every message and acknowledge it.

A copy that the broker gives out again because an acknowledgement was lost is
not the relay's doing, and is told apart: it has the mark `redelivered`, and we
had it in the last seconds before our connection broke.

May depend on: ../lib/rabbit.py.
"""

import collections
import json
import threading
import time

from rabbit import Collector

# Seconds within which an acknowledgement has certainly been written down by the broker.
_UNSURE = 3


class Notes:
    """What came, over all queues."""

    def __init__(self):
        self._lock = threading.Lock()
        self.ids = {}
        self.duplicates = 0
        self.ladder_duplicates = 0
        self.redelivered = 0
        self.disorder = []
        self.broker_disorder = 0
        self.other_ids = 0
        self.early = 0
        self._last = {}
        self._history = {}

    def note(self, body, message_id, redelivered, again):
        """`again`: this very copy had come before, on a connection that broke."""
        with self._lock:
            number = body["n"]
            if again:
                self.redelivered += 1
            elif number in self.ids:
                if body.get("ladder"):
                    self.ladder_duplicates += 1
                else:
                    self.duplicates += 1
                if self.ids[number] != hash(message_id):
                    self.other_ids += 1
            else:
                self.ids[number] = hash(message_id)
                self._first(body, redelivered)

    def _first(self, body, redelivered):
        if "due" in body and time.time() < body["due"] - 0.001:
            self.early += 1
        key = body.get("key")
        if key is None:
            return
        history = self._history.setdefault(key, collections.deque(maxlen=12))
        history.append((body["seq"], round(time.time(), 3), "again" if redelivered else "new"))
        if body["seq"] > self._last.get(key, -1):
            self._last[key] = body["seq"]
        elif redelivered:
            # What the broker takes back from a lost consumer it may give out later than its successors.
            self.broker_disorder += 1
        else:
            self.disorder.append({"key": key, "came": body["seq"], "after": self._last[key],
                                  "history": list(history)})

    def has(self, number):
        with self._lock:
            return number in self.ids


class Reader(Collector):
    """One queue."""

    def __init__(self, vhost, queue, notes):
        super().__init__(vhost, queue)
        self._notes = notes
        self._latest = collections.deque()

    def _consume(self):
        with self._vhost.channel() as channel:
            channel.basic_qos(prefetch_count=500)
            self._consuming.set()
            may_come_again = collections.Counter(number for _, number in self._latest)
            for method, properties, body in channel.consume(self._queue, inactivity_timeout=0.2):
                if method is not None:
                    body = json.loads(body)
                    again = method.redelivered and may_come_again[body["n"]] > 0
                    if again:
                        may_come_again[body["n"]] -= 1
                    else:
                        self._remember(body["n"])
                    self._notes.note(body, properties.message_id, method.redelivered, again)
                    channel.basic_ack(method.delivery_tag)
                if self._stopping.is_set():
                    channel.cancel()
                    return

    def _remember(self, number):
        now = time.monotonic()
        self._latest.append((now, number))
        while self._latest[0][0] < now - _UNSURE:
            self._latest.popleft()
