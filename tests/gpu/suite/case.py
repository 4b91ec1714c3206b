"""What a case is given, and how it runs programs."""

from __future__ import annotations

import dataclasses
import pathlib
import subprocess
from typing import List, Tuple

FOLDER = pathlib.Path(__file__).resolve().parent.parent


@dataclasses.dataclass
class Context:
    """results: the folder for files. gpus: how many there are; 0 in a dry run."""

    results: pathlib.Path
    dry_run: bool
    gpus: int

    def log(self, name: str) -> pathlib.Path:
        return self.results / f"{name}.log"


def program(name: str) -> str:
    """The path of a program of this folder."""
    return str(FOLDER / "bin" / name)


def run(context: Context, name: str, command: List[str], timeout: float) -> Tuple[int, str]:
    """Runs a command; returns its exit code and all that it printed.

    That is kept in NAME.log. A command that does not end has the code 124.
    """
    with open(context.log(name), "w") as log:
        try:
            code = subprocess.run(
                command, stdout=log, stderr=subprocess.STDOUT, timeout=timeout, check=False
            ).returncode
        except subprocess.TimeoutExpired:
            code = 124
    return code, context.log(name).read_text(errors="replace")


def tail(text: str, lines: int = 3) -> str:
    """The last lines that say something, as one."""
    return " | ".join([line.strip() for line in text.splitlines() if line.strip()][-lines:])
