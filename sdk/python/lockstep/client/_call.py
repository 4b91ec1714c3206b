"""Runs a function that a client sent; the first code of its own on a rank.

The client packs this file as ``_lockstep_call.py`` with the function and with
cloudpickle. So a node needs Python alone. The value or the exception goes into
a file of the task's directory, which the coordinator hands to the client.
"""

from __future__ import annotations

import json
import linecache
import os
import pickle
import platform
import re
import sys
import traceback
from typing import Any, NoReturn

CALL_FILE = "_lockstep_call.bin"
# The folder, beside this file, of the client's cloudpickle.
BROUGHT = "_lockstep_call_brought"
RESULTS = "lockstep-results"


def python_version() -> str:
    version = sys.version_info
    return f"{platform.python_implementation()} {version[0]}.{version[1]}"


def read_file(path: str) -> tuple[dict[str, Any], bytes]:
    """Returns the header, which is a line of JSON, and the pickle after it."""
    with open(path, "rb") as file:
        header = json.loads(file.readline().decode())
        return header, file.read()


def write_file(path: str, header: dict[str, Any], payload: bytes) -> None:
    os.makedirs(os.path.dirname(path), exist_ok=True)
    part = path + ".part"
    with open(part, "wb") as file:
        file.write(json.dumps(header).encode() + b"\n")
        file.write(payload)
    os.replace(part, path)


def words(error: BaseException) -> str:
    return "".join(traceback.format_exception_only(type(error), error)).strip()


def mounted_directory() -> str:
    """Returns the task's directory in a container, which starts elsewhere.

    It is mounted at the path that it has on the host, which no variable names.
    """
    with open("/proc/self/mounts") as file:
        for line in file:
            path = line.split()[1]
            if re.search(r"/work/[^/]+/(chief|worker)-[0-9]+$", path):
                return re.sub(r"\\([0-7]{3})", lambda m: chr(int(m[1], 8)), path)
    return os.environ.get("HOME", os.getcwd())


class Rank:
    """The call of this process, and where its outcome goes."""

    def __init__(self, place: str) -> None:
        start = mounted_directory() if place == "image" else os.getcwd()
        generation = os.environ.get("LOCKSTEP_GENERATION", "0")
        rank = os.environ.get("LOCKSTEP_RANK", "0")
        self.path = os.path.join(start, RESULTS, f"{generation}.{rank}")
        self.header = {
            "rank": int(rank),
            "host": os.environ.get("HOSTNAME") or platform.node(),
            "python": python_version(),
        }

    def put(self, kind: str, payload: bytes = b"", **fields: str) -> None:
        write_file(self.path, dict(self.header, kind=kind, **fields), payload)

    def fail(self, error: BaseException, kind: str = "error") -> NoReturn:
        """Stores an exception, prints it, and ends the process with 1."""
        # The first frame is main() of this file.
        tb = error.__traceback__
        tb = tb.tb_next if tb is not None and tb.tb_next is not None else tb
        text = "".join(traceback.format_exception(type(error), error, tb))
        try:
            payload = dumps(error)
        except Exception:  # noqa: BLE001 - the client has words and traceback.
            payload = b""
        fields = {"type": type(error).__name__, "message": words(error)}
        self.put(kind, payload, traceback=text, **fields)
        write_error_file(words(error), text)
        sys.stderr.write(text)
        sys.stderr.flush()
        sys.exit(1)

    def keep(self, value: Any) -> None:
        try:
            payload = dumps(value)
        except Exception as error:  # noqa: BLE001 - reduce() of a user's class.
            name = f"{type(value).__module__}.{type(value).__qualname__}"
            sys.stderr.write(
                f"the value of rank {self.header['rank']}, of type {name}, cannot "
                f"be pickled: {words(error)}\n"
            )
            self.put("unpicklable", type=name, message=words(error))
            return
        self.put("value", payload)


def dumps(value: Any) -> bytes:
    import cloudpickle  # type: ignore[import-untyped,unused-ignore]

    data: bytes = cloudpickle.dumps(value)
    return data


def write_error_file(message: str, text: str) -> None:
    """Tells the worker daemon why, in the form of torchelastic's record()."""
    path = os.environ.get("TORCHELASTIC_ERROR_FILE")
    if not path:
        return
    extra = {"py_callstack": text}
    try:
        with open(path, "w") as file:
            json.dump({"message": {"message": message, "extraInfo": extra}}, file)
    except OSError:
        sys.stderr.write(f"cannot write {path}\n")


def take_cloudpickle(version: str) -> None:
    """Imports the node's cloudpickle if it is the client's version, else that."""
    try:
        import cloudpickle

        if cloudpickle.__version__ == version:
            return
        for name in [name for name in sys.modules if name.startswith("cloudpickle")]:
            del sys.modules[name]
    except ImportError:
        pass
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path.insert(0, os.path.join(here, BROUGHT))


def load() -> tuple[dict[str, Any], Any]:
    here = os.path.dirname(os.path.abspath(__file__))
    header, payload = read_file(os.path.join(here, CALL_FILE))
    if header["python"] != python_version():
        raise PythonMismatch(
            f"the client pickled the function by {header['python']}, but the rank's "
            f"interpreter {sys.executable} is {python_version()}: give python=, the "
            "path of one of the same version on the nodes"
        )
    take_cloudpickle(header["cloudpickle"])
    for name, text in header["source"].items():
        # Without a time, linecache does not look for the file, which may be
        # another one here.
        lines = text.splitlines(True)
        linecache.cache[name] = (len(text), None, lines, name)
    return header, pickle.loads(payload)


class PythonMismatch(Exception):
    """The function cannot be unpickled by this version of Python."""


def main() -> None:
    rank = Rank(sys.argv[1] if len(sys.argv) > 1 else "")
    try:
        header, (func, args, kwargs) = load()
        if header["workdir"]:
            os.chdir(header["workdir"])
            sys.path.insert(0, header["workdir"])
    except PythonMismatch as error:
        rank.fail(error, "refused")
    except Exception as error:  # noqa: BLE001 - unpickling runs users' code.
        rank.fail(error, "load")
    try:
        value = func(*args, **kwargs)
    except SystemExit as end:
        if end.code not in (None, 0):
            raise
        value = None
    except BaseException as error:  # noqa: BLE001 - all that the function raises.
        rank.fail(error)
    rank.keep(value)
