"""How the ranks of a process group meet before the library connects them.

Rank 0 hears from all of them and then answers all of them: with the secret of
the group, or with the reason why there is none. So the ranks of two jobs that
share a store get the same sentence, and none waits for a group that cannot form.
"""

from __future__ import annotations

import os
import secrets
import time
from datetime import timedelta
from typing import Optional

import torch.distributed as dist

from .. import _group, _library, errors
from ._store import TorchStore, bind_address
from ._work import raise_for

_ACCEPTED = b"key "
_REFUSED = b"no "
# The other ranks wait that much longer for rank 0's answer, so that it can say
# which ranks did not come; and rank 0, whose process often has the store, waits
# that long until they have heard why there is no group.
_ANSWER_S = 5.0


def form(store: TorchStore, rank: int, size: int, timeout: timedelta, label: str) -> _group.Group:
    """Forms the library's group; raises what torch's users expect."""
    _library.library()  # Where it is not there, no rank need be told.
    key = _agree(store, rank, size, timeout, label)
    seconds = timeout.total_seconds()
    try:
        return _group.Group(
            store,
            rank=rank,
            world_size=size,
            label=label,
            bind_address=bind_address(),
            key=key,
            forming_timeout_s=seconds,
            operation_timeout_s=seconds,
        )
    except errors.Error as error:
        raise_for(error)


def _own_job() -> str:
    """The job that started this process, and the start of it; "": no job did."""
    job = os.environ.get("LOCKSTEP_JOB", "")
    return f"{job}, generation {os.environ.get('LOCKSTEP_GENERATION', '?')}" if job else ""


def _agree(store: TorchStore, rank: int, size: int, timeout: timedelta, label: str) -> bytes:
    """Returns the secret of the group, or raises rank 0's refusal."""
    if rank == 0:
        refusal, came = _refusal(store, size, timeout, label)
        if not refusal:
            answer = _ACCEPTED + secrets.token_hex(32).encode()
            store.put("answer", answer)
        else:
            answer = _REFUSED + refusal.encode()
            store.put("answer", answer)
            _await_all(store, [f"heard/{other}" for other in came], _ANSWER_S)
    else:
        store.put(f"job/{rank}", _own_job().encode())
        try:
            answer = store.get("answer", timeout.total_seconds() + _ANSWER_S)
        except TimeoutError as error:
            raise dist.DistBackendError(
                f"lockstep: rank 0 of {label} did not come within {timeout}"
            ) from error
    if answer.startswith(_ACCEPTED):
        return answer[len(_ACCEPTED) :]
    if rank != 0:
        store.put(f"heard/{rank}", b"")
    raise dist.DistBackendError(f"lockstep: {answer[len(_REFUSED) :].decode()}")


def _refusal(store: TorchStore, size: int, timeout: timedelta, label: str) -> tuple[str, list[int]]:
    """Hears from all ranks: why they are not a group ("": they are), and who came."""
    others = range(1, size)
    jobs = _await_all(store, [f"job/{rank}" for rank in others], timeout.total_seconds())
    members: dict[str, list[int]] = {_own_job(): [0]}
    for rank, job in zip(others, jobs):
        if job is not None:
            members.setdefault(job.decode(), []).append(rank)
    missing = [rank for rank, job in zip(others, jobs) if job is None]
    came = [rank for rank, job in zip(others, jobs) if job is not None]
    if missing:
        return f"{_ranks(missing)} of {label} did not come within {timeout}", came
    # A process that no job started may belong to any.
    members.pop("", None)
    if len(members) < 2:
        return "", came
    shown = "; ".join(f"{_ranks(ranks)}: {job}" for job, ranks in members.items())
    return (
        f"{label} has processes of different jobs ({shown}); give each job a store of its "
        f"own: the MASTER_ADDR and MASTER_PORT that it has, or another file"
    ), came


def _await_all(store: TorchStore, keys: list[str], timeout_s: float) -> list[Optional[bytes]]:
    """Returns the values of the keys; None: it was not there within the time for all."""
    until = time.monotonic() + timeout_s
    values: list[Optional[bytes]] = []
    for key in keys:
        try:
            values.append(store.get(key, until - time.monotonic()))
        except TimeoutError:
            values.append(None)
    return values


def _ranks(numbers: list[int]) -> str:
    shown = ", ".join(map(str, numbers[:8]))
    more = f" and {len(numbers) - 8} more" if len(numbers) > 8 else ""
    return f"rank{'s' if len(numbers) > 1 else ''} {shown}{more}"
