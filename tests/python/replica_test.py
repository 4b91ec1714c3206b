"""lockstep.torch.Replica on a cluster of this machine: ranks of a real PyTorch
program are killed, and the others stay.

  LOCKSTEP_FRAMEWORKS=DIR PYTHONPATH=build/release/python \\
      DIR/client/bin/python tests/python/replica_test.py
"""

from __future__ import annotations

import os
import pathlib
import signal
import subprocess
import tempfile
import time
import unittest
from typing import Any

import local_cluster
from local_cluster import LONG, VARIABLES, python

import lockstep
import lockstep.client

# Trains for STEPS steps, which take a while; prints what the test compares.
PROGRAM = """
import hashlib, os, pathlib, sys, time
import torch
import lockstep, lockstep.torch

steps, pause = int(sys.argv[1]), float(sys.argv[2])
torch.manual_seed(3)
model = torch.nn.Sequential(
    torch.nn.Linear(16, 64), torch.nn.BatchNorm1d(64, track_running_stats=False),
    torch.nn.Dropout(0.2),
    torch.nn.ReLU(), torch.nn.Linear(64, 1))
if "statistics" in sys.argv:
    model = torch.nn.Sequential(torch.nn.BatchNorm1d(16), model)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 10, 0.9)
if "late" in sys.argv and lockstep.join(recoverable=True).recovery > 0:
    # As imports of a larger program: until the test has seen that it is away.
    gate = pathlib.Path(sys.argv[0]).with_name("returns")
    deadline = time.monotonic() + 60
    while not gate.exists() and time.monotonic() < deadline:
        time.sleep(0.05)
replica = lockstep.torch.Replica(
    model, optimizer, scheduler=scheduler, seed=7, elastic="elastic" in sys.argv)
print("rank", replica.rank, "pid", os.getpid(), flush=True)
computed = 0

def loss():
    global computed
    computed += 1
    draw = torch.Generator().manual_seed(
        replica.committed * replica.world_size + replica.shard)
    x = torch.randn(32, 16, generator=draw)
    time.sleep(pause)
    return (model(x).squeeze(1) - x.sum(1)).square().mean()

session = lockstep.session()
while replica.committed < steps:
    replica.step(loss, samples=32)
    if session.checkpoint_due() and session.chief:
        torch.save(model.state_dict(), "model.pt")
        print("saved", replica.rank, flush=True)
        session.checkpoint_saved(replica.committed, "model.pt")

digest = hashlib.sha256()
for tensor in [*model.state_dict().values()]:
    digest.update(tensor.numpy().tobytes())
print("hash", digest.hexdigest(), flush=True)
print("computed", computed, "redone", replica.redone, flush=True)
replica.close()
"""

# Knows nothing of lockstep.
PLAIN = """
import os, time
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
optimizer = torch.optim.AdamW(torch.nn.Linear(8, 8).parameters())
print("rank", dist.get_rank(), "pid", os.getpid(), flush=True)
while True:
    dist.all_reduce(torch.ones(1))
    time.sleep(0.02)
"""


def setUpModule() -> None:
    local_cluster.start()


