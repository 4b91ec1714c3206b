"""What this host has: GPUs, driver, NCCL, PyTorch."""

from __future__ import annotations

import os
import pathlib
import platform
import subprocess
from typing import Any, Dict, List, Optional

FOLDER = pathlib.Path(__file__).resolve().parent.parent
VARIABLE = "LOCKSTEP_NCCL_LIBRARY"


def nvidia_smi(*fields: str) -> Optional[List[List[str]]]:
    """The values of each GPU, by nvidia-smi; None where it cannot say."""
    try:
        done = subprocess.run(
            ["nvidia-smi", f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits"],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    if done.returncode:
        return None
    return [[word.strip() for word in line.split(",")] for line in done.stdout.splitlines()]


def nccl_library() -> Optional[str]:
    """The file of NCCL that PyTorch has loaded; None: NCCL is a part of PyTorch's own.

    It is that of the wheel nvidia-nccl, or of the system; LOCKSTEP_NCCL_LIBRARY names
    another one.
    """
    named = os.environ.get(VARIABLE)
    if named:
        return named
    for line in pathlib.Path("/proc/self/maps").read_text().splitlines():
        path = line.split(maxsplit=5)[-1]
        if "/libnccl.so" in path:
            return path
    return None


def nccl_version() -> str:
    import torch

    try:
        return ".".join(map(str, torch.cuda.nccl.version()))
    except (AttributeError, RuntimeError):
        return "none"


def facts() -> Dict[str, Any]:
    """Returns what a reader of the results must know."""
    import torch

    version, commit = (FOLDER / "version").read_text().split("\n")[:2]
    smi = nvidia_smi("driver_version") or [["unknown"]]
    gpus = [
        f"{one.name}, {one.total_memory >> 20} MiB"
        for one in map(torch.cuda.get_device_properties, range(torch.cuda.device_count()))
    ]
    return {
        "lockstep": f"{version} ({commit})",
        "gpus": gpus,
        "driver": smi[0][0],
        "torch": torch.__version__,
        "cuda": torch.version.cuda or "none",
        "nccl": nccl_version(),
        "nccl_library": nccl_library() or f"none: set {VARIABLE}",
        "python": platform.python_version(),
        "libc": " ".join(platform.libc_ver()),
        "kernel": platform.release(),
        "cores": len(os.sched_getaffinity(0)),
    }
