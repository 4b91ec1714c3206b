"""Files of a program."""

from __future__ import annotations

import os
from typing import Union


def size(path: Union[str, os.PathLike[str]]) -> int:
    """Bytes of the file, or of all files below the directory."""
    if not os.path.isdir(path):
        return os.path.getsize(path)
    return sum(
        os.path.getsize(os.path.join(folder, name))
        for folder, _, names in os.walk(path)
        for name in names
    )
