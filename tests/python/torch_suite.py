"""Runs PyTorch's own tests of torch.distributed over lockstep.

  PYTHONPATH=build/release/python python3 tests/python/torch_suite.py
      [--backend NAME] [--match PATTERN] [--shard I/N] [--verbose]

The tests are those of `torch.testing._internal.distributed.distributed_test`, which
PyTorch runs for gloo, MPI and NCCL. Each runs as the first of these runs it, with
lockstep in its place: in 2 ranks, or in 3 or 4 where it needs them; a test of GPUs
runs on the CPU (`torch_suite_gpu.py`). Nothing of PyTorch is changed on the disk.

`torch_suite_skips.txt` lists the tests that do not pass, each with its reason. A
test that does not pass and is not listed ends the run with 1, and so does a listed
one that passes, or does not pass for another reason than the list says.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import functools
import gc
import importlib
import os
import re
import resource
import sys
import tempfile
import unittest
from collections import Counter
from pathlib import Path
from typing import Any, Dict, Iterator, List, Optional

SKIPS = Path(__file__).with_name("torch_suite_skips.txt")
TESTS = "torch.testing._internal.distributed.distributed_test"
# As which backend, and for how many ranks, PyTorch's decorators see a test. The
# first that does not skip it counts.
VARIANTS = (("gloo", 2), ("mpi", 2), ("nccl", 2), ("gloo", 4), ("nccl", 4))
# What a test may take on a busy machine.
TIMEOUT_S = 300


@dataclasses.dataclass(frozen=True)
class Listed:
    """A line of the list."""

    kind: str
    why: str


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What became of a test: passed, failed or skipped, and what it said."""

    what: str
    text: str = ""

    def summary(self) -> str:
        """Returns the line that says most."""
        lines = [line.strip() for line in self.text.splitlines() if line.strip()]
        errors = [
            line
            for line in lines
            if re.match(r"[\w.]*(Error|Exception|Skip)\b(?!.*Process \d)", line)
        ]
        return (errors or lines[-1:] or ["it said nothing"])[-1][:400]


def read_list(text: str) -> Dict[str, Listed]:
    """Reads `name: kind: why` of each line."""
    found: Dict[str, Listed] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        parts = [part.strip() for part in line.split(":", 2)]
        if len(parts) != 3 or not all(parts) or parts[0] in found:
            raise ValueError(f"line {number} is not a new `name: kind: why`: {line!r}")
        found[parts[0]] = Listed(parts[1], parts[2])
    return found


def objection(outcome: Outcome, listed: Optional[Listed]) -> str:
    """Says how an outcome differs from the list; "" where it does not."""
    if outcome.what == "passed":
        return f"passes, and is listed: {listed.why}" if listed else ""
    if listed is None:
        return f"{outcome.what}, and is not listed: {outcome.summary()}"
    quoted = re.search(r'"(.+)"', listed.why)
    if quoted is None or quoted[1] not in outcome.text:
        return f"{outcome.what} not for the listed reason, {listed.why}: {outcome.summary()}"
    return ""


class _LikeGloo(str):
    """The backend's name in the tests: what they do for gloo, they do for it."""

    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        return other == "gloo" or str.__eq__(self, other)

    def __ne__(self, other: object) -> bool:
        return not self == other


def needs(ranks: int, *, gpus: bool = False) -> Any:
    """Makes a decorator that says in how many ranks a test runs, and whether on GPUs."""

    def decorate(test: Any) -> Any:
        @functools.wraps(test)
        def run(*args: Any, **kwargs: Any) -> Any:
            return test(*args, **kwargs)

        run.ranks = max(ranks, getattr(test, "ranks", 2))  # type: ignore[attr-defined]
        run.gpus = gpus or getattr(test, "gpus", False)  # type: ignore[attr-defined]
        return run

    return decorate


def prepare() -> None:
    """Makes PyTorch's tests run here, before anything imports them."""
    os.environ["DISTRIBUTED_TESTS_DEFAULT_TIMEOUT"] = str(TIMEOUT_S)
    os.environ["CUDA_VISIBLE_DEVICES"] = ""  # Everywhere the same tests.
    os.environ["OMP_NUM_THREADS"] = "1"
    from torch.testing._internal import common_distributed

    common_distributed.skip_if_lt_x_gpu = lambda gpus, **_: needs(gpus, gpus=True)
    common_distributed.skip_if_no_gpu = needs(2, gpus=True)
    # PyTorch's limit of 8 ranks has no reason: these groups are of ranks 1 and 2.
    common_distributed.skip_if_small_worldsize = needs(3)


def variant(backend: str, ranks: int, name: str) -> Any:
    """Imports the tests as for `backend` and as many ranks; they run over `name`."""
    os.environ.update(BACKEND=backend, WORLD_SIZE=str(ranks), INIT_METHOD="file://")
    sys.modules.pop(TESTS, None)
    module = importlib.import_module(TESTS)
    module.BACKEND = _LikeGloo(name)
    # Only a backend in C++ has events of its own in the profiler.
    for listed in [one for one in vars(module) if one.endswith("PROFILING_SUPPORTED_BACKENDS")]:
        getattr(module, listed).clear()
    return module


