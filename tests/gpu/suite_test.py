#!/usr/bin/env python3
"""How the suite judges: it needs no GPU and no PyTorch.

LOCKSTEP_BUILD=build/release LOCKSTEP_FAKE_NVML=... tests/gpu/suite_test.py
"""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest
from typing import Any, Dict, List
from unittest import mock

HERE = pathlib.Path(__file__).resolve().parent
SOURCE = HERE.parents[1]
BUILD = pathlib.Path(os.environ.get("LOCKSTEP_BUILD", SOURCE / "build" / "release"))
sys.path[:0] = [str(HERE / "suite"), str(SOURCE / "tests" / "bench" / "harness")]

import native  # noqa: E402
import results  # noqa: E402
import training  # noqa: E402
from case import Context  # noqa: E402
from results import FAILED, PASSED, SKIPPED, Row  # noqa: E402

GTEST = """\
[==========] Running 4 tests from 1 test suite.
[ RUN      ] GpuTest.Sums
[       OK ] GpuTest.Sums (12 ms)
[ RUN      ] GpuTest.Aborts
a_test.cc:9: Failure
Expected equality of these values: 1, 2
[  FAILED  ] GpuTest.Aborts (3 ms)
[ RUN      ] GpuTest.Squares
a_test.cc:105: Skipped
rank 0 has no GPU

[  SKIPPED ] GpuTest.Squares (1 ms)
"""
# nvidia-smi's words for the GPUs of the fake driver.
SMI = """\
#!/bin/bash
[[ $1 == --query-gpu=* ]] || exit 2
for gpu in 1 2; do
  line=
  IFS=, read -ra fields <<<"${1#--query-gpu=}"
  for field in "${fields[@]}"; do
    case $field in
      uuid) value=GPU-$gpu ;;
      name) value="NVIDIA H100 80GB HBM3" ;;
      pci.bus_id) value=00000000:1$((gpu - 1)):00.0 ;;
      utilization.gpu) value=75 ;;
      utilization.memory) value=30 ;;
      memory.total) value=81920 ;;
      memory.used) value=4096 ;;
      memory.free) value=77312 ;;
      memory.reserved) value=512 ;;
      power.draw) value=70.50 ;;
      enforced.power.limit) value=300.00 ;;
      temperature.gpu) value=55 ;;
      temperature.memory) value="[N/A]" ;;
      clocks.sm) value=1500 ;;
      clocks.mem) value=1200 ;;
      clocks.max.sm) value=1980 ;;
      clocks.max.mem) value=2619 ;;
      pcie.link.gen.current) value=4 ;;
      pcie.link.width.current) value=16 ;;
      ecc.errors.*) value=0 ;;
      *) echo "Field \\"$field\\" is not a valid field to query."; exit 2 ;;
    esac
    line+="${line:+, }$value"
  done
  echo "$line"
done
"""


