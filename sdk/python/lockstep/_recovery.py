"""A rank's part in recoveries: its group, and where the ranks of one meet.

The adapters of frameworks use it: they hand over memory as (address, bytes).
"""

from __future__ import annotations

import ctypes
import secrets
import threading
import time
from typing import Callable, Optional, Sequence

from . import _group
from ._session import Session
from .errors import Error, error_for

_VALUE_BYTES = 32 << 10
# A thread that waits for recoveries looks up so often.
_WAIT_S = 30.0
# A step may take so long to end when ranks return.
_POLITE_S = 60.0
# The reason of the error that ends a group because ranks return.
_RETURN = "RANKS_RETURN"
# Errors of a group that a recovery may follow: a peer is gone, or did not come.
_LOST = ("ABORTED", "UNAVAILABLE", "DEADLINE_EXCEEDED")


def is_lost(error: Error) -> bool:
    """Whether a peer is the cause of the error, and not this rank."""
    return error.code in _LOST


class _Rendezvous:
    """The store of one recovery, for the group that it forms."""

    def __init__(self, session: Session, recovery: int) -> None:
        self._session = session
        self._recovery = recovery

    def put(self, key: str, value: bytes) -> None:
        self._session._wait(
            self._session._lib.session_put, self._recovery, key.encode(), value, len(value)
        )

    def get(self, key: str, timeout_s: float) -> bytes:
        value = ctypes.create_string_buffer(_VALUE_BYTES)
        count = ctypes.c_size_t()
        self._session._wait(
            self._session._lib.session_get,
            self._recovery,
            key.encode(),
            int(timeout_s * _group.NANOSECONDS),
            value,
            len(value),
            ctypes.byref(count),
        )
        return value.raw[: count.value]


