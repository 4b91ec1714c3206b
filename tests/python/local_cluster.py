"""A cluster of this machine for the tests of one module."""

from __future__ import annotations

import os
import pathlib
import subprocess
import tempfile
import unittest

SOURCE = pathlib.Path(os.environ.get("LOCKSTEP_SOURCE") or pathlib.Path(__file__).parents[2])
FRAMEWORKS = pathlib.Path(os.environ.get("LOCKSTEP_FRAMEWORKS", "/nonexistent"))
BIN = os.environ.get("LOCKSTEP_BIN") or str(SOURCE / "build/release/bin")
# Seconds: ranks import a framework on a loaded machine.
LONG = 240
# Of ranks that import the package and a framework.
VARIABLES = {
    "PYTHONPATH": os.environ["PYTHONPATH"],
    "PYTHONDONTWRITEBYTECODE": "1",
    "TF_CPP_MIN_LOG_LEVEL": "2",
    "JAX_PLATFORMS": "cpu",
    "OMP_NUM_THREADS": "1",
}


def python(framework: str) -> str:
    """The interpreter of an environment of tests/frameworks/setup."""
    return str(FRAMEWORKS / framework / "bin" / "python")


def local(*args: str) -> None:
    """`lockstep local`."""
    subprocess.run([BIN + "/lockstep", "local", *args], check=True, capture_output=True)


def logs() -> list[pathlib.Path]:
    """Those of the workers of the cluster that was started last."""
    folder = pathlib.Path(os.environ["LOCKSTEP_CONFIG"]).parent
    return sorted(folder.glob("cluster/worker-*/log"))


def start(*options: str) -> None:
    """Starts a cluster, which ends with the module; for setUpModule."""
    folder = tempfile.mkdtemp(prefix="lockstep-python-test-")
    os.environ["LOCKSTEP_CONFIG"] = folder + "/config.yaml"
    unittest.addModuleCleanup(subprocess.run, ["rm", "-rf", folder], check=True)
    cluster = folder + "/cluster"
    unittest.addModuleCleanup(local, "down", "--clean", "--yes", "--dir", cluster)
    local("up", "--dir", cluster, "--cpus", "8", "--timeout", "90", *options)
