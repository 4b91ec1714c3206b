"""A rank's part in recoveries: its group, and where the ranks of one meet.

The adapters of frameworks use it: they hand over memory as (address, bytes).
"""

from __future__ import annotations

import ctypes
import secrets
import threading
from typing import Callable, Optional, Sequence

from . import _group
from ._session import Session
from .errors import Error, error_for

_VALUE_BYTES = 32 << 10
# A thread that waits for recoveries looks up so often.
_WAIT_S = 30.0
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

    Attributes:
      recovery: the one whose group this is; 0: the first group.
      group: None for a rank that is alone.
    """

    def __init__(
        self,
        session: Session,
        *,
        bind_address: str,
        forming_timeout_s: float,
        operation_timeout_s: float,
        hold_s: float,
    ) -> None:
        self._session = session
        self._bind_address = bind_address
        self._forming_timeout_s = forming_timeout_s
        self._operation_timeout_s = operation_timeout_s
        self._hold_s = hold_s
        self.group: Optional[_group.Group] = None
        self.recovery = session.recovery
        if session.world_size > 1:
            # It cuts the group when a recovery is announced: this rank may wait
            # for one that is frozen.
            threading.Thread(target=self._cut, name="lockstep recoveries", daemon=True).start()

    def form(self, level: Callable[[_group.Group], None]) -> None:
        """Forms the group and calls ``level`` with it; tries again in later recoveries."""
        if self._session.world_size == 1:
            return
        while True:
            try:
                self.group = self._form()
                # One that was announced before there was a group to abort.
                newest = self._session.recovery
                if newest > self.recovery:
                    raise error_for("ABORTED", f"recovery {newest} has begun")
                level(self.group)
                break
            except Error as error:
                self._leave(error)
        self._session._wait(self._session._lib.session_joined, self.recovery)

    def recover(self, error: Error, level: Callable[[_group.Group], None]) -> None:
        """Leaves the group, which ``error`` has broken, and forms the next one."""
        self._leave(error)
        self.form(level)

    def close(self) -> None:
        """Ends the group."""
        group, self.group = self.group, None
        if group is not None:
            group.close("the rank has ended")

    def _form(self) -> _group.Group:
        store = _Rendezvous(self._session, self.recovery)
        if self._session.rank == 0:
            key = secrets.token_bytes(32)
            store.put("key", key)
        else:
            key = store.get("key", self._forming_timeout_s)
        return _group.Group(
            store,
            rank=self._session.rank or 0,
            world_size=self._session.world_size,
            label=f"job {self._session.job}, recovery {self.recovery}",
            bind_address=self._bind_address,
            key=key,
            forming_timeout_s=self._forming_timeout_s,
            operation_timeout_s=self._operation_timeout_s,
        )

    def _leave(self, error: Error) -> None:
        """Waits for the next recovery; raises ``error`` where none can follow it."""
        group, self.group = self.group, None
        if group is not None:
            group.abort(error.message)
            group.close()
        if not is_lost(error) or not self._session.managed:
            raise error
        lib = self._session._lib
        self._session._wait(lib.session_park, self.recovery, None, 0)
        number = ctypes.c_uint32()
        self._session._wait(
            lib.session_await_recovery,
            self.recovery,
            int(self._hold_s * _group.NANOSECONDS),
            ctypes.byref(number),
        )
        self.recovery = number.value

    def _cut(self) -> None:
        seen = self.recovery
        number = ctypes.c_uint32()
        lib = self._session._lib
        while True:
            try:
                self._session._wait(
                    lib.session_await_recovery,
                    seen,
                    int(_WAIT_S * _group.NANOSECONDS),
                    ctypes.byref(number),
                )
            except Error as error:
                if error.code == "DEADLINE_EXCEEDED":
                    continue
                # The session is closed, or the generation has ended.
                self._abort(error.message)
                return
            seen = number.value
            if seen > self.recovery:
                self._abort(f"recovery {seen} has begun")

    def _abort(self, reason: str) -> None:
        group = self.group
        if group is not None:
            group.abort(reason)


def spans(memory: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Only parts that have bytes: the library refuses the address of none."""
    return [part for part in memory if part[1] > 0]


__all__ = ["Membership", "is_lost", "spans"]
