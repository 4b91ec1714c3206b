"""The files by which `lockstep jobs profile` asks a joined program for a trace.

In a directory that only their user may enter: `KEY.ready`, of a program that has
joined, `KEY.request` and `KEY.answer`. KEY is made of the rank's
LOCKSTEP_LINK_FILE. A file is read only if this user alone may write it.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import stat
from dataclasses import dataclass
from typing import Any, Optional

# Of the files. Another number is refused with a sentence.
VERSION = 1
# Not by $TMPDIR: the program may have changed it.
PARENTS = ("/tmp", "/var/tmp", "/dev/shm")
MOST_BYTES = 64 << 10
# Of a trace.
MOST_SECONDS = 300


def folder_in(parent: str) -> str:
    """The user's directory there. `jobs profile` has the same rule in its shell script."""
    return f"{parent}/lockstep-{os.geteuid()}"


def private(folder: str) -> bool:
    """Whether it is a directory of this user that nobody else may enter."""
    try:
        status = os.lstat(folder)
    except OSError:
        return False
    own = stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid()
    return own and status.st_mode & 0o077 == 0


def make_folder() -> Optional[str]:
    """Returns the user's directory. None: no parent is writable, or others were there first."""
    for parent in PARENTS:
        folder = folder_in(parent)
        try:
            os.mkdir(folder, 0o700)
        except FileExistsError:
            pass
        except OSError:
            continue
        if private(folder):
            return folder
    return None


def start_of(pid: int) -> str:
    """When the process started, in ticks since the boot. "": it has ended."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            fields = file.read().rpartition(")")[2].split()
    except OSError:
        return ""
    # A zombie has ended.
    return "" if fields[0] in "ZX" else fields[19]


def pid_namespace() -> str:
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return ""


def write(path: str, text: str) -> None:
    """Replaces the file; a reader never sees half of it."""
    new = f"{path}.{secrets.token_hex(8)}.new"
    try:
        _create(new, text)
        os.replace(new, path)
    except OSError:
        remove(new)
        raise


def write_first(path: str, text: str) -> bool:
    """Writes the file, unless there is one: then it returns False."""
    new = f"{path}.{secrets.token_hex(8)}.new"
    try:
        _create(new, text)
        os.link(new, path)
    except FileExistsError:
        return False
    finally:
        remove(new)
    return True


def _create(path: str, text: str) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(text)


def read(path: str) -> Optional[str]:
    """Returns the file's text. None: there is none that this user alone may write."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    with os.fdopen(handle, "rb") as file:
        status = os.fstat(handle)
        own = stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid()
        if not own or status.st_mode & 0o022 or status.st_size > MOST_BYTES:
            return None
        return file.read(MOST_BYTES + 1).decode("utf-8", "replace")


def read_object(path: str) -> Optional[dict[str, Any]]:
    """Returns the file's JSON object. None: it has none."""
    try:
        value = json.loads(read(path) or "null")
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def remove(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:
        pass


class Mailbox:
    """The files of one rank in `folder`, which is private()."""

    def __init__(self, folder: str, link_file: str) -> None:
        self.folder = folder
        self.link_file = link_file
        stem = os.path.join(folder, hashlib.sha256(os.fsencode(link_file)).hexdigest()[:24])
        self.ready = stem + ".ready"
        self.request = stem + ".request"
        self.answer = stem + ".answer"


@dataclass(frozen=True)
class Ready:
    """A program that has joined. Each attribute is a line of the file."""

    link_file: str
    # What runs this module: `jobs profile` starts it.
    executable: str
    package: str
    pid: int
    start: str
    namespace: str

    def text(self) -> str:
        return "".join(f"{value}\n" for value in vars(self).values())

    def alive(self) -> bool:
        return start_of(self.pid) == self.start != ""


def read_ready(path: str) -> Optional[Ready]:
    lines = (read(path) or "").split("\n")
    if len(lines) != 7 or not lines[3].isdigit():
        return None
    return Ready(lines[0], lines[1], lines[2], int(lines[3]), lines[4], lines[5])
