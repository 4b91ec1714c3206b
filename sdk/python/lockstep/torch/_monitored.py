"""A barrier that says which ranks did not come.

It goes through the store of the process group. So it works while the ranks wait for
each other in a collective, and a rank that does not come breaks nothing. Its
sentences have the words of PyTorch's documentation.
"""

from __future__ import annotations

import time

import torch.distributed as dist

from ._store import TorchStore

_CAME = b"came"
_ALL_CAME = b"all came"
# Rank 0 answers when its own time is up, which may be later than another rank's.
_GRACE_S = 1.0


class MonitoredBarrier:
    """The barriers of one group: every rank calls `wait` as often as the others."""

    def __init__(self, store: TorchStore, rank: int, ranks: int) -> None:
        self._store = store
        self._rank = rank
        self._ranks = ranks
        self._round = 0

    def wait(self, timeout_s: float, wait_all_ranks: bool) -> None:
        """Waits for all ranks, or raises DistBackendError.

        Rank 0 names the first rank that did not come in time, or all of them with
        ``wait_all_ranks``; it then takes no more time than for one. The others
        say what rank 0 said.
        """
        self._round += 1
        if self._ranks == 1:
            return
        if self._rank:
            self._store.put(self._key(self._round, self._rank), _CAME)
            self._hear(timeout_s)
            return
        failure = self._collect(timeout_s, wait_all_ranks)
        self._store.put(self._key(self._round, 0), failure.encode() or _ALL_CAME)
        if not failure:
            # All have come, so they have read the answer of the round before.
            if self._round > 1:
                self._forget(self._round - 1)
        else:
            raise dist.DistBackendError(f"lockstep: {failure}")

    def _collect(self, timeout_s: float, wait_all_ranks: bool) -> str:
        took = f"{timeout_s * 1000:.0f} ms"
        if timeout_s <= 0:
            return f"Rank 0 timed out in monitoredBarrier after {took}"
        until = time.monotonic() + timeout_s
        missing: list[str] = []
        for rank in range(1, self._ranks):
            try:
                self._store.get(self._key(self._round, rank), until - time.monotonic())
            except TimeoutError:
                missing.append(str(rank))
                if not wait_all_ranks:
                    break
        if not missing:
            return ""
        several = "s" if wait_all_ranks else ""
        return f"Rank{several} {', '.join(missing)} failed to pass monitoredBarrier in {took}"

    def _hear(self, timeout_s: float) -> None:
        came = (
            f"lockstep: Rank {self._rank} successfully reached monitoredBarrier, but "
            f"received errors while waiting for send/recv from rank 0"
        )
        try:
            answer = self._store.get(self._key(self._round, 0), timeout_s + _GRACE_S)
        except TimeoutError:
            raise dist.DistBackendError(
                f"{came}: it did not answer within {timeout_s * 1000:.0f} ms"
            ) from None
        if answer != _ALL_CAME:
            raise dist.DistBackendError(f"{came}: {answer.decode()}")

    def _forget(self, number: int) -> None:
        for rank in range(self._ranks):
            self._store.forget(self._key(number, rank))

    @staticmethod
    def _key(number: int, rank: int) -> str:
        return f"monitored/{number}/{rank}"
