"""A coordinator and sessions in memory, for tests of recoveries without a daemon.

The ranks are threads of one process. Their groups are real.
"""

from __future__ import annotations

import threading
import time
from typing import Any, Callable, Optional, Sequence

from lockstep import _group
from lockstep.errors import error_for

LONG = 60.0


class Job:
    """What the coordinator knows: recoveries, who is away, and the rendezvous."""

    def __init__(self, world_size: int) -> None:
        self.world_size = world_size
        self.changed = threading.Condition()
        self.away: list[tuple[int, ...]] = [()]  # of each recovery
        self.keys: dict[tuple[int, str], bytes] = {}
        # Of each rank: (recovery, elastic), and the recoveries that it has left.
        self.joined: dict[int, tuple[int, int]] = {}
        self.parked: dict[int, int] = {}
        # How often ranks asked who is away.
        self.asked = 0

    @property
    def recovery(self) -> int:
        return len(self.away) - 1

    def recover(self, *away: Sequence[int]) -> None:
        """Announces one recovery for each set of ranks that are away, all at once."""
        with self.changed:
            self.away += [tuple(ranks) for ranks in away]
            self.changed.notify_all()

    def wait_for(self, what: str, condition: Callable[[], Any]) -> None:
        with self.changed:
            deadline = time.monotonic() + LONG
            while not condition():
                if time.monotonic() > deadline:
                    raise AssertionError(f"never: {what}")
                # Not all conditions are announced.
                self.changed.wait(0.01)

    def session(self, rank: int) -> Session:
        return Session(self, rank)


class Session:
    """What lockstep's own classes use of a session."""

    def __init__(self, job: Job, rank: int) -> None:
        self.fake = job
        self.rank = rank
        self.world_size = job.world_size
        self.job = "fake"
        self.managed = True
        self.recoverable = True
        self.closed = False
        self.elastic = 0
        self.steps: list[tuple[int, int, float]] = []
        self._lib = self

    @property
    def recovery(self) -> int:
        return self.fake.recovery

    def close(self) -> None:
        with self.fake.changed:
            self.closed = True
            self.fake.changed.notify_all()

    def phase(self, name: str) -> None:
        pass

    def event(self, sentence: str) -> None:
        pass

    def step(self, *, step: int, samples: int, loss: float) -> None:
        self.steps.append((step, samples, loss))

    def _wait(self, function: Callable[..., None], *arguments: Any) -> None:
        function(*arguments)

    # ---- The functions of the library.

    def session_put(self, recovery: int, key: bytes, value: bytes, count: int) -> None:
        with self.fake.changed:
            self._check(recovery)
            self.fake.keys[recovery, key.decode()] = value[:count]
            self.fake.changed.notify_all()

    def session_get(
        self, recovery: int, key: bytes, timeout_ns: int, value: Any, room: int, count: Any
    ) -> None:
        def there() -> bool:
            self._check(recovery)
            return (recovery, key.decode()) in self.fake.keys

        self._until(there, timeout_ns)
        found = self.fake.keys[recovery, key.decode()]
        value[: len(found)] = found
        count._obj.value = len(found)

    def session_park(self, left: int, ranks: object, count: int) -> None:
        with self.fake.changed:
            self.fake.parked[self.rank] = left
            self.fake.changed.notify_all()

    def session_await_recovery(self, above: int, timeout_ns: int, number: Any) -> None:
        self._until(lambda: self.fake.recovery > above, timeout_ns)
        number._obj.value = self.fake.recovery

    def session_set_elastic(self, elastic: int) -> None:
        self.elastic = elastic

    def session_joined(self, recovery: int) -> None:
        with self.fake.changed:
            self.fake.joined[self.rank] = (recovery, self.elastic)
            self.fake.changed.notify_all()

    def session_away(self, recovery: int, ranks: Any, capacity: int, count: Any) -> None:
        with self.fake.changed:
            self.fake.asked += 1
            self._check(recovery)
            away = self.fake.away[recovery]
        ranks[: len(away)] = away
        count._obj.value = len(away)

    def _check(self, recovery: int) -> None:
        if recovery != self.fake.recovery:
            raise error_for("ABORTED", f"recovery {self.fake.recovery} has begun")

    def _until(self, condition: Callable[[], bool], timeout_ns: int) -> None:
        with self.fake.changed:
            deadline = time.monotonic() + timeout_ns / _group.NANOSECONDS
            while not condition():
                if self.closed:
                    raise error_for("FAILED_PRECONDITION", "the session is closed")
                left = deadline - time.monotonic()
                if left <= 0:
                    raise error_for("DEADLINE_EXCEEDED", "nothing came")
                self.fake.changed.wait(left)


class Ranks:
    """Threads, whose errors fail the test."""

    def __init__(self) -> None:
        self._threads: list[threading.Thread] = []
        self._errors: list[BaseException] = []

    def start(self, function: Callable[..., None], *arguments: Any) -> None:
        def run() -> None:
            try:
                function(*arguments)
            except BaseException as error:  # noqa: BLE001 - the test raises it
                self._errors.append(error)

        thread = threading.Thread(target=run, daemon=True)
        self._threads.append(thread)
        thread.start()

    def join(self) -> None:
        deadline = time.monotonic() + LONG
        for thread in self._threads:
            # An error of one rank may be why another one waits.
            while thread.is_alive() and not self._errors:
                thread.join(0.05)
                if time.monotonic() > deadline:
                    raise AssertionError("a rank has not ended")
        for error in self._errors:
            raise error


class Store:
    """A store of one group."""

    def __init__(self) -> None:
        self._values: dict[str, bytes] = {}
        self._changed = threading.Condition()

    def put(self, key: str, value: bytes) -> None:
        with self._changed:
            self._values[key] = value
            self._changed.notify_all()

    def get(self, key: str, timeout_s: float) -> bytes:
        with self._changed:
            if not self._changed.wait_for(lambda: key in self._values, timeout_s):
                raise TimeoutError(key)
            return self._values[key]


def groups(
    size: int, use: Callable[[Optional[_group.Group], int], None], timeout_s: float = LONG
) -> None:
    """Calls ``use`` with the group and its rank, in a thread for each rank."""
    store = Store()

    def rank(number: int) -> None:
        group = _group.Group(
            store,
            rank=number,
            world_size=size,
            key=b"k" * 32,
            forming_timeout_s=timeout_s,
            operation_timeout_s=timeout_s,
        )
        try:
            use(group, number)
        finally:
            group.close()

    ranks = Ranks()
    for number in range(size):
        ranks.start(rank, number)
    ranks.join()