class ReplicaTest(unittest.TestCase):
    def setUp(self) -> None:
        self.client = lockstep.Client()
        self.addCleanup(self.client.close)
        folder = tempfile.TemporaryDirectory(prefix="lockstep-replica-")
        self.addCleanup(folder.cleanup)
        self.program = pathlib.Path(folder.name) / "train.py"
        self.program.write_text(PROGRAM)

    def submit(
        self,
        steps: int,
        pause: float,
        tasks: int,
        *more: str,
        warm: bool = False,
        elastic: int = 0,
    ) -> lockstep.client.Job:
        job = self.client.submit(
            [python("torch"), str(self.program), str(steps), str(pause), *more],
            tasks=tasks,
            env=VARIABLES,
            warm_starts=warm,
            elastic=elastic,
        )

        def end() -> None:
            job.cancel()
            job.wait(timeout=LONG, progress=False)

        self.addCleanup(end)
        return job

    def wait_for(self, job: lockstep.client.Job, what: str, condition: Any) -> None:
        deadline = time.monotonic() + LONG
        while not condition():
            if job.describe().end_time is not None:
                # It may have come true just before the end.
                self.assertTrue(condition(), f"{what}: {job.describe()}")
                return
            self.assertLess(time.monotonic(), deadline, what)
            time.sleep(0.05)

    def step(self, job: lockstep.client.Job) -> int:
        progress = job.describe().progress
        return 0 if progress is None else progress.step

    def described(self, job: lockstep.client.Job) -> str:
        """What `lockstep jobs describe` prints."""
        done = subprocess.run(
            [local_cluster.BIN + "/lockstep", "jobs", "describe", job.name],
            check=True,
            capture_output=True,
            text=True,
        )
        return done.stdout

    def pids(self, job: lockstep.client.Job) -> dict[int, int]:
        """The newest process of each rank that has begun."""
        words = [
            line.text.split() for line in job.logs(follow=False) if line.text.startswith("rank")
        ]
        return {int(rank): int(pid) for _, rank, _, pid in words}

    def lines(self, job: lockstep.client.Job, start: str) -> list[str]:
        return sorted(line.text for line in job.logs(follow=False) if line.text.startswith(start))

    def finish(self, job: lockstep.client.Job) -> list[str]:
        status = job.wait(timeout=LONG, progress=False)
        text = "\n".join(line.text for line in job.logs(follow=False))
        self.assertEqual(status.state, "SUCCEEDED", f"{text[-4000:]}\n{self.described(job)}")
        return self.lines(job, "hash")

    def kill(self, job: lockstep.client.Job, rank: int) -> None:
        """Kills the rank, and waits until the others go on with a new process."""
        before = self.pids(job)
        pid = before[rank]
        os.kill(pid, signal.SIGKILL)
        at = self.step(job)
        self.wait_for(
            job,
            "a new process",
            lambda: self.pids(job)[rank] != pid and self.step(job) > at + 2,
        )
        after = self.pids(job)
        for other in before:
            if other != rank:
                self.assertEqual(after[other], before[other], "a survivor was restarted")

    def test_killed_ranks_come_back_and_the_result_is_the_same(self) -> None:
        wanted = self.finish(self.submit(120, 0.0, 3))
        self.assertEqual(len(set(wanted)), 1)
        job = self.submit(120, 0.1, 3)
        self.wait_for(job, "steps", lambda: self.step(job) >= 10)
        self.kill(job, 1)
        self.kill(job, 0)
        self.assertEqual(self.finish(job), wanted)
        self.assertIn("2 recoveries", self.described(job))
        # Rank 2 has seen all of it: each recovery costs it at most one step.
        computed = self.lines(job, "computed")[-1].split()
        self.assertLessEqual(int(computed[1]), 122)

    def why(self, job: lockstep.client.Job) -> str:
        status = job.describe()
        return status.message if status.state == "RUNNING" else ""

    def test_the_others_train_on_and_the_result_is_the_same(self) -> None:
        wanted = self.finish(self.submit(150, 0.0, 4, "elastic", elastic=2))
        self.assertEqual(len(set(wanted)), 1)
        job = self.submit(150, 0.1, 4, "elastic", "late", elastic=2)
        self.wait_for(job, "steps", lambda: self.step(job) >= 10)
        pids = self.pids(job)
        os.kill(pids[1], signal.SIGKILL)
        self.wait_for(job, "a smaller gang", lambda: "rank 1 is away" in self.why(job))
        at = self.step(job)
        os.kill(pids[3], signal.SIGKILL)
        self.wait_for(
            job,
            "two that train",
            lambda: "2 of 4 ranks train; ranks 1, 3 are away" in self.why(job),
        )
        self.assertRegex(self.described(job), "STARTED.*, away")
        self.wait_for(job, "steps of the smaller gang", lambda: self.step(job) > at + 5)
        self.assertIn("ranks 1, 3 are away", self.why(job))
        self.program.with_name("returns").touch()
        self.wait_for(job, "a whole gang", lambda: self.why(job) == "")
        self.wait_for(
            job,
            "words of the new processes",
            lambda: all(self.pids(job)[rank] != pids[rank] for rank in (1, 3)),
        )
        after = self.pids(job)
        self.assertEqual([after[rank] for rank in (0, 2)], [pids[rank] for rank in (0, 2)])
        self.assertEqual(self.finish(job), wanted, "the same bits as without a loss")
        text = self.described(job)
        self.assertIn("3 ranks train on without rank 1", text)
        self.assertRegex(text, "ranks 1, 3 are back|rank 3 is back")

    def save(self, job: lockstep.client.Job) -> None:
        subprocess.run(
            [local_cluster.BIN + "/lockstep", "jobs", "checkpoint", job.name],
            check=True,
            capture_output=True,
        )

    def test_the_next_rank_is_the_chief_while_rank_zero_is_away(self) -> None:
        wanted = self.finish(self.submit(150, 0.0, 3, "elastic", elastic=1))
        job = self.submit(150, 0.1, 3, "elastic", "late", elastic=1)
        self.wait_for(job, "steps", lambda: self.step(job) >= 5)
        pids = self.pids(job)
        os.kill(pids[0], signal.SIGKILL)
        self.wait_for(job, "a smaller gang", lambda: "rank 0 is away" in self.why(job))
        self.save(job)
        self.wait_for(job, "a checkpoint", lambda: self.lines(job, "saved") == ["saved 1"])
        at = self.step(job)
        self.wait_for(job, "progress of the new chief", lambda: self.step(job) > at + 2)
        self.assertIn("rank 0 is away", self.why(job))
        self.program.with_name("returns").touch()
        self.wait_for(job, "a whole gang", lambda: self.why(job) == "")
        self.wait_for(job, "words of the new process", lambda: self.pids(job)[0] != pids[0])
        self.save(job)
        self.wait_for(
            job, "a checkpoint", lambda: self.lines(job, "saved") == ["saved 0", "saved 1"]
        )
        after = self.pids(job)
        self.assertEqual([after[rank] for rank in (1, 2)], [pids[rank] for rank in (1, 2)])
        self.assertEqual(self.finish(job), wanted, "the same bits as without a loss")

    def interpreters(self, job: lockstep.client.Job) -> int:
        """How many have been ready for a warm start of the job."""
        words = f"job {job.name}: an interpreter is ready"
        return sum(log.read_text().count(words) for log in local_cluster.logs())

    def test_a_killed_rank_becomes_an_interpreter_that_waits(self) -> None:
        wanted = self.finish(self.submit(80, 0.0, 2))
        job = self.submit(80, 0.1, 2, warm=True)
        self.wait_for(job, "interpreters", lambda: self.interpreters(job) == 2)
        self.kill(job, 1)
        pid = self.pids(job)[1]
        command = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        self.assertEqual(command[1:4], [b"/dev/fd/4", str(self.program).encode(), b"80"])
        self.assertEqual(self.finish(job), wanted)
        self.assertIn("1 recovery", self.described(job))

    def test_the_gang_of_a_plain_program_restarts_warm(self) -> None:
        self.program.write_text(PLAIN)
        job = self.submit(0, 0.0, 2, warm=True)
        self.wait_for(job, "interpreters", lambda: self.interpreters(job) == 2)
        before = self.pids(job)
        started = time.monotonic()
        os.kill(before[1], signal.SIGKILL)

        def again() -> bool:
            pids = self.pids(job)
            return all(pids[rank] != before[rank] for rank in (0, 1))

        self.wait_for(job, "all ranks again", again)
        print(f"all ranks train again, in new processes, after {time.monotonic() - started:.2f} s")
        for pid in self.pids(job).values():
            command = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes()
            self.assertIn(b"/dev/fd/4", command, "a rank started cold")
        self.assertEqual(job.describe().attempt, 2)

    def test_statistics_of_each_rank_are_refused(self) -> None:
        job = self.submit(10, 0.0, 2, "statistics")
        status = job.wait(timeout=LONG, progress=False)
        self.assertEqual(status.state, "FAILED")
        self.assertIn("0 is a BatchNorm1d with running statistics", status.message)

    def test_two_at_once(self) -> None:
        wanted = self.finish(self.submit(60, 0.0, 3))
        job = self.submit(60, 0.1, 3)
        self.wait_for(job, "steps", lambda: self.step(job) >= 5)
        pids = self.pids(job)
        for rank in (0, 2):
            os.kill(pids[rank], signal.SIGKILL)
        self.assertEqual(self.finish(job), wanted)
        self.assertRegex(self.described(job), "[12] recover")


if __name__ == "__main__":
    unittest.main()
