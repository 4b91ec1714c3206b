"""The work and the future of an operation, as torch.distributed wants them."""

from __future__ import annotations

import os
import threading
import time
import weakref
from datetime import timedelta
from typing import Any, NoReturn, Optional, Sequence

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import Work

from .. import _group, errors
from ._tensors import Copies, write_back

_NO_TIMEOUT = timedelta(0)
# How long the thread waits for one operation before it looks at the others.
# Collectives end in their order, so the first one ends first; messages do not.
_ORDERED_SLICE_S = 0.05
_MIXED_SLICE_S = 0.001
# How long an exiting process waits for what was chained to the futures.
_EXIT_S = 10.0


def raise_for(error: errors.Error) -> NoReturn:
    """Raises what torch's users expect: DistBackendError, or ValueError."""
    if isinstance(error, errors.InvalidArgumentError):
        raise ValueError(error.message) from error
    raise dist.DistBackendError(_sentence(error)) from error


def _sentence(error: errors.Error) -> str:
    if isinstance(error, errors.TimeoutError):
        return f"{error.message}; a longer timeout is an argument of the operation or its group"
    return error.message


class _Failure:
    """A future's value on its way to the callback that raises it."""

    def __init__(self, error: errors.Error) -> None:
        self.error = error


def _unwrap(future: torch.futures.Future[Any]) -> Any:
    value = future.value()
    if isinstance(value, _Failure):
        raise_for(value.error)
    return value


class LockstepWork(Work):  # type: ignore[misc]
    """One call of the user: one operation of the group, or several."""

    def __init__(
        self,
        parts: Sequence[_group.Work],
        completer: Completer,
        result: Any,
        copies: Copies,
        *,
        source: int = -1,
        ordered: bool = True,
    ) -> None:
        super().__init__()
        self.ordered = ordered
        self._parts = parts
        self._completer = completer
        self._result = result
        self._copies = copies
        self._source = source
        self._lock = threading.Lock()
        self._first: Optional[torch.futures.Future[Any]] = None
        self._future: Any = None

    # ---- torch's functions

    def wait(self, timeout: timedelta = _NO_TIMEOUT) -> bool:
        seconds = timeout.total_seconds() if timeout else 0.0
        if not self.block(seconds if seconds > 0 else -1.0):
            raise dist.DistBackendError(
                f"lockstep: the operation did not end in {seconds} s; it goes on"
            )
        self._take()
        error = self.error()
        if error is not None:
            raise_for(error)
        return True

    def synchronize(self) -> None:
        self.wait()

    def is_completed(self) -> bool:
        if not self.poll():
            return False
        self._take()
        return True

    def is_success(self) -> bool:
        return self.is_completed() and self.error() is None

    def exception(self) -> Optional[BaseException]:
        error = self.error() if self.poll() else None
        return None if error is None else dist.DistBackendError(_sentence(error))

    def result(self) -> Any:
        self.wait()
        return self._result

    def source_rank(self) -> int:
        return self._source

    def _source_rank(self) -> int:
        return self._source

    def get_future(self) -> Any:
        with self._lock:
            if self._future is not None:
                return self._future
            # Only a callback that raises makes a future fail for C++: one with an
            # exception as its value looks like a success there, and DDP would go
            # on after the loss of a peer.
            self._first = torch.futures.Future()
            self._future = self._first.then(_unwrap)
        # DDP's C++ takes the value of a work that it has waited for at once.
        if self.poll():
            self.complete()
        else:
            self._completer.add(self)
        return self._future

    # ---- for works of several calls

    @property
    def parts(self) -> Sequence[_group.Work]:
        """The operations of the group."""
        return self._parts

    @property
    def value(self) -> Any:
        """What `result` returns, without waiting for it."""
        return self._result

    def take_copies(self) -> Copies:
        """Hands the copies over to another work."""
        copies, self._copies = self._copies, []
        return copies

    # ---- for the completer

    def block(self, timeout_s: float) -> bool:
        """Waits; says whether every part has ended, however."""
        for part in self._parts:
            try:
                if not part.wait(timeout_s):
                    return False
            except errors.Error:
                pass  # error() has it
        return True

    def poll(self) -> bool:
        """Says whether every part has ended; does not wait."""
        return all(part.ended() for part in self._parts)

    def error(self) -> Optional[errors.Error]:
        """The first error of the parts, which have ended."""
        for part in self._parts:
            if part.error is not None:
                return part.error
        return None

    def complete(self) -> None:
        """Completes the future; runs what was chained to it."""
        first = self._first
        assert first is not None
        self._take()
        error = self.error()
        first.set_result(self._result if error is None else _Failure(error))

    def _take(self) -> None:
        """Copies the results once to tensors that are not plain memory."""
        if self._copies:
            with self._lock:
                copies, self._copies = self._copies, []
                if self.error() is None:
                    write_back(copies)


class Completer:
    """Completes the futures of one group.

    It has no thread until the first future is asked for, and then one: it waits
    for the operations, and runs what was chained to their futures. While it
    does that, another one waits, because what was chained may itself wait for a
    future of this group (PowerSGD's hook of DDP does).
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._pid = os.getpid()
        self._state = threading.Condition()
        self._pending: list[LockstepWork] = []
        self._waiting = False  # a thread waits for operations
        self._idle = 0
        self._stopped = False
        self._threads: weakref.WeakSet[threading.Thread] = weakref.WeakSet()
        _completers.add(self)

    def add(self, work: LockstepWork) -> None:
        """Completes the work's future when it ends."""
        with self._state:
            self._pending.append(work)
            self._need_thread()

    def stop(self) -> None:
        """Ends the threads when nothing is pending."""
        with self._state:
            self._stopped = True
            self._state.notify_all()

    def end(self, timeout_s: float) -> None:
        """Stops, and waits that long for the threads to end."""
        if os.getpid() != self._pid:
            return  # A child that forked has no such threads.
        self.stop()
        until = time.monotonic() + timeout_s
        for thread in list(self._threads):
            thread.join(max(0.0, until - time.monotonic()))

    def _need_thread(self) -> None:
        if self._waiting:
            return
        if self._idle:
            self._state.notify()
            return
        thread = threading.Thread(target=self._serve, name=self._name, daemon=True)
        self._threads.add(thread)
        thread.start()

    def _serve(self) -> None:
        while True:
            with self._state:
                if not self._become_waiter():
                    return
            ended = self._wait_for_some()
            with self._state:
                self._waiting = False
                self._pending = [one for one in self._pending if one not in ended]
                if self._pending:
                    self._need_thread()
            for work in ended:
                work.complete()

    def _become_waiter(self) -> bool:
        """Returns False where this thread is not needed any more."""
        while self._waiting or not self._pending:
            if self._idle or (self._stopped and not self._pending):
                return False
            self._idle += 1
            self._state.wait()
            self._idle -= 1
        self._waiting = True
        return True

    def _wait_for_some(self) -> list[LockstepWork]:
        while True:
            with self._state:
                pending = list(self._pending)
            mixed = any(not work.ordered for work in pending)
            pending[0].block(_MIXED_SLICE_S if mixed else _ORDERED_SLICE_S)
            ended = [work for work in pending if work.poll()]
            if ended:
                return ended


_completers: weakref.WeakSet[Completer] = weakref.WeakSet()


def end_completers() -> None:
    """Ends every completer of this process, after its groups were closed.

    Python ends a daemon thread wherever the thread next asks for the
    interpreter. In torch's C++ that place is a destructor, and the process
    would abort.
    """
    for completer in list(_completers):
        completer.end(_EXIT_S)
