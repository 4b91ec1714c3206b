"""`lockstep jobs profile` of real programs of PyTorch and JAX on a cluster of this
machine.

  LOCKSTEP_FRAMEWORKS=DIR PYTHONPATH=build/release/python \\
      DIR/client/bin/python tests/python/profile_cluster_test.py
"""

from __future__ import annotations

import gzip
import json
import os
import pathlib
import subprocess
import tempfile
import time
import unittest
from typing import Any

import local_cluster
from local_cluster import BIN, FRAMEWORKS, LONG, VARIABLES, python

import lockstep
import lockstep.client

TORCH = """
import itertools
import lockstep, torch
session = lockstep.join()
model = torch.nn.Linear(64, 64)
for step in itertools.count():
    loss = model(torch.randn(8, 64)).square().mean()
    loss.backward()
    session.step(loss=loss.item())
    if step == 0:
        print("makes steps", flush=True)
"""
JAX = """
import itertools
import jax, lockstep
import jax.numpy as jnp
session = lockstep.join()
multiply = jax.jit(lambda x: jnp.tanh(x @ x))
x = jnp.ones((64, 64))
for step in itertools.count():
    with session.step():
        multiply(x).block_until_ready()
    if step == 0:
        print("makes steps", flush=True)
"""
# The file go lets it make steps.
WAITS = """
import os, time
import lockstep, torch
session = lockstep.join()
print("joined", flush=True)
while not os.path.exists("go"):
    time.sleep(0.05)
while True:
    torch.ones(2).sum()
    session.step()
"""
APART = """
while True:
    sum(range(1000))
"""


def setUpModule() -> None:
    # The nodes find py-spy there.
    os.environ["PATH"] = f"{FRAMEWORKS}/client/bin:{os.environ['PATH']}"
    local_cluster.start()


class ProfileClusterTest(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory(prefix="lockstep-profile-")
        self.addCleanup(folder.cleanup)
        self.here = pathlib.Path(folder.name)
        self.client = lockstep.Client()
        self.addCleanup(self.client.close)

    def submit(self, framework: str, program: str, **more: Any) -> lockstep.client.Job:
        job = self.client.submit(
            [python(framework), "-c", program],
            env=VARIABLES,
            max_restarts=0,
            **more,
        )

        def end() -> None:
            job.cancel()
            job.wait(timeout=LONG, progress=False)

        self.addCleanup(end)
        return job

    def wait_for(self, job: lockstep.client.Job, what: str, condition: Any) -> None:
        deadline = time.monotonic() + LONG
        while not condition():
            self.assertEqual(job.describe().end_time, None, job.describe())
            self.assertLess(time.monotonic(), deadline, what)
            time.sleep(0.1)

    def wait_for_steps(self, job: lockstep.client.Job, tasks: int = 1) -> None:
        """Until each of its ranks makes steps: the job's are those of any."""

        def ranks() -> int:
            return sum(line.text == "makes steps" for line in job.logs(follow=False))

        self.wait_for(job, "steps", lambda: ranks() == tasks)

    def step(self, job: lockstep.client.Job) -> int:
        progress = job.describe().progress
        return 0 if progress is None else progress.step

    def profile(
        self, job: lockstep.client.Job, *options: str, code: int = 0
    ) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [BIN + "/lockstep", "jobs", "profile", job.name, "--seconds", "1", *options],
            cwd=self.here,
            capture_output=True,
            text=True,
            timeout=LONG,
            check=False,
        )
        self.assertEqual(done.returncode, code, done.stderr)
        return done

    def events(self, trace: bytes) -> set[str]:
        """The names in a Chrome trace."""
        return {
            event.get("name", "") for event in json.loads(gzip.decompress(trace))["traceEvents"]
        }

    def artifacts(self, job: lockstep.client.Job) -> dict[str, str]:
        found: dict[str, str] = job.describe().to_dict().get("artifacts", {})
        return found

    def test_torch_is_recorded_by_its_profiler(self) -> None:
        output = self.here / "output"
        job = self.submit("torch", TORCH, tasks=2, output=str(output))
        self.wait_for_steps(job, tasks=2)
        self.profile(job, "--rank", "1", "-O", "here.json.gz")
        trace = (self.here / "here.json.gz").read_bytes()
        names = self.events(trace)
        self.assertTrue({"aten::addmm", "aten::square"} <= names or "aten::linear" in names, names)
        self.assertTrue(any(name.startswith("ProfilerStep#") for name in names), names)
        kept = list((output / "profiles").iterdir())
        self.assertEqual([path.read_bytes() for path in kept], [trace])
        self.assertRegex(kept[0].name, r"-rank1-torch\.json\.gz$")
        self.wait_for(job, "the artifact", lambda: "profile-rank1" in self.artifacts(job))
        self.assertEqual(self.artifacts(job)["profile-rank1"], str(kept[0]))
        # The program goes on, and can be asked again.
        before = self.step(job)
        self.profile(job, "--with", "torch")
        self.assertTrue((self.here / f"{job.name}-rank0-profile.json.gz").exists())
        self.wait_for(job, "more steps", lambda: self.step(job) > before)

    def test_jax_writes_a_folder_for_tensorboard(self) -> None:
        job = self.submit("tensorflow", JAX)
        self.wait_for_steps(job)
        done = self.profile(job)
        names = self.events((self.here / f"{job.name}-rank0-profile.json.gz").read_bytes())
        self.assertTrue(any("jit" in name.lower() for name in names), names)
        folder = pathlib.Path(done.stderr.split("kept with the job: ")[1].strip())
        self.assertRegex(folder.name, r"-rank0-jax$")
        self.assertEqual(len(list(folder.glob("plugins/profile/*/*.xplane.pb"))), 1)
        listed = subprocess.run(
            [BIN + "/lockstep", "jobs", "files", job.name, "0/profiles"],
            check=True,
            capture_output=True,
            text=True,
        )
        self.assertIn(folder.name, listed.stdout)
        # What it has not imported.
        done = self.profile(job, "--with", "torch", code=1)
        self.assertIn("the program has not imported torch", done.stderr)

    def test_a_program_between_its_steps(self) -> None:
        job = self.submit("torch", WAITS)
        self.wait_for(
            job, "it joined", lambda: any(line.text == "joined" for line in job.logs(follow=False))
        )
        done = self.profile(job, "--with", "torch", "--wait", "1", code=6)
        self.assertIn("ended no step within 1 s", done.stderr)
        # Without --with another profiler shows where it is.
        done = self.profile(job, "--wait", "1")
        self.assertIn("note: py-spy records it: the program ended no step", done.stderr)
        self.assertTrue((self.here / f"{job.name}-rank0-profile.svg").exists())
        subprocess.run([BIN + "/lockstep", "exec", job.name, "-n", "--", "touch", "go"], check=True)
        self.profile(job, "--with", "torch")

    def test_py_spy_records_what_has_not_joined(self) -> None:
        job = self.submit("client", APART)
        self.wait_for(job, "it runs", lambda: job.state == "RUNNING")
        done = self.profile(job)
        self.assertIn("note: py-spy records it: no program of this rank has joined", done.stderr)
        svg = (self.here / f"{job.name}-rank0-profile.svg").read_text()
        self.assertIn("<svg", svg)
        listed = subprocess.run(
            [BIN + "/lockstep", "jobs", "files", job.name, "0/profiles"],
            check=True,
            capture_output=True,
            text=True,
        )
        self.assertRegex(listed.stdout, rf"{job.name}-rank0-profile\.svg")


if __name__ == "__main__":
    unittest.main()
