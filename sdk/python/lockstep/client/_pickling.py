"""How a function goes to the ranks: a package with its pickle and the runner."""

from __future__ import annotations

import collections
import io
import json
import linecache
import os
import pkgutil
import site
import sys
import sysconfig
from types import CodeType, ModuleType
from typing import Any, Callable

from lockstep.client import _call, _package
from lockstep.errors import Error, InvalidArgumentError

MODULE = "_lockstep_call"
CODE = f"import {MODULE}; {MODULE}.main()"
# Of source lines for tracebacks, in characters.
_MOST_SOURCE = 1 << 20


def _installed_paths() -> tuple[str, ...]:
    names = ("stdlib", "platstdlib", "purelib", "platlib")
    paths = [sysconfig.get_paths().get(name, "") for name in names]
    paths.append(site.getusersitepackages())
    return tuple(os.path.realpath(path) + "/" for path in paths if path)


def _own_module(func: Any, packages: list[str]) -> ModuleType | None:
    """Returns the user's module that has ``func``, if it has to travel too.

    One that is installed, or that a package brings, is imported on the nodes.
    """
    top = (getattr(func, "__module__", None) or type(func).__module__).partition(".")[0]
    module = sys.modules.get(top)
    file = getattr(module, "__file__", None)
    if top == "__main__" or module is None or not file:
        return None
    real = os.path.realpath(file)
    brought = tuple(os.path.realpath(path).rstrip("/") + "/" for path in packages)
    return None if real.startswith(_installed_paths() + brought) else module


def _cloudpickle() -> Any:
    try:
        import cloudpickle  # type: ignore[import-untyped,unused-ignore]
    except ImportError as error:
        raise Error(
            "train needs cloudpickle: pip install cloudpickle",
            code="FAILED_PRECONDITION",
        ) from error
    return cloudpickle


def pickle_call(func: Callable[..., Any], args: Any, kwargs: Any, packages: list[str]) -> bytes:
    """Pickles the call. InvalidArgumentError says what cannot be pickled."""
    cloudpickle = _cloudpickle()
    module = _own_module(func, packages)
    registered = False
    try:
        if module and module.__name__ not in cloudpickle.list_registry_pickle_by_value():
            cloudpickle.register_pickle_by_value(module)
            registered = True
        return _dumps(cloudpickle, (func, tuple(args), dict(kwargs or {})))
    except Exception as error:
        raise InvalidArgumentError(
            f"func: the function, its arguments or what it refers to cannot be pickled: {error}",
            code="INVALID_ARGUMENT",
        ) from error
    finally:
        if registered:
            cloudpickle.unregister_pickle_by_value(module)


def _dumps(cloudpickle: Any, value: Any) -> bytes:
    """As cloudpickle.dumps, but code keeps the name of its file, for tracebacks."""
    table = cloudpickle.Pickler.dispatch_table

    def reduce_code(code: CodeType) -> Any:
        make, args = table[CodeType](code)
        name = code.co_filename
        return make, tuple(name if arg == "<dynamic-code>" else arg for arg in args)

    class Pickler(cloudpickle.Pickler):  # type: ignore[misc,unused-ignore]
        dispatch_table = collections.ChainMap({CodeType: reduce_code}, table)  # noqa: RUF012

    with io.BytesIO() as file:
        Pickler(file).dump(value)
        return file.getvalue()


def _source_of(func: Any) -> dict[str, str]:
    """Returns the file of ``func``, which the nodes may not have: name -> text."""
    code = getattr(func, "__code__", None)
    if code is None:
        return {}
    text = "".join(linecache.getlines(code.co_filename))
    return {code.co_filename: text} if 0 < len(text) <= _MOST_SOURCE else {}


def pack_call(func: Callable[..., Any], payload: bytes, workdir: str | None) -> _package.Packed:
    """Makes the package of a call."""
    cloudpickle = _cloudpickle()
    header = json.dumps(
        {
            "python": _call.python_version(),
            "cloudpickle": cloudpickle.__version__,
            "workdir": workdir,
            "source": _source_of(func),
        }
    )
    runner = pkgutil.get_data("lockstep.client", "_call.py")
    if runner is None:
        raise Error("this copy of lockstep is not complete: _call.py is not there")
    files = {MODULE + ".py": runner, _call.CALL_FILE: header.encode() + b"\n" + payload}
    folder = os.path.dirname(os.path.abspath(cloudpickle.__file__))
    for name in os.listdir(folder):
        if name.endswith(".py"):
            with open(os.path.join(folder, name), "rb") as file:
                files[f"{_call.BROUGHT}/cloudpickle/{name}"] = file.read()
    return _package.pack_files(files, "function.tar.gz")
