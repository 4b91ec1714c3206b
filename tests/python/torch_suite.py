"""Runs PyTorch's own tests of torch.distributed over lockstep.

  PYTHONPATH=build/release/python python3 tests/python/torch_suite.py
      [--ranks N] [--match PATTERN] [--shard I/N] [--seconds S] [--verbose]

The tests are those of `torch.testing._internal.distributed.distributed_test`,
which PyTorch runs for gloo, NCCL and others. Wherever its lists name gloo, they
name lockstep too, in memory. `torch_suite_skips.txt` has the tests that do not
pass or are not run, each with its reason; any other failure, and a listed test
that passes, ends the run with 1.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import re
import sys
import tempfile
import time
import unittest
from pathlib import Path
from typing import Any, Dict, Iterator, List, Tuple

SKIPS = Path(__file__).with_name("torch_suite_skips.txt")


def patched() -> Any:
    """Imports PyTorch's tests as if their lists knew lockstep."""
    os.environ["BACKEND"] = "lockstep"
    os.environ.setdefault("WORLD_SIZE", "2")
    os.environ.setdefault("TEMP_DIR", tempfile.mkdtemp(prefix="lockstep-suite-"))
    import torch.distributed as dist
    from torch.testing._internal import common_distributed

    import lockstep.torch  # noqa: F401

    cases = common_distributed.DistTestCases
    # On GPUs gloo has what lockstep does not: those tests stay skipped.
    cases.backend_feature["ddp"].add("lockstep")
    cases.skip_collective["sendrecv anysource"].add("lockstep")
    from torch.testing._internal.distributed import distributed_test

    for name in dir(distributed_test):
        value = getattr(distributed_test, name)
        # Only a backend in C++ has events of its own in the profiler.
        if "PROFILING" in name:
            continue
        if isinstance(value, list) and dist.Backend.GLOO in value:
            value.append("lockstep")
    return distributed_test


def suite_class() -> type:
    """Returns the tests as a class whose processes find it again."""
    module = patched()
    from torch.testing._internal.common_distributed import MultiProcessTestCase

    class LockstepSuite(  # type: ignore[misc]
        module.TestDistBackend, module.DistributedTest._DistTestBase
    ):
        def setUp(self) -> None:
            super().setUp()
            self._spawn_processes()

    # A spawned process imports this file, and makes the class again.
    LockstepSuite.__module__ = "torch_suite"
    LockstepSuite.__qualname__ = "LockstepSuite"
    assert issubclass(LockstepSuite, MultiProcessTestCase)
    return LockstepSuite


def skips() -> Dict[str, str]:
    """Reads `name: reason` of each line."""
    found: Dict[str, str] = {}
    for line in SKIPS.read_text().splitlines():
        if line and not line.startswith("#"):
            name, _, reason = line.partition(":")
            found[name.strip()] = reason.strip()
    return found


@contextlib.contextmanager
def quiet(enabled: bool) -> Iterator[io.StringIO]:
    """Keeps what the ranks write, unless all of it is wanted."""
    text = io.StringIO()
    if not enabled:
        yield text
        return
    with tempfile.TemporaryFile("w+") as file:
        saved = [os.dup(1), os.dup(2)]
        sys.stdout.flush()
        sys.stderr.flush()
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
        try:
            yield text
        finally:
            os.dup2(saved[0], 1)
            os.dup2(saved[1], 2)
            for one in saved:
                os.close(one)
            file.seek(0)
            text.write(file.read())


def run_one(case: type, name: str, verbose: bool) -> Tuple[str, str]:
    """Runs one test: passed, failed or skipped, and the reason."""
    result = unittest.TestResult()
    with quiet(not verbose) as text:
        case(name).run(result)
    if result.skipped:
        return "skipped", result.skipped[0][1]
    bad = result.failures + result.errors
    if not bad:
        return "passed", ""
    lines = [line for line in (text.getvalue() + bad[0][1]).splitlines() if line.strip()]
    errors = [
        found.group(0)
        for line in lines
        if (found := re.search(r"\b[\w.]*(Error|Exception): (?!Process \d).*", line))
    ]
    return "failed", (errors or lines or ["?"])[0][:300]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", default="2")
    parser.add_argument("--match", default="")
    parser.add_argument("--shard", default="0/1", help="every Nth test from the Ith on")
    parser.add_argument("--seconds", type=float, default=0, help="begins no test later")
    parser.add_argument("--verbose", action="store_true")
    options = parser.parse_args()
    os.environ["WORLD_SIZE"] = options.ranks
    global LockstepSuite
    case = LockstepSuite = suite_class()
    os.environ["LOCKSTEP_SUITE"] = "1"
    known = skips()
    names: List[str] = [
        name
        for name in unittest.TestLoader().getTestCaseNames(case)
        if re.search(options.match, name)
    ]
    shard, _, shards = options.shard.partition("/")
    names = names[int(shard) :: int(shards)]
    count = {"passed": 0, "failed": 0, "skipped": 0}
    surprises = []
    began = time.monotonic()
    for at, name in enumerate(names):
        if options.seconds and time.monotonic() - began > options.seconds:
            print(f"not run, no time: {len(names) - at}")
            break
        listed = known.get(name, "")
        if listed.startswith("not run"):
            outcome, reason = "skipped", listed
        else:
            outcome, reason = run_one(case, name, options.verbose)
        count[outcome] += 1
        if outcome == "failed" and not listed:
            surprises.append(f"{name}: fails and is not listed: {reason}")
        if outcome == "passed" and listed:
            surprises.append(f"{name}: passes and is listed: {listed}")
        print(f"{outcome} {name}" + (f": {listed or reason}" if reason else ""), flush=True)
    for surprise in surprises:
        print("unexpected:", surprise)
    known_failures = count["failed"] - sum("fails" in one for one in surprises)
    print(f"{known_failures} of the failures are listed in {SKIPS.name}")
    print("{passed} passed, {failed} failed, {skipped} skipped".format(**count))
    return 1 if surprises else 0


if __name__ == "__main__":
    # By its name: the processes of a test import the class of this module.
    sys.path.insert(0, str(Path(__file__).parent))
    import torch_suite

    sys.exit(torch_suite.main())
elif __name__ == "torch_suite" and "LOCKSTEP_SUITE" in os.environ:
    # In a process of a test.
    LockstepSuite = suite_class()