def suite_class(module: Any, ranks: int, gpus: bool) -> type:
    """Returns the tests of a variant as a class that runs them in forked ranks."""
    import torch
    from torch_suite_gpu import gpus_are_the_host

    class Suite(  # type: ignore[misc]
        module.TestDistBackend, module.DistributedTest._DistTestBase
    ):
        at_least = ranks
        meeting: Any = None

        def setUp(self) -> None:
            test = getattr(self, self._testMethodName)
            os.environ["WORLD_SIZE"] = str(max(self.at_least, getattr(test, "ranks", 2)))
            os.environ["BACKEND"] = str(module.BACKEND)
            super().setUp()
            module.INIT_METHOD = os.environ["INIT_METHOD"]
            # A fork has PyTorch already: importing it takes longer than most tests.
            fork = torch.multiprocessing.get_context("fork")
            type(self).meeting = fork.Barrier(int(self.world_size))
            self._start_processes(fork.Process)

        def _barrier(self, wait_for: int = 0, timeout: float = 0) -> None:
            # PyTorch's looks at files ten times a second, and waits 10 s.
            self.meeting.wait(TIMEOUT_S)

        @classmethod
        def _run(cls, rank: int, test_name: str, *rest: Any, **more: Any) -> None:
            # Objects of the tests are pickled by their module's name.
            sys.modules[TESTS] = module
            with contextlib.ExitStack() as stack:
                if gpus or getattr(getattr(cls, test_name), "gpus", False):
                    stack.enter_context(gpus_are_the_host(module))
                super()._run(rank, test_name, *rest, **more)

        def _check_return_codes(self, fn: Any, elapsed_time: float) -> None:
            super()._check_return_codes(fn, elapsed_time)
            # PyTorch looks at rank 0 alone.
            codes = [process.exitcode for process in self.processes]
            self.assertEqual(len(set(codes)), 1, f"the ranks ended with {codes}")

    return Suite


def skips(test: unittest.TestCase) -> bool:
    """Says whether PyTorch skips a test without running it."""
    return hasattr(getattr(test, test._testMethodName), "__unittest_skip__")


def all_tests(backend: str) -> Dict[str, unittest.TestCase]:
    """Returns each test once, of the first variant that does not skip it."""
    found: Dict[str, unittest.TestCase] = {}
    for like, ranks in VARIANTS:
        case = suite_class(variant(like, ranks, backend), ranks, gpus=like == "nccl")
        for name in unittest.TestLoader().getTestCaseNames(case):
            test = case(name)
            if name not in found or (skips(found[name]) and not skips(test)):
                found[name] = test
    return dict(sorted(found.items()))


@contextlib.contextmanager
def captured(enabled: bool) -> Iterator[List[str]]:
    """Keeps what all processes write, unless it is wanted at once."""
    said: List[str] = []
    if not enabled:
        yield said
        return
    with tempfile.TemporaryFile("w+", errors="replace") as file:
        saved = [os.dup(1), os.dup(2)]
        sys.stdout.flush()
        sys.stderr.flush()
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
        try:
            yield said
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os.dup2(saved[0], 1)
            os.dup2(saved[1], 2)
            for one in saved:
                os.close(one)
            file.seek(0)
            said.append(file.read())


def run_one(test: unittest.TestCase, verbose: bool) -> Outcome:
    result = unittest.TestResult()
    with captured(not verbose) as said:
        test.run(result)
    if result.skipped:
        return Outcome("skipped", "".join(said) + result.skipped[0][1])
    bad = result.failures + result.errors
    return Outcome("failed", "".join(said) + bad[0][1]) if bad else Outcome("passed")


def spent() -> float:
    """Returns the seconds of processor time of this process and its children so far."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def run_all(tests: Dict[str, unittest.TestCase], listed: Dict[str, Listed], verbose: bool) -> int:
    """Runs the tests and prints what became of them; returns the exit code."""
    count: Counter = Counter()
    objections = []
    for name, test in tests.items():
        before = spent()
        line = listed.get(name)
        outcome = run_one(test, verbose)
        wrong = objection(outcome, line)
        if wrong:
            objections.append(f"{name}: {wrong}")
        count[line.kind if line else outcome.what] += 1
        why = (
            f"{line.kind}: {line.why}" if line else outcome.summary() if outcome.text else "passed"
        )
        print(f"{outcome.what} {name} in {spent() - before:.1f} s: {why}", flush=True)
    for one in objections:
        print("unexpected:", one)
    print(f"{len(tests)} tests in {spent():.0f} s of processor time: {dict(sorted(count.items()))}")
    return 1 if objections else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--backend", default="lockstep", help="for a comparison: gloo")
    parser.add_argument("--match", default="", help="only the tests that this matches")
    parser.add_argument("--shard", default="0/1", help="every Nth test from the Ith on")
    parser.add_argument("--verbose", action="store_true", help="show what the ranks write")
    options = parser.parse_args()
    listed = read_list(SKIPS.read_text())
    with tempfile.TemporaryDirectory(prefix="lockstep-suite-") as folder:
        os.environ["TMPDIR"] = tempfile.tempdir = folder
        prepare()
        import lockstep.torch  # noqa: F401

        tests = all_tests(options.backend)
        unknown = sorted(listed.keys() - tests.keys())
        if unknown:
            print(f"unexpected: {SKIPS.name} lists what PyTorch does not have:", *unknown)
            return 1
        shard, _, shards = options.shard.partition("/")
        names = [name for name in tests if re.search(options.match, name)]
        gc.freeze()  # The forks share what is there.
        chosen = names[int(shard) :: int(shards)]
        return run_all({name: tests[name] for name in chosen}, listed, options.verbose)


if __name__ == "__main__":
    try:
        import expecttest  # noqa: F401
        import torch.distributed  # noqa: F401
    except ImportError as error:
        print(f"skipped: {error}; tests/frameworks/setup makes an environment that has it")
        sys.exit(77)
    code = main()
    sys.stdout.flush()
    os._exit(code)  # At exit, packages of PyTorch report hundreds of leaks.
