"""mypy --strict and ruff find nothing in the package, the tests and the examples."""

import os
import pathlib
import subprocess
import sys
import unittest

SOURCE = pathlib.Path(os.environ.get("LOCKSTEP_SOURCE") or pathlib.Path(__file__).parents[2])
PACKAGE = SOURCE / "sdk" / "python"
WARM = SOURCE / "worker" / "warm"
# What PYTHONPATH names: the package as it was built, with its version.
BUILT = pathlib.Path(os.environ["PYTHONPATH"].split(os.pathsep)[0])


class LintTest(unittest.TestCase):
    def check(self, *words: object) -> None:
        done = subprocess.run(
            [sys.executable, "-m", *map(str, words)],
            cwd=BUILT,
            capture_output=True,
            text=True,
            check=False,
        )
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_mypy(self) -> None:
        config = PACKAGE / "pyproject.toml"
        self.check("mypy", "--config-file", config, "--ignore-missing-imports", "lockstep")
        # A program of its own, that the worker daemon starts.
        self.check(
            "mypy", "--config-file", config, "--ignore-missing-imports", WARM / "warm_start.py"
        )

    def test_ruff(self) -> None:
        tests = SOURCE / "tests"
        ours = (tests / name for name in ("chaos", "gpu", "python"))
        folders = (PACKAGE, *ours, WARM, SOURCE / "examples")
        self.check("ruff", "check", "--no-cache", "--config", PACKAGE / "pyproject.toml", *folders)
        self.check(
            "ruff", "format", "--no-cache", "--check", "--config", PACKAGE / "pyproject.toml",
            *folders,
        )  # fmt: skip


if __name__ == "__main__":
    unittest.main()
