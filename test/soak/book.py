"""Who began what, and what became of it.

Every transaction of the load has a number and writes it into the table
soak_work beside its messages, so the database says afterwards which of them
committed, also where the writer's connection broke during the COMMIT.  Every
message has a number of its own in its body: the transaction's times PLACES,
plus its place in it.

May depend on: ../lib/checks.py.
"""

import itertools
import threading

from checks import Ledger

PLACES = 1000


class Book:
    """What the writers began: filled by several threads."""

    def __init__(self):
        self._lock = threading.Lock()
        self._numbers = itertools.count(1)
        self._kept = {}
        self._ladder = set()
        self.rolled_back = set()
        self.acknowledged = set()
        self.unknown = 0

    def new_transaction(self):
        with self._lock:
            return next(self._numbers)

    def begin(self, transaction, kept, undone=(), ladder=False):
        """Before its COMMIT: these messages exist if it commits, `undone` never do."""
        with self._lock:
            self._kept[transaction] = tuple(kept)
            self.rolled_back.update(undone)
            if ladder:
                self._ladder.update(kept)

    def roll_back(self, transaction):
        """The writer rolled it back itself."""
        with self._lock:
            self.rolled_back.update(self._kept.pop(transaction))

    def acknowledge(self, transaction):
        """COMMIT came back, and promised that it lasts."""
        with self._lock:
            self.acknowledged.add(transaction)

    def outcome_unknown(self):
        with self._lock:
            self.unknown += 1

    def settle(self, committed_transactions):
        """A ledger of the messages, and the transactions the server lost although it had acknowledged them."""
        ledger = Ledger()
        for transaction, kept in self._kept.items():
            if transaction in committed_transactions:
                ledger.commit(*kept)
            else:
                ledger.roll_back(*kept)
        ledger.roll_back(*self.rolled_back)
        return ledger, self.acknowledged - committed_transactions

    def on_the_ladder(self):
        """Those that went by the rungs."""
        with self._lock:
            return set(self._ladder)
