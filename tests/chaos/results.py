"""Compares what the jobs of a run left with what they must have left."""

from __future__ import annotations

import hashlib
import pathlib
import struct
from typing import Optional

import checks
from cluster import Cluster
from commands import User
from jobs import (
    HISTORY,
    HISTORY_EVERY,
    NAMES,
    NATIVE,
    RANKS,
    REFERENCE,
    REPLICA,
    REPLICA_RANKS,
    SERVERS,
    Jobs,
    Plan,
)
from waiting import say

# Of programs/replica.py and programs/servers.py.
REPLICA_BATCH = 16
SERVERS_BATCH = 8


class Results:
    """After all jobs have ended."""

    def __init__(self, cluster: Cluster, jobs: Jobs, plan: Plan, user: User) -> None:
        self._cluster = cluster
        self._jobs = jobs
        self._plan = plan
        self._user = user

    def problems(self) -> list[str]:
        found = []
        for name in NAMES:
            found += checks.check_job(self._cluster.job(name))
        found += self._weights() + self._history() + self._samples()
        return found + self._commands()

    def _weights(self) -> list[str]:
        found = checks.check_equal(
            "the model of native",
            _digest_of_tensors(self._jobs.output(NATIVE) / "model.safetensors"),
            _digest_of_tensors(self._jobs.output(REFERENCE + NATIVE) / "model.safetensors"),
        )
        for rank in self._ended():
            found += checks.check_equal(
                f"weights and samples of rank {rank} of replica",
                _text(self._jobs.output(REPLICA) / f"result-{rank}"),
                _text(self._jobs.output(REFERENCE + REPLICA) / f"result-{rank}"),
            )
        return found

    def _ended(self) -> list[int]:
        """Of replica: a rank may be away when the others make the last step."""
        ranks = [rank for task in self._cluster.job(REPLICA)["tasks"] for rank in task["ranks"]]
        away = {rank.get("rank", 0) for rank in ranks if "exit" not in rank or rank.get("away")}
        if away:
            say(f"ranks {sorted(away)} of replica were away at the end")
        return [rank for rank in range(REPLICA_RANKS) if rank not in away]

    def _history(self) -> list[str]:
        text = _text(self._jobs.output(HISTORY) / "history") or ""
        say(f"history has {len(text.splitlines())} lines")
        return checks.check_history(text, RANKS, self._plan.plain_steps, HISTORY_EVERY)

    def _samples(self) -> list[str]:
        steps = self._plan.steps
        native = self._cluster.job(NATIVE)
        found = checks.check_counts(
            "committed steps of native", native.get("committedStep"), [steps]
        )
        for rank in self._ended():
            text = _text(self._jobs.output(REPLICA) / f"result-{rank}") or ""
            found += checks.check_counts(
                f"samples of rank {rank} of replica",
                text.partition(" ")[2],
                [steps * REPLICA_RANKS * REPLICA_BATCH],
            )
        workers, plain = 2, self._plan.plain_steps
        total = sum(
            step * 1000003 % 1009 * (worker + 1)
            for step in range(1, plain + 1)
            for worker in range(workers)
        )
        return found + checks.check_counts(
            "steps, samples and sum of servers",
            _text(self._jobs.output(SERVERS) / "result"),
            [plain, plain * workers * SERVERS_BATCH, total],
        )

    def _commands(self) -> list[str]:
        jobs = self._cluster.jobs()
        orders = self._user.orders
        accepted = sum(order.answered for order in orders)
        ordered = self._user.checkpoints
        say(
            f"{accepted} of {len(orders)} submissions and cancels were accepted, "
            f"{len(ordered)} checkpoints were ordered, "
            f"{sum(order.given_up for order in ordered)} of them while the disk was full"
        )
        found = checks.check_submits(orders, jobs) + checks.check_cancels(orders, jobs)
        found += checks.check_checkpoints(ordered, self._plan.steps)
        for job in jobs:
            label = job["spec"]["labels"].get("chaos")
            if label and not checks.check_job(job):
                text = _text(self._user.ran / label) or ""
                generations = [int(word) for word in text.split()]
                found += checks.check_runs(job["name"], generations, int(job["generation"]))
            elif label:
                found += checks.check_job(job)
        return found


def _text(path: pathlib.Path) -> Optional[str]:
    return path.read_text(errors="replace") if path.exists() else None


def _digest_of_tensors(path: pathlib.Path) -> Optional[str]:
    """Without the header of the file, which names the job."""
    if not path.exists():
        return None
    data = path.read_bytes()
    (header,) = struct.unpack("<Q", data[:8])
    return hashlib.sha256(data[8 + header :]).hexdigest()
