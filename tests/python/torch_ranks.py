"""Runs a function of a test file in several ranks, each a process.

A test file calls `run(__file__, "name", ranks)`; its main calls `main()`, which
runs that function where a process is a rank.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import unittest
from types import WrapperDescriptorType
from typing import Any, Callable, Dict, List, Optional, Tuple

TIMEOUT_S = 240
NOISE = ("init.cpp", "DaemonConfigLoader", "IpcFabric", "CUDA initialization")


class Ranks:
    """The processes of one test."""

    def __init__(self, file: str, name: str, ranks: int, **environment: str) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="lockstep-torch-")
        self.processes = [
            subprocess.Popen(
                [sys.executable, file],
                env={
                    **os.environ,
                    "RANK_PROGRAM": name,
                    "RANK": str(rank),
                    "LOCAL_RANK": str(rank),
                    "WORLD_SIZE": str(ranks),
                    "RANK_FOLDER": self._folder.name,
                    "OMP_NUM_THREADS": "1",
                    "PYTHONPATH": os.pathsep.join(
                        [
                            os.path.dirname(os.path.abspath(__file__)),
                            os.environ.get("PYTHONPATH", ""),
                        ]
                    ).rstrip(os.pathsep),
                    **environment,
                },
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            for rank in range(ranks)
        ]

    def wait(self) -> List[str]:
        """Returns what each rank printed."""
        try:
            return [
                "\n".join(
                    line
                    for line in process.communicate(timeout=TIMEOUT_S)[0].splitlines()
                    if not any(noise in line for noise in NOISE)
                )
                for process in self.processes
            ]
        finally:
            for process in self.processes:
                if process.poll() is None:
                    process.kill()
                    process.communicate()
            self._folder.cleanup()


def run(test: unittest.TestCase, file: str, name: str, ranks: int, **more: str) -> List[str]:
    """Runs the ranks; all of them must end with 0."""
    started = Ranks(file, name, ranks, **more)
    printed = started.wait()
    for rank, process in enumerate(started.processes):
        test.assertEqual(process.returncode, 0, f"{name}, rank {rank} of {ranks}:\n{printed[rank]}")
    return printed


def start(
    backend: str = "lockstep", timeout_s: float = 60, store: str = "store", **more: Any
) -> int:
    """Makes the default process group of this rank; returns the rank.

    A second group of the same processes needs another name for its store.
    """
    from datetime import timedelta

    import torch.distributed as dist

    find()
    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    dist.init_process_group(
        backend,
        init_method=f"file://{os.environ['RANK_FOLDER']}/{store}",
        rank=rank,
        world_size=ranks,
        timeout=timedelta(seconds=timeout_s),
        **more,
    )
    return rank


def find() -> None:
    """Where this PyTorch does not find the backend by itself, imports it."""
    if not finds_backends():
        import lockstep.torch  # noqa: F401


def version() -> Tuple[int, int]:
    """PyTorch's: (2, 15)."""
    import torch

    major, minor = torch.__version__.split(".")[:2]
    return int(major), int(minor)


def finds_backends() -> bool:
    """Whether this PyTorch finds backends by the entry points of packages."""
    import torch.distributed as dist

    return hasattr(dist.Backend, "_ensure_backend_registered")


def takes_backends() -> bool:
    """Whether a backend may be a class in Python; else a whole process group is one."""
    from torch._C._distributed_c10d import Backend

    return not isinstance(vars(Backend)["__init__"], WrapperDescriptorType)


def main(programs: Dict[str, Callable[[], Optional[int]]]) -> None:
    """A rank's program, or the tests."""
    name = os.environ.get("RANK_PROGRAM")
    if name:
        sys.exit(programs[name]() or 0)
    try:
        import torch.distributed  # noqa: F401
    except ImportError:
        print("skipped: there is no PyTorch here")
        sys.exit(77)
    unittest.main()
