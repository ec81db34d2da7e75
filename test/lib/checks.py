"""What tests say about time and about sets of messages.

May depend on: nothing of ours.
"""

import collections
import time
import uuid


def await_until(condition, timeout=10.0, what=None, interval=0.02, ignoring=()):
    """Call `condition` until it is true and return what it returned.

    `what` (text, or a function that makes it) says what was waited for.
    Exceptions of the classes in `ignoring` count as "not yet".
    """
    deadline = time.monotonic() + timeout
    problem = None
    while True:
        try:
            result = condition()
            if result:
                return result
        except ignoring as error:
            problem = error
        if time.monotonic() > deadline:
            text = what() if callable(what) else what or "the condition holds"
            raise AssertionError(f"not within {timeout} s: {text}" + (f" (last error: {problem})" if problem else ""))
        time.sleep(interval)


class Ledger:
    """Which messages were committed, which rolled back; compared with what came out."""

    def __init__(self):
        self.committed = set()
        self.rolled_back = set()

    @staticmethod
    def new_id():
        return str(uuid.uuid4())

    def commit(self, *ids):
        self.committed.update(ids)

    def roll_back(self, *ids):
        self.rolled_back.update(ids)

    def check(self, delivered, duplicates=0):
        """Every committed id came, no other did, at most `duplicates` extra copies."""
        copies = collections.Counter(delivered)
        missing = self.committed - copies.keys()
        ghosts = copies.keys() - self.committed
        extra = sum(copies.values()) - len(copies)
        assert not missing, f"{len(missing)} of {len(self.committed)} committed messages lost: {sorted(missing)[:5]}"
        assert not ghosts, f"{len(ghosts)} messages of no commit, {len(ghosts & self.rolled_back)} of them rolled back"
        assert extra <= duplicates, f"{extra} duplicates, at most {duplicates} allowed"


def same_set(left, right):
    """Fail with the differences of two collections without duplicates."""
    left, right = list(left), list(right)
    assert len(left) == len(set(left)), "left side has duplicates"
    assert len(right) == len(set(right)), "right side has duplicates"
    only_left, only_right = set(left) - set(right), set(right) - set(left)
    assert not only_left and not only_right, f"only left: {sorted(only_left)[:5]}, only right: {sorted(only_right)[:5]}"


def in_order(numbers):
    """Fail unless the numbers rise, repetitions of what already came aside."""
    seen = set()
    highest = None
    for number in numbers:
        if number in seen:
            continue
        assert highest is None or number > highest, f"{number} came after {highest}"
        seen.add(number)
        highest = number
