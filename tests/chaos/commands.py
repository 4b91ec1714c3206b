"""A user, who gives commands while the faults come, and remembers what was accepted."""

from __future__ import annotations

import random
import threading
from typing import Any, Callable, Optional

import checks
from checks import CheckpointOrder, Order, Saved
from cluster import Cluster, CommandError
from hosts import NAMES
from jobs import RECOVERING
from waiting import now, say

BETWEEN_S = (0.5, 2.5)
DRAINED_S = 4.0
# A checkpoint is not asked for so late that the job's own last one comes first.
STEPS_TO_COME = 100
# How long after a full disk an order may still be carried out.
GRACE_S = 10.0


class User:
    """Runs in a thread of its own between `start` and `stop`."""

    def __init__(
        self, cluster: Cluster, seed: int, steps: int, disk_is_full: Callable[[], bool]
    ) -> None:
        self._cluster = cluster
        self._dice = random.Random(seed)
        self._steps = steps
        self._disk_is_full = disk_is_full
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._work, name="user")
        self._number = 0
        self._endless: list[str] = []
        self._drained: dict[str, bool] = {}  # Node: the drain was accepted.
        self._drained_at = 0.0
        self._open: dict[str, CheckpointOrder] = {}
        self._room_at = 0.0
        self.orders: list[Order] = []
        self.checkpoints: list[CheckpointOrder] = []
        self.problems: list[str] = []
        self.ran = cluster.root / "ran"
        self.ran.mkdir()

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Ends the thread; calls of `lockstep` end by themselves."""
        self._stop.set()
        self._thread.join(timeout=300)
        if self._thread.is_alive():
            self.problems.append("a command of the user does not end")

    def tidy(self) -> None:
        """Once all is healed: undrains and cancels, which must be accepted now."""
        for node in NAMES:
            # Also ends what keeps work from a node because it failed jobs.
            self._cluster.call("nodes", "undrain", node)
        for node in self._cluster.nodes():
            self.problems += checks.check_drain(node, False)
        for job in self._cluster.jobs():
            if job["name"].startswith("endless-") and job["state"] not in checks.FINAL:
                self._cluster.call("jobs", "cancel", job["name"])
                self.orders.append(Order("cancel", job["name"], True))

    def look(self) -> None:
        """Whether the checkpoints that were ordered are there now."""
        for name, order in list(self._open.items()):
            job = self._cluster.try_job(name)
            if not job:
                continue
            saved = _saved(job)
            if saved is not None and saved != order.before:
                order.found = saved
                say(f"user: {name} has a checkpoint of step {saved[0]}")
            elif self._disk_is_full() or _gave_up(job):
                order.given_up = True
                self._room_at = now()
            if order.found or (order.given_up and now() > self._room_at + GRACE_S):
                del self._open[name]

    def _work(self) -> None:
        actions = (self._submit, self._submit, self._endless_job, self._checkpoint, self._drain)
        while not self._stop.wait(self._dice.uniform(*BETWEEN_S)):
            self.look()
            self._undrain()
            self._dice.choice(actions)()

    def _call(self, *words: str) -> Optional[str]:
        """What it printed; None where it was not accepted."""
        try:
            said = self._cluster.call(*words)
        except CommandError as error:
            say(f"user: not accepted: {error}")
            return None
        say(f"user: accepted: lockstep {' '.join(words)}"[:160])
        return said

    def _submit(self) -> None:
        """A small job without a name: a second one would have another name."""
        self._number += 1
        label = f"s{self._number}"
        script = f"echo $LOCKSTEP_GENERATION >> {self.ran / label}"
        accepted = self._call(
            "submit", "--detach", "--label", f"chaos={label}", "--cpus", "0.5",
            "--restart-budget", "1000", "--", "/bin/sh", "-c", script,
        )  # fmt: skip
        self.orders.append(Order("submit", label, accepted is not None))

    def _endless_job(self) -> None:
        """Submits one that never ends, or cancels it."""
        if not self._endless:
            self._number += 1
            name = f"endless-{self._number}"
            argv = ("--cpus", "0.5", "--restart-budget", "1000", "--", "/bin/sleep", "100000")
            if self._call("submit", "--detach", "--name", name, *argv) is not None:
                self._endless.append(name)
            return
        name = self._endless[0]
        accepted = self._call("jobs", "cancel", name) is not None
        self.orders.append(Order("cancel", name, accepted))
        if accepted:
            self._endless.pop()

    def _checkpoint(self) -> None:
        name = self._dice.choice(RECOVERING)
        job = self._cluster.try_job(name)
        if name in self._open or job.get("state") != "JOB_STATE_RUNNING":
            return
        committed = int(job.get("progress", {}).get("chief", {}).get("committedStep", -1))
        if committed < 0 or committed > self._steps - STEPS_TO_COME or self._disk_is_full():
            return
        order = CheckpointOrder(name, int(job["generation"]), committed, _saved(job))
        if self._call("jobs", "checkpoint", name) is not None:
            self._open[name] = order
            self.checkpoints.append(order)

    def _drain(self) -> None:
        if self._drained:
            return
        node = self._dice.choice(NAMES)
        grace = self._dice.choice((("--grace", "6s"), ()))
        words = ("nodes", "drain", node, "--reason", "chaos", *grace)
        self._drained[node] = self._call(*words) is not None
        self._drained_at = now()

    def _undrain(self) -> None:
        for node, accepted in list(self._drained.items()):
            if now() < self._drained_at + DRAINED_S:
                continue
            self._check(node, accepted)
            if self._call("nodes", "undrain", node) is not None:
                del self._drained[node]

    def _check(self, name: str, accepted: bool) -> None:
        for node in self._cluster.try_nodes():
            if node["name"] == name and accepted:
                self.problems += checks.check_drain(node, True)


def _saved(job: dict[str, Any]) -> Optional[Saved]:
    last = job.get("lastCheckpoint")
    return (int(last["step"]), int(last["generation"])) if last else None


def _gave_up(job: dict[str, Any]) -> bool:
    return any("was given up" in event.get("message", "") for event in job.get("events", []))
