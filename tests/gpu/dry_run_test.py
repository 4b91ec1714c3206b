"""The folder of tests/gpu/bundle in a Python with PyTorch, without a GPU.

LOCKSTEP_BUILD=build/release tests/python/run_in torch tests/gpu/dry_run_test.py
"""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest
from typing import Any, Dict

HERE = pathlib.Path(__file__).resolve().parent
SOURCE = HERE.parents[1]
BUILD = pathlib.Path(os.environ.get("LOCKSTEP_BUILD", SOURCE / "build" / "release"))
NOTHING = 77


class DryRunTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls) -> None:
        folder = tempfile.TemporaryDirectory(prefix="lockstep-gpu-")
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        made = subprocess.run(
            [HERE / "bundle", cls.folder / "bundle", BUILD],
            capture_output=True,
            text=True,
            check=False,
        )
        if made.returncode:
            if "no CUDA and NCCL to build with" in made.stderr:
                raise unittest.SkipTest(made.stderr.strip())
            raise AssertionError(made.stdout + made.stderr)

    def run_it(self, *words: str) -> "subprocess.CompletedProcess[str]":
        environment = {**os.environ, "PYTHON": sys.executable, "CUDA_VISIBLE_DEVICES": ""}
        environment.pop("PYTHONPATH", None)
        return subprocess.run(
            [self.folder / "bundle" / "run", "--results", self.folder / "found", *words],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )

    def test_every_program_runs_on_the_cpu(self) -> None:
        done = self.run_it("--here", "--dry-run")
        logs = "".join(log.read_text() for log in (self.folder / "found").glob("*.log"))
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr + logs)
        document = json.loads((self.folder / "found" / "results.json").read_text())
        self.assertIs(document["host"]["dry_run"], True)
        rows: Dict[str, Any] = {row["name"]: row for row in document["results"]}
        for name, row in rows.items():
            if name.startswith(("NCCL engine: ", "gradients on the device: ", "all-reduce")):
                self.assertEqual(row["outcome"], "skipped", row)
                self.assertRegex(row["reason"], "driver|no GPU|CUDA shows", name)
        passed = {name for name, row in rows.items() if row["outcome"] == "passed"}
        for name in (
            "cpu:lockstep,cuda:nccl: on the cpu",
            "cpu:lockstep,cuda:nccl: ddp",
            "DDP with session.step() / without",
            "Replica with its model on the device",
            "phases: input",
            "phases: compute",
            "phases: optimizer",
            "phases: all of them are the rank's time",
        ):
            self.assertIn(name, passed)
        # Nothing looks as if it had been on a GPU.
        for name in passed:
            self.assertIn("dry run", rows[name]["reason"], name)
        self.assertEqual(rows["cpu:lockstep,cuda:nccl: on the gpu"]["outcome"], "skipped")
        self.assertIn("DRY RUN", done.stdout)
        self.assertIn("DRY RUN", (self.folder / "found" / "results.txt").read_text())

    def test_without_a_gpu_it_is_skipped(self) -> None:
        environment = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
        done = subprocess.run(
            [sys.executable, self.folder / "bundle" / "suite" / "main.py", "--results", "/tmp"],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        self.assertEqual(done.returncode, NOTHING, done.stdout + done.stderr)
        self.assertRegex(done.stderr.strip().splitlines()[-1], "^run: PyTorch .* sees no GPU here")

    def test_a_case_that_does_not_exist_is_named(self) -> None:
        done = self.run_it("--here", "--dry-run", "--only", "fpga")
        self.assertEqual(done.returncode, 2, done.stdout + done.stderr)
        self.assertIn("the cases are nccl, gradients, bench", done.stderr)


if __name__ == "__main__":
    unittest.main()
