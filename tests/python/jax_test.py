"""JAX over lockstep's collectives: operations, types, parts of a mesh, errors.

PYTHONPATH=build/release/python python3 tests/python/jax_test.py
"""

from __future__ import annotations

import mmap
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import tempfile
import unittest

RANKS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "jax_ranks.py")
TIMEOUT_S = 240


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


class Ranks:
    """Processes of jax_ranks.py, which find each other as a job's do."""

    def __init__(
        self,
        test: unittest.TestCase,
        name: str,
        ranks: int,
        only_last: dict[str, str] | None = None,
        **more: str,
    ) -> None:
        self._test = test
        self._name = name
        folder = tempfile.TemporaryDirectory(prefix="lockstep-jax-")
        test.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        ports = [str(free_port()) for _ in range(2)]
        self.processes = [
            subprocess.Popen(
                [sys.executable, RANKS, name],
                env={
                    **os.environ,
                    "RANK": str(rank),
                    "WORLD_SIZE": str(ranks),
                    "LOCAL_WORLD_SIZE": str(ranks),
                    "MASTER_ADDR": "127.0.0.1",
                    "MASTER_PORT": ports[0],
                    "JAX_COORDINATOR_ADDRESS": "127.0.0.1:" + ports[1],
                    "JAX_PLATFORMS": "cpu",
                    "OMP_NUM_THREADS": "1",
                    "RANK_FOLDER": folder.name,
                    **more,
                    **((only_last or {}) if rank == ranks - 1 else {}),
                },
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            for rank in range(ranks)
        ]
        test.addCleanup(self._kill)

    def printed(self, rank: int) -> str:
        return self.processes[rank].communicate(timeout=TIMEOUT_S)[0]

    def succeed(self) -> list[str]:
        """All of them end with 0; returns what they printed."""
        printed = [self.printed(rank) for rank in range(len(self.processes))]
        for rank, process in enumerate(self.processes):
            self._test.assertEqual(
                process.returncode, 0, f"{self._name}, rank {rank}:\n{printed[rank]}"
            )
        return printed

    def _kill(self) -> None:
        for process in self.processes:
            process.kill()  # Nothing, where it has ended.
            process.wait()
            process.stdout.close()


class JaxTest(unittest.TestCase):
    def test_operations(self) -> None:
        Ranks(self, "operations", 2).succeed()

    def test_three_ranks(self) -> None:
        Ranks(self, "operations", 3).succeed()

    def test_parts_of_a_mesh(self) -> None:
        Ranks(self, "parts", 4).succeed()

    def test_training(self) -> None:
        printed = Ranks(self, "training", 2).succeed()
        ends = [re.search(r"parameters (\w+) loss (\S+)", text).groups() for text in printed]
        self.assertEqual(ends[0], ends[1], "the ranks' parameters differ")

    def test_what_is_not_there_is_refused(self) -> None:
        Ranks(self, "refusals", 2).succeed()

    def test_a_killed_rank_is_named(self) -> None:
        ranks = Ranks(self, "killed", 2)
        line = ranks.processes[1].stdout.readline()
        while "reduced" not in line:
            self.assertNotEqual(line, "", ranks.printed(1))
            line = ranks.processes[1].stdout.readline()
        ranks.processes[1].send_signal(signal.SIGKILL)
        printed = ranks.printed(0)
        self.assertEqual(ranks.processes[0].returncode, 0, printed)
        self.assertRegex(printed, r"lost: .*lockstep: .*rank 1")

    def test_one_variable_is_missing(self) -> None:
        for text in Ranks(self, "cannot_form", 2, MASTER_PORT="").succeed():
            self.assertIn("lockstep: the variable MASTER_PORT is not set", text)

    def test_ranks_of_two_jobs(self) -> None:
        ranks = Ranks(self, "cannot_form", 2, only_last={"LOCKSTEP_JOB": "other"})
        printed = ranks.printed(1)
        self.assertEqual(ranks.processes[1].returncode, 0, printed)
        self.assertRegex(printed, r'rank 0 is of "/.*, and this rank of "other/')

    def test_several_devices_of_a_process(self) -> None:
        for text in Ranks(self, "cannot_form", 2, JAX_NUM_CPU_DEVICES="2").succeed():
            self.assertRegex(text, "refused: .*Each process must have one CPU device")

    def test_use_comes_before_jax(self) -> None:
        code = (
            "import jax, lockstep.jax\n"
            "try:\n    lockstep.jax.use_collectives()\n"
            "except lockstep.Error as error:\n    print(error.code, error)\n"
        )
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        )
        self.assertIn("FAILED_PRECONDITION", done.stdout)
        self.assertIn("before the first import of jax", done.stdout)

    def test_the_library_has_every_name_that_jaxlib_asks_for(self) -> None:
        # jaxlib ends the process where one is missing.
        import jaxlib

        import lockstep

        library = pathlib.Path(lockstep.__file__).parent / "lib" / "liblockstep_mpi.so"
        shown = subprocess.run(
            ["nm", "--dynamic", "--defined-only", "--format=posix", library],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        names = {line.split()[0] for line in shown.splitlines()}
        with (pathlib.Path(jaxlib.__file__).parent / "libjax_common.so").open("rb") as file:
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as text:
                wanted = set(re.findall(rb"\0(MPIX?ABI_\w+|mpiwrapper_\w+)(?=\0)", text))
        wanted = {name.decode() for name in wanted}
        self.assertGreater(len(wanted), 500)
        self.assertEqual(sorted(wanted - names), [])


if __name__ == "__main__":
    try:
        import jax  # noqa: F401
    except ImportError:
        print("skipped: there is no jax")
        sys.exit(77)
    unittest.main()