class SuiteTest(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory(prefix="lockstep-gpu-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.context = Context(self.folder, dry_run=False, gpus=2)


class GoogleTestTest(SuiteTest):
    def test_each_test_is_a_row(self) -> None:
        rows = native.gtest_rows("engine", GTEST, 1)
        self.assertEqual(
            [(row.name, row.outcome) for row in rows],
            [("engine: Sums", PASSED), ("engine: Aborts", FAILED), ("engine: Squares", SKIPPED)],
        )
        self.assertIn("Expected equality", rows[1].reason)
        self.assertEqual(rows[2].reason, "rank 0 has no GPU")

    def test_one_that_ends_the_program_has_failed(self) -> None:
        rows = native.gtest_rows("engine", GTEST + "[ RUN      ] GpuTest.Hangs\n", 139)
        self.assertEqual((rows[-1].name, rows[-1].outcome), ("engine: Hangs", FAILED))
        self.assertIn("139", rows[-1].reason)

    def test_a_program_without_tests_has_failed(self) -> None:
        rows = native.gtest_rows("engine", "cannot open a library\n", 127)
        self.assertEqual([row.outcome for row in rows], [FAILED])
        self.assertIn("cannot open a library", rows[0].reason)

    def test_a_code_that_no_test_explains_has_failed(self) -> None:
        passed = GTEST[: GTEST.index("[ RUN      ] GpuTest.Aborts")]
        self.assertEqual(
            [row.outcome for row in native.gtest_rows("engine", passed, 1)], [PASSED, FAILED]
        )

    def test_on_a_host_with_a_gpu_few_reasons_excuse(self) -> None:
        old = "rank 0 has a driver for CUDA 12.4, which is older than the CUDA 13.0 that"
        for reason, dry_run, outcome in (
            ("rank 0 has no GPU number 0", True, SKIPPED),
            ("rank 0 has no GPU number 0", False, FAILED),
            ("rank 0 cannot open NCCL's library", False, FAILED),
            (old, False, SKIPPED),
        ):
            context = Context(self.folder, dry_run, gpus=1)
            row = native.no_excuse(context, Row("engine: Sums", SKIPPED, reason=reason))
            self.assertEqual(row.outcome, outcome, reason)
            self.assertIn(reason, row.reason)


class TrainingTest(SuiteTest):
    def ddp(self, ratio: float, spread: float, steps: int = 40) -> Row:
        without = [1.0 + spread * (number % 5 - 2) for number in range(40)]
        found = {
            "backend": "nccl",
            "steps": 10,
            "with": [1 / ratio] * 40,
            "without": without,
            "reported": 40,
        }
        pages = [{"steps": steps}, {"steps": 40}]
        return training.ddp_row(self.context, "ddp", 2, found, pages)

    def test_a_check_is_judged_by_its_parts(self) -> None:
        whole = (
            "begin\tmemory\npassed\tmemory\t1875.3\tGB/s\nbegin\tmatmul\n"
            "failed\tmatmul\t3 of 9 elements are wrong\nend\n"
        )
        rows = native.check_rows("check", ["memory", "matmul"], whole, 0, "")
        self.assertEqual([row.outcome for row in rows], [PASSED, FAILED])
        self.assertEqual(rows[0].figure, "1875.3 GB/s")
        spoiled = native.check_rows("check", ["memory", "matmul"], whole, 0, "matmul")
        self.assertEqual([row.outcome for row in spoiled], [PASSED])
        missed = native.check_rows("check", ["memory", "matmul"], whole, 0, "memory")
        self.assertEqual([row.outcome for row in missed], [FAILED])
        crashed = native.check_rows("check", ["memory"], "begin\tmemory\n", 139, "")
        self.assertEqual([row.outcome for row in crashed], [FAILED])
        without = native.check_rows("check", ["memory"], "cannot\tno driver\nend\n", 0, "")
        self.assertEqual([row.outcome for row in without], [SKIPPED])

    def test_a_step_is_judged_by_the_lower_end(self) -> None:
        self.assertEqual(self.ddp(1.0, 0.0).outcome, PASSED)
        self.assertEqual(self.ddp(1.0, 0.001).outcome, PASSED)
        slow = self.ddp(0.98, 0.001)
        self.assertEqual((slow.outcome, "slower" in slow.reason), (FAILED, True))
        wide = self.ddp(0.996, 0.05)
        self.assertEqual((wide.outcome, "too wide" in wide.reason), (FAILED, True))

    def test_a_dry_run_is_not_judged(self) -> None:
        self.context.dry_run = True
        row = self.ddp(0.9, 0.0)
        self.assertEqual((row.outcome, "not judged" in row.figure), (PASSED, True))
        self.assertIn(training.DRY, row.reason)

    def test_steps_that_the_page_lacks_are_a_failure(self) -> None:
        self.assertEqual(self.ddp(1.0, 0.0, steps=39).outcome, FAILED)

    def test_a_phase_is_the_hosts_and_the_devices_time(self) -> None:
        one = {"host": 0.8, "device": 0.79, "steps": 40}
        for seconds, outcome in ((0.801, PASSED), (0.4, FAILED), (0.9, FAILED)):
            row = training.phase_row(
                self.context, "compute", dict(one), {"seconds": {"compute": seconds}}
            )
            self.assertEqual(row.outcome, outcome, row)
        one["device"] = 0.5
        row = training.phase_row(self.context, "compute", one, {"seconds": {"compute": 0.801}})
        self.assertEqual((row.outcome, "CUDA's events" in row.reason), (FAILED, True))

    def test_a_failed_row_is_the_exit_code(self) -> None:
        rows = [Row("a", PASSED, "1 s"), Row("b", SKIPPED, reason="why")]
        self.assertEqual(results.exit_code(rows), 0)
        self.assertEqual(results.exit_code([*rows, Row("c", FAILED)]), 1)
        self.assertEqual(results.summary(rows), "1 passed, 0 failed, 1 skipped")
        self.assertEqual(results.table(rows), "a  passed   1 s\nb  skipped\n    why")


JOINS = """
import lockstep, os
session = lockstep.join()
assert (session.rank, session.world_size) == (int(os.environ["RANK"]), 2), session
for _ in range(3):
    session.step(samples=5)
"""


class RanksTest(SuiteTest):
    """gpu_ranks: what ranks find, what their pages had, and how it ends."""

    def setUp(self) -> None:
        super().setUp()
        self.program = BUILD / "tests" / "gpu_ranks"
        self.pages = self.folder / "pages.json"
        if not self.program.exists():
            self.skipTest(f"there is no {self.program}")

    def ranks(self, *command: str, timeout: int = 60) -> "subprocess.CompletedProcess[str]":
        words = ["--ranks", "2", "--pages", self.pages, "--timeout", str(timeout), "--"]
        return subprocess.run(
            [self.program, *words, *command],
            env={**os.environ, "PYTHONPATH": str(BUILD / "python")},
            capture_output=True,
            text=True,
            check=False,
        )

    def test_a_rank_has_a_session_and_a_page(self) -> None:
        done = self.ranks(sys.executable, "-c", JOINS)
        self.assertEqual(done.returncode, 0, done.stderr)
        pages = json.loads(self.pages.read_text())
        self.assertEqual([page["rank"] for page in pages], [0, 1])
        for page in pages:
            self.assertEqual((page["steps"], page["samples"]), (3, 15))
            self.assertGreater(page["seconds"]["other"], 0)

    def test_a_rank_finds_its_place(self) -> None:
        done = self.ranks("sh", "-c", "echo $RANK $LOCAL_RANK of $WORLD_SIZE; test -d $RANK_FOLDER")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(sorted(done.stdout.splitlines()), ["0 0 of 2", "1 1 of 2"])
        self.assertEqual(json.loads(self.pages.read_text()), [None, None])

    def test_a_rank_that_fails_is_the_exit_code(self) -> None:
        self.assertEqual(self.ranks("sh", "-c", "exit $((RANK * 7))").returncode, 7)
        self.assertEqual(self.ranks("sh", "-c", "kill -KILL $$").returncode, 128 + 9)
        done = self.ranks("/nonexistent/program")
        self.assertEqual(done.returncode, 127)
        self.assertIn("cannot start /nonexistent/program", done.stderr)

    def test_ranks_that_do_not_end_are_killed(self) -> None:
        done = self.ranks("sleep", "1000", timeout=1)
        self.assertEqual(done.returncode, 124)

    def test_wrong_usage_is_two(self) -> None:
        done = subprocess.run([self.program, "--ranks", "0"], capture_output=True, check=False)
        self.assertEqual(done.returncode, 2)


class ReadingsTest(SuiteTest):
    """The readings' program over a fake driver, beside a fake nvidia-smi."""

    def setUp(self) -> None:
        super().setUp()
        program = BUILD / "tests" / "gpu_readings"
        library = os.environ.get("LOCKSTEP_FAKE_NVML", "")
        if not program.exists() or not library:
            self.skipTest(f"there is no {program}, or LOCKSTEP_FAKE_NVML is not set")
        self.library = library
        smi = self.folder / "nvidia-smi"
        smi.write_text(SMI)
        smi.chmod(0o755)
        self.driver = self.folder / "driver"
        self.driver.write_text("")
        environment = {
            "PATH": f"{self.folder}:{os.environ['PATH']}",
            "FAKE_NVML_GPUS": "2",
            "FAKE_NVML_MODEL": "H100",
            "FAKE_NVML_FILE": str(self.driver),
        }
        for patch in (
            mock.patch.dict(os.environ, environment),
            mock.patch.object(native, "program", lambda name: str(BUILD / "tests" / name)),
        ):
            patch.start()
            self.addCleanup(patch.stop)

    def outcomes(self) -> Dict[str, Any]:
        rows: List[Row] = native.readings(self.context, self.library)
        return {row.name.partition(": ")[2]: row for row in rows}

    def test_all_agree(self) -> None:
        outcomes = self.outcomes()
        self.assertEqual(len(outcomes), 1 + len(native.FIELDS))
        skipped = outcomes.pop("temperature.memory")
        self.assertEqual((skipped.outcome, "nvidia-smi" in skipped.reason), (SKIPPED, True))
        self.assertEqual({row.outcome for row in outcomes.values()}, {PASSED}, outcomes)

    def test_one_that_differs_is_named(self) -> None:
        self.driver.write_text("set 1 temperature 91\nset 0 pcie_width 8\n")
        failed = {name: row for name, row in self.outcomes().items() if row.outcome == FAILED}
        self.assertEqual(set(failed), {"temperature.gpu", "pcie.link.width.current"})
        self.assertIn(
            "GPU 1: nvidia-smi has [55.0, 55.0], lockstep 91", failed["temperature.gpu"].reason
        )

    def test_a_reading_that_is_missing_is_a_failure(self) -> None:
        self.driver.write_text("unsupported nvmlDeviceGetPowerUsage\n")
        self.assertIn("lockstep nothing", self.outcomes()["power.draw"].reason)

    def test_without_nvidia_smi_it_is_skipped(self) -> None:
        (self.folder / "nvidia-smi").unlink()
        with mock.patch.dict(os.environ, {"PATH": str(self.folder)}):
            rows = native.readings(self.context, self.library)
        self.assertEqual([row.outcome for row in rows], [SKIPPED])


if __name__ == "__main__":
    unittest.main()