class Membership:
    """The group of a recoverable rank, formed anew in each recovery.

    An elastic job goes on while ranks are away: the group is then of the others,
    its members, numbered in the order of their ranks. Where ranks only return, a
    member leaves its group between two steps, in `check`. A process that is away
    drops its state and waits until a recovery takes it back.

    One thread calls all functions; another one, of this object, waits for
    recoveries.

    Attributes:
      recovery: the one whose group this is; 0: the first group.
      group: None for a rank that is alone in its job.
      away: the ranks that are not members, ascending. () where not elastic.
      members: the other ranks of the job, ascending.
    """

    def __init__(
        self,
        session: Session,
        *,
        bind_address: str,
        forming_timeout_s: float,
        operation_timeout_s: float,
        hold_s: float,
        elastic: bool = False,
        on_away: Callable[[], None] = lambda: None,
        on_parked: Callable[[], None] = lambda: None,
        polite_s: float = _POLITE_S,
    ) -> None:
        """Starts the thread that waits for recoveries.

        Args:
          elastic: the program can train while ranks are away.
          on_away: called in `form` where this rank is away: its state is old.
          on_parked: called where this rank has left its group, and waits for others.
          polite_s: how long a step may take to end when ranks return.
        """
        self._session = session
        self._bind_address = bind_address
        self._forming_timeout_s = forming_timeout_s
        self._operation_timeout_s = operation_timeout_s
        self._hold_s = hold_s
        self._elastic = elastic and session.world_size > 1
        self._on_away = on_away
        self._on_parked = on_parked
        self._polite_s = polite_s
        self.group: Optional[_group.Group] = None
        self.recovery = session.recovery
        self.away: tuple[int, ...] = ()
        self.members = tuple(range(session.world_size))
        # Of `group` and `recovery` together, and of the two below.
        self._lock = threading.Lock()
        # The group has its state: this rank makes steps.
        self._trains = False
        # A recovery that `check` raises for.
        self._pending = 0
        if self._elastic:
            session._wait(session._lib.session_set_elastic, 1)
        if session.world_size > 1:
            # It cuts the group when a recovery is announced: this rank may wait
            # for one that is frozen.
            threading.Thread(target=self._watch, name="lockstep recoveries", daemon=True).start()

    def form(self, level: Callable[[_group.Group], None]) -> None:
        """Forms the group and calls ``level`` with it; tries again in later recoveries."""
        if self._session.world_size == 1:
            return
        while True:
            try:
                self._take_part()
                group = self._form()
                with self._lock:
                    self.group = group
                # One that was announced before there was a group to abort.
                newest = self._session.recovery
                if newest > self.recovery:
                    raise error_for("ABORTED", f"recovery {newest} has begun")
                level(group)
                break
            except Error as error:
                self._leave(error)
        with self._lock:
            self._trains = True
        self._session._wait(self._session._lib.session_joined, self.recovery)

    def check(self) -> None:
        """Between two steps: raises ABORTED where a recovery has begun.

        Ranks return, and nothing else tells a member; or the group was cut, which a
        member that is alone would not notice.
        """
        with self._lock:
            pending = self._pending
        if pending > self.recovery:
            raise error_for("ABORTED", f"recovery {pending} has begun", _RETURN)

    def recover(self, error: Error, level: Callable[[_group.Group], None]) -> None:
        """Leaves the group, which ``error`` has broken, and forms the next one."""
        self._leave(error)
        self.form(level)

    def close(self) -> None:
        """Ends the group."""
        group = self._take_group()
        if group is not None:
            group.close("the rank has ended")

    def _take_part(self) -> None:
        """Learns who is a member; raises ABORTED where this rank is away."""
        if not self._elastic:
            return
        self.away = self._away_in(self.recovery)
        self.members = tuple(
            rank for rank in range(self._session.world_size) if rank not in self.away
        )
        if self._session.rank in self.away:
            self._on_away()
            raise error_for(
                "ABORTED", f"rank {self._session.rank} is away in recovery {self.recovery}"
            )

    def _away_in(self, recovery: int) -> tuple[int, ...]:
        """The ranks that are away in a recovery; ABORTED: a later one has begun."""
        capacity = self._session.world_size
        ranks = (ctypes.c_int32 * capacity)()
        count = ctypes.c_size_t()
        self._session._wait(
            self._session._lib.session_away, recovery, ranks, capacity, ctypes.byref(count)
        )
        return tuple(ranks[: count.value])

    def _form(self) -> _group.Group:
        store = _Rendezvous(self._session, self.recovery)
        place = self.members.index(self._session.rank or 0)
        if place == 0:
            key = secrets.token_bytes(32)
            store.put("key", key)
        else:
            key = store.get("key", self._forming_timeout_s)
        return _group.Group(
            store,
            rank=place,
            world_size=len(self.members),
            label=f"job {self._session.job}, recovery {self.recovery}",
            bind_address=self._bind_address,
            key=key,
            forming_timeout_s=self._forming_timeout_s,
            operation_timeout_s=self._operation_timeout_s,
        )

    def _take_group(self) -> Optional[_group.Group]:
        with self._lock:
            group, self.group = self.group, None
            self._trains = False
        return group

    def _leave(self, error: Error) -> None:
        """Waits for the next recovery; raises ``error`` where none can follow it."""
        group = self._take_group()
        lib = self._session._lib
        # Where ranks return, others may still be at the end of the last step.
        if group is not None and error.reason != _RETURN:
            group.abort(error.message)
        try:
            if not is_lost(error) or not self._session.managed:
                raise error
            self._session._wait(lib.session_park, self.recovery, None, 0)
        finally:
            # Its memory takes a while to free.
            if group is not None:
                group.close(error.message)
        self._on_parked()
        number = ctypes.c_uint32()
        self._session._wait(
            lib.session_await_recovery,
            self.recovery,
            int(self._hold_s * _group.NANOSECONDS),
            ctypes.byref(number),
        )
        with self._lock:
            self.recovery = number.value

    # ---- The thread that waits for recoveries.

    def _watch(self) -> None:
        seen = self.recovery
        number = ctypes.c_uint32()
        patience = _Patience(self._polite_s)
        while True:
            try:
                self._session._wait(
                    self._session._lib.session_await_recovery,
                    seen,
                    int(patience.left() * _group.NANOSECONDS),
                    ctypes.byref(number),
                )
            except Error as error:
                if error.code == "DEADLINE_EXCEEDED":
                    if patience.ended():
                        self._cut(seen)
                    continue
                # The session is closed, or the generation has ended.
                self._abort(error.message)
                return
            if seen <= self.recovery:
                patience.stop()  # That one has been formed.
            if self._is_return(seen, number.value):
                patience.begin()
            else:
                patience.stop()
                self._cut(number.value)
            seen = number.value

    def _is_return(self, seen: int, recovery: int) -> bool:
        """Whether ranks only return in the recovery; then `check` raises from now on."""
        with self._lock:
            # A recovery in between, which this thread has not seen, may have lost ranks.
            # A group that does not train yet has no step to end.
            if not self._elastic or not self._trains or recovery != seen + 1:
                return False
            before, own = set(self.away), self.recovery
        try:
            now = set(self._away_in(recovery))
        except Error:  # Another one has begun, which this thread sees next.
            return False
        with self._lock:
            if self.recovery != own or not self._trains or not now < before:
                return False
            self._pending = recovery
            return True

    def _cut(self, recovery: int) -> None:
        """Aborts the group if it is older than the recovery."""
        with self._lock:
            if recovery > self.recovery and self.group is not None:
                self._pending = recovery
                self.group.abort(f"recovery {recovery} has begun")

    def _abort(self, reason: str) -> None:
        with self._lock:
            if self.group is not None:
                self.group.abort(reason)


class _Patience:
    """How long the thread waits: until a step must have ended, where ranks return."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._until: Optional[float] = None

    def begin(self) -> None:
        """Ranks return. Where others do already, the time goes on."""
        if self._until is None:
            self._until = time.monotonic() + self._seconds

    def stop(self) -> None:
        self._until = None

    def left(self) -> float:
        if self._until is None:
            return _WAIT_S
        return min(_WAIT_S, max(0.001, self._until - time.monotonic()))

    def ended(self) -> bool:
        """True once: the time has passed."""
        if self._until is None or time.monotonic() < self._until:
            return False
        self._until = None
        return True


def spans(memory: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Only parts that have bytes: the library refuses the address of none."""
    return [part for part in memory if part[1] > 0]


__all__ = ["Membership", "is_lost", "spans"]
