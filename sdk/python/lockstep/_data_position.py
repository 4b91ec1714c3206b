"""Positions in the data, each kept in a file beside the checkpoint it belongs to.

The file is the checkpoint's, not the coordinator's: it is found wherever the
checkpoint is, for an older checkpoint too, and without lockstep's daemons. It has
the step, so a file of an earlier checkpoint at the same path is not taken.
"""

from __future__ import annotations

import json
import os
from typing import Any, Union

from .errors import Error, InvalidArgumentError

Path = Union[str, "os.PathLike[str]"]

MOST_BYTES = 64 << 10
_FILE = "lockstep-data-position.json"


def file_of(checkpoint: Path) -> str:
    """Where the position is: in a checkpoint that is a directory, else beside it."""
    path = os.fspath(checkpoint)
    if os.path.isdir(path):
        return os.path.join(path, "." + _FILE)
    folder, name = os.path.split(path)
    return os.path.join(folder, f".{name}.{_FILE}")


def check(value: Any) -> None:
    """Refuses what JSON cannot hold, or what is too long for a position."""
    try:
        text = json.dumps(value, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise InvalidArgumentError(
            f"a data position is what JSON can hold (numbers, texts, lists, dicts): {error}",
            code="INVALID_ARGUMENT",
        ) from error
    if len(text) > MOST_BYTES:
        raise InvalidArgumentError(
            f"a data position has at most {MOST_BYTES} bytes as JSON, not {len(text)}",
            code="INVALID_ARGUMENT",
        )


def write(checkpoint: Path, step: int, value: Any) -> None:
    """Keeps the position; a crash leaves the file before or the whole new one."""
    check(value)
    path = file_of(checkpoint)
    with open(path + ".new", "w", encoding="utf-8") as file:
        json.dump({"step": step, "data_position": value}, file, allow_nan=False)
        file.flush()
        os.fsync(file.fileno())
    os.replace(path + ".new", path)
    folder = os.open(os.path.dirname(path) or ".", os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def read(checkpoint: Path, step: int) -> Any:
    """Returns the position of that checkpoint; None: it has none."""
    path = file_of(checkpoint)
    try:
        with open(path, encoding="utf-8") as file:
            kept = json.load(file)
        of_step, value = kept["step"], kept["data_position"]
    except FileNotFoundError:
        return None
    except (ValueError, TypeError, KeyError) as error:
        raise Error(
            f"{path} is not a data position that lockstep wrote ({error!r}): remove it, and "
            "the checkpoint has none",
            code="DATA_LOSS",
        ) from error
    return value if of_step == step else None
