"""The four jobs of a run, and the undisturbed ones that they are compared with."""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import random
import struct
import subprocess
import sys

from cluster import Cluster

PROGRAMS = pathlib.Path(__file__).resolve().parent / "programs"
NATIVE, REPLICA, HISTORY, SERVERS = "native", "replica", "history", "servers"
NAMES = (NATIVE, REPLICA, HISTORY, SERVERS)
# Jobs that ranks of a native or recoverable program belong to: others start again
# from the beginning of a gang, after a wait that doubles.
RECOVERING = (NATIVE, REPLICA)
REFERENCE = "whole-"
RANKS = 2
# Of the elastic one.
REPLICA_RANKS = 3
HISTORY_EVERY = 10
SERVERS_EVERY = 10
NATIVE_BATCH = 4
# Room for checkpoints of 3 MiB, three at a time, and one that is being written.
DISK = "24m"


@dataclasses.dataclass(frozen=True)
class Plan:
    """How many steps the jobs make; `pause` is the seconds of one at least.

    The programs that import nothing are there from the begin, and make more.
    """

    pause: float
    steps: int
    plain_steps: int

    @staticmethod
    def of(seconds: int) -> Plan:
        # With what the faults cost they take about as long as the faults come.
        pause = 0.1 if seconds <= 120 else 0.25
        return Plan(pause, int(seconds * 0.7 / pause), int((seconds + 10) / pause))


class Jobs:
    """Submits them. Their outputs are below `root`, which all hosts see."""

    def __init__(self, cluster: Cluster, binaries: pathlib.Path, plan: Plan, disk: bool) -> None:
        self._cluster = cluster
        self._binaries = binaries
        self._plan = plan
        self._data = cluster.root / "data"
        self._torch = os.environ["LOCKSTEP_FRAMEWORKS"] + "/torch/bin/python"
        self._pack()
        for name in (*NAMES, REFERENCE + NATIVE, REFERENCE + REPLICA):
            self.output(name).mkdir()
        if disk:
            # Before the daemons start, whose mounts are copies.
            subprocess.run(
                ["mount", "-t", "tmpfs", "-o", "size=" + DISK, "tmpfs", self.output(NATIVE)],
                check=True,
                timeout=30,
            )

    def output(self, name: str) -> pathlib.Path:
        return self._cluster.root / f"out-{name}"

    def submit_references(self) -> None:
        """Those that the others are compared with; returns when they are accepted."""
        self._submit_native(REFERENCE + NATIVE, 0)
        self._submit_replica(REFERENCE + REPLICA, 0)

    def submit(self) -> None:
        """The four; returns when they are accepted."""
        self._submit_replica(REPLICA, self._plan.pause)
        self._submit_native(NATIVE, self._plan.pause)
        self._submit(
            HISTORY, ["--tasks", str(RANKS), "--cpus", "1"],
            [sys.executable, *self._plain("history", HISTORY, HISTORY_EVERY)],
        )  # fmt: skip
        self._submit_servers()

    def _submit(self, name: str, options: list[str], argv: list[str]) -> None:
        budget = "0" if name.startswith(REFERENCE) else "1000"
        more = ["--detach", "--restart-budget", budget, "--name", name]
        self._cluster.call("submit", *more, *options, "--", *argv)

    def _submit_native(self, name: str, pause: float) -> None:
        options = ["--kind", "native", "--output", str(self.output(name))]
        # Two do not fit on one host, so that there is a network between them.
        cpus = "9" if name == NATIVE else "2"
        if name == NATIVE:
            options += ["--spares", "1"]
        argv = [
            str(self._binaries / "lockstep-train"), "--recover", "--train", str(self._data),
            "--max-steps", str(self._plan.steps), "--epochs", "1000000",
            "--batch-size", str(NATIVE_BATCH), "--threads", "1", "--learning-rate", "0.002",
            "--allow-faults", "--step-delay-ms", str(int(pause * 1000)),
        ]  # fmt: skip
        self._submit(name, [*options, "--tasks", str(RANKS), "--cpus", cpus], argv)

    def _submit_replica(self, name: str, pause: float) -> None:
        options = ["--tasks", str(REPLICA_RANKS), "--cpus", "1", "--elastic", "1"]
        for variable in (
            "PYTHONPATH=" + os.environ["PYTHONPATH"],
            "PYTHONDONTWRITEBYTECODE=1",
            "OMP_NUM_THREADS=1",
        ):
            options += ["--env", variable]
        if name == REPLICA:
            options.append("--warm-starts")
        program = self._program("replica", name, self._plan.steps, pause)
        self._submit(name, options, [self._torch, *program])

    def _submit_servers(self) -> None:
        roles = [
            {"type": role, "count": 1, "resources": {"cpus": 1}}
            for role in ("chief", "worker", "ps")
        ]
        spec = {
            "name": SERVERS,
            "kind": "program",
            "roles": roles,
            "restartBudget": 1000,
            "argv": [
                sys.executable,
                *self._plain("servers", SERVERS, SERVERS_EVERY),
            ],
        }
        file = self._cluster.root / "servers.yaml"
        file.write_text(json.dumps(spec))  # JSON is YAML.
        self._cluster.call("submit", "--detach", "-f", str(file))

    def _plain(self, program: str, name: str, every: int) -> list[str]:
        plan = self._plan
        return self._program(program, name, plan.plain_steps, plan.pause, every)

    def _program(self, program: str, name: str, steps: int, pause: float, *more: int) -> list[str]:
        words = [steps, pause, self.output(name), *more]
        return [str(PROGRAMS / f"{program}.py"), *map(str, words)]

    def _pack(self) -> None:
        """96 images of 28 x 28 points in 4 classes."""
        draw = random.Random(1)
        count = 96
        images = self._cluster.root / "images"
        labels = self._cluster.root / "labels"
        images.write_bytes(struct.pack(">IIII", 2051, count, 28, 28) + draw.randbytes(count * 784))
        labels.write_bytes(struct.pack(">II", 2049, count) + bytes(i % 4 for i in range(count)))
        subprocess.run(
            [
                self._binaries / "lockstep-data", "pack", "idx", "--images", images,
                "--labels", labels, "--out", self._data, "--name", "noise",
                "--records-per-shard", "48",
            ],
            check=True, timeout=60, capture_output=True,
        )  # fmt: skip
