"""A Python that has imported what a program imports, and waits to be one of its ranks.

    PYTHON [OPTION...] /dev/fd/4 (SCRIPT | -m MODULE) [ARGUMENT...]

Descriptor 4 is this file, descriptor 3 a connected socket of SOCK_SEQPACKET. The
program is read, never run: _Imports follows its statements in their order and
imports what it imports from libraries, until a statement that may change what an
import does. One packet of JSON then says what was imported; one packet with the
descriptor of _Handover's file starts the program. At end of file this process ends
with 3, as where its state may not serve a rank: 0 would be the program's success.

The program finds what it finds in a process of its own. Whatever cannot be made so
starts it in the plain way, by exec. So this file imports only modules that every
Python has at its start or that no file can hide: a program may have its own json.py.
"""

from __future__ import annotations

import _functools
import _socket
import os
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import TracebackType
    from typing import Any, Callable, Dict, Iterator, List, Optional, Set, Tuple

    Call = Callable[[], object]

SOCKET, SELF = 3, 4
REFUSED = 3
MOST_BYTES, MOST_FILES, MOST_FILE_BYTES = 16384, 200, 2 << 20
# compile() returns the syntax tree, as the module ast has it.
ONLY_TREE = 0x400
# To import these opens a browser, prints, or starts a window.
SKIPPED = {"__future__", "__main__", "antigravity", "idlelib", "this", "turtledemo"}
# Objects that decide what an import finds and does.
DECIDING = {
    "os.environ", "os.environb", "sys.meta_path", "sys.modules", "sys.path", "sys.path_hooks",
    "sys.path_importer_cache",
}  # fmt: skip
WRITERS = {
    "__delitem__", "__ior__", "__setitem__", "append", "clear", "extend", "insert", "pop",
    "popitem", "remove", "reverse", "setdefault", "sort", "update",
}  # fmt: skip
DECIDING_CALLS = {
    "__import__", "ctypes.CDLL", "ctypes.PyDLL", "dotenv.load_dotenv", "eval",
    "eventlet.monkey_patch", "exec", "importlib.import_module", "importlib.reload",
    "importlib.util.module_from_spec", "os.chdir", "os.chroot", "os.fchdir", "os.fork",
    "os.forkpty", "os.putenv", "os.sched_setaffinity", "os.setns", "os.unsetenv", "os.unshare",
    "resource.setrlimit", "site.addsitedir", "site.main", "sys.setdlopenflags",
}  # fmt: skip
DECIDING_MODULES = ("ctypes.cdll.", "ctypes.pydll.", "gevent.monkey.", "imp.", "os.exec", "runpy.")
# What a library imports only when it is used, where the program has this word.
LATER = (("torch", b"optim", "torch._dynamo"),)
# Read when a process or a library starts, so a running one cannot take other values.
EARLY_VARIABLES = (b"PYTHON", b"LD_", b"LC_", b"MALLOC_", b"GLIBC_TUNABLES", b"LANG", b"TZ")
FUNCTIONS = ("FunctionDef", "AsyncFunctionDef")
MAIN_NAMES = (
    "__name__", "__doc__", "__package__", "__loader__", "__spec__", "__annotations__",
    "__builtins__", "__file__", "__cached__",
)  # fmt: skip


class _Stop(Exception):
    """A statement after which only the program itself imports."""


def _refuse(why: str) -> None:
    os.write(2, f"lockstep: no warm start: {why}\n".encode("utf-8", "backslashreplace"))
    os._exit(REFUSED)


class _Libraries:
    """Tells modules of this Python and of its site-packages from the program's own."""

    def __init__(self, own: List[str]) -> None:
        site: Any = sys.modules.get("site")
        # An old virtualenv has a module site of its own.
        installed: List[str] = getattr(site, "getsitepackages", list)()
        folders = [os.path.dirname(os.__file__), *installed]
        if getattr(site, "ENABLE_USER_SITE", False) and site.USER_SITE:
            folders.append(site.USER_SITE)
        self._folders = {os.path.abspath(folder) for folder in folders}
        paths = os.environ.get("PYTHONPATH", "")
        if sys.flags.ignore_environment:
            paths = ""
        own = [*own, *(path for path in paths.split(os.pathsep) if path)]
        self._own = {os.path.abspath(folder) for folder in own} - self._folders

    def has(self, spec: Any) -> bool:
        """Whether a module of the top level is a library's."""
        if spec.name == "lockstep" or spec.origin in ("built-in", "frozen"):
            return True
        places = list(spec.submodule_search_locations or [])
        if spec.origin and spec.has_location:
            places = [os.path.dirname(spec.origin) if places else spec.origin]
        return bool(places) and all(self._holds(os.path.dirname(place)) for place in places)

    def _holds(self, folder: str) -> bool:
        folder = os.path.abspath(folder)
        if folder in self._own:
            return False
        return any((folder + "/").startswith(library + "/") for library in self._folders)


class _Refuser:
    """In place of the loader of an own module: a library would run the program's code."""

    def create_module(self, spec: Any) -> None:
        _refuse(f"a library imports {spec.name}, which is the program's own")

    def exec_module(self, module: object) -> None:
        pass


class _Fence:
    """First in sys.meta_path while libraries are imported; then no own module runs."""

    def __init__(self, libraries: _Libraries) -> None:
        self._libraries = libraries

    def find_spec(self, name: str, path: Any = None, target: object = None) -> Any:
        if path is not None:
            return None
        spec = self.find(name)
        if spec is not None and spec.loader and spec.has_location:
            if not self._libraries.has(spec):
                spec.loader = _Refuser()
        return spec

    def find(self, name: str) -> Any:
        """A module of the top level, as the program will find it."""
        for finder in list(sys.meta_path):
            if finder is not self and hasattr(finder, "find_spec"):
                spec = finder.find_spec(name, None, None)
                if spec is not None:
                    return spec
        return None


class _File:
    """A source file of the program, and what its names mean."""

    def __init__(self, path: str, name: str, package: str, tree: Any) -> None:
        self.path, self.name, self.package, self.tree = path, name, package, tree
        # Of all its scopes: a name has one meaning in most programs.
        self.meanings: Dict[str, str] = {}
        for node in _nodes(tree):
            kind = _kind(node)
            if kind == "Import":
                for item in node.names:
                    top = item.name.partition(".")[0]
                    self.meanings[item.asname or top] = item.name if item.asname else top
            elif kind == "ImportFrom" and not node.level:
                for item in node.names:
                    self.meanings[item.asname or item.name] = f"{node.module}.{item.name}"
        for node in _nodes(tree):
            if _kind(node) == "Assign" and self.meaning(node.value) in DECIDING:
                for target in node.targets:
                    if _kind(target) == "Name":
                        self.meanings[target.id] = self.meaning(node.value)

    def meaning(self, node: Any) -> str:
        """os.environ, whatever the file calls it; "": it is not a name."""
        if _kind(node) == "Name":
            name: str = node.id
            return self.meanings.get(name, name)
        if _kind(node) == "Attribute":
            base = self.meaning(node.value)
            return f"{base}.{node.attr}" if base else ""
        return ""


def _kind(node: Any) -> str:
    return type(node).__name__


def _children(node: Any) -> Iterator[Any]:
    for field in node._fields:
        value = getattr(node, field, None)
        for one in value if isinstance(value, list) else (value,):
            if hasattr(one, "_fields"):
                yield one


def _nodes(root: Any) -> Iterator[Any]:
    left = [root]
    while left:
        node = left.pop()
        yield node
        left.extend(_children(node))


def _tree(path: str) -> Any:
    with open(path, "rb") as file:
        text = file.read(MOST_FILE_BYTES + 1)
    if len(text) > MOST_FILE_BYTES:
        raise _Stop(f"{path} is larger than {MOST_FILE_BYTES} bytes")
    # The program itself will show the warnings.
    stderr, sys.stderr = sys.stderr, None
    try:
        return compile(text, path, "exec", ONLY_TREE, dont_inherit=True)
    finally:
        sys.stderr = stderr


class _Imports:
    """Follows the statements of a program and imports its libraries."""

    def __init__(self, own: List[str]) -> None:
        self.imported: List[str] = []
        self.stopped = ""
        self._libraries = _Libraries(own)
        self._fence = _Fence(self._libraries)
        self._left_out = 0
        self._paths: Set[str] = set()
        # By bare name: what a statement that has the name may run.
        self._bodies: Dict[str, List[Tuple[_File, Any]]] = {}
        self._checked: Set[Any] = set()
        self._mains: Set[Any] = set()

    def follow(self, program: Program) -> None:
        sys.meta_path.insert(0, self._fence)
        try:
            if program.module:
                self._module(program.module)
            else:
                self._read(program.script, "__main__", "")
        except _Stop as stop:
            self.stopped = str(stop)
        except SyntaxError:
            pass
        except Exception as error:
            self.stopped = f"the program could not be read: {type(error).__name__}: {error}"
        else:
            # Later statements cannot change what these import.
            self._call_hooks()
        finally:
            sys.meta_path.remove(self._fence)

    def _call_hooks(self) -> None:
        for module in list(sys.modules.values()):
            hook = getattr(module, "__dict__", {}).get("__lockstep_warm__")
            if hook is not None:
                _quietly(hook)
        for library, word, later in LATER:
            if library in sys.modules and self._has(word):
                self._load(later, [])

    def _has(self, word: bytes) -> bool:
        for path in self._paths:
            with open(path, "rb") as file:
                if word in file.read(MOST_FILE_BYTES):
                    return True
        return False

    def _module(self, name: str) -> None:
        """As runpy: the packages above it first."""
        for _ in range(2):
            parent = name.rpartition(".")[0]
            if parent:
                self._import(parent, [])
            spec = self._spec(name)
            if spec is None or spec.submodule_search_locations is None:
                break
            name += ".__main__"
        if spec is not None and spec.origin and spec.origin.endswith(".py"):
            self._read(spec.origin, "__main__", name.rpartition(".")[0])

    def _read(self, path: str, name: str, package: str) -> None:
        """Follows a file of the program, once."""
        if path in self._paths:
            return
        if len(self._paths) == MOST_FILES:
            raise _Stop(f"the program has more than {MOST_FILES} files")
        if not path.endswith(".py") and name != "__main__":
            raise _Stop(f"{path} is not Python source")
        self._paths.add(path)
        file = _File(path, name, package, _tree(path))
        for node in _nodes(file.tree):
            if _kind(node) in (*FUNCTIONS, "ClassDef"):
                self._bodies.setdefault(node.name, []).append((file, node))
        self._checked.clear()
        self._walk(file, file.tree.body)
        if name == "__main__":
            self._run_mains(file)

    def _walk(self, file: _File, body: List[Any]) -> None:
        for node in body:
            kind = _kind(node)
            if kind == "Import":
                for item in node.names:
                    self._import(item.name, None)
            elif kind == "ImportFrom":
                self._import_from(file, node)
            elif kind == "If":
                self._walk_if(file, node)
            elif kind in ("Try", "TryStar"):
                self._walk_try(file, node)
            elif kind in ("For", "AsyncFor", "While", "With", "AsyncWith", "Match", "ClassDef"):
                bodies = [getattr(node, "body", []), getattr(node, "orelse", [])]
                bodies += [case.body for case in getattr(node, "cases", [])]
                inner = [one for one in bodies for one in one]
                self._check(file, [one for one in _children(node) if one not in inner])
                for one in bodies:
                    self._walk(file, one)
            else:
                self._check(file, [node])

    def _walk_if(self, file: _File, node: Any) -> None:
        test = node.test
        taken = [node.body, node.orelse]
        if file.meaning(test).rpartition(".")[2] == "TYPE_CHECKING":
            taken = [node.orelse]
        elif _kind(test) == "Compare" and file.meaning(test.left) == "__name__":
            if _kind(test.ops[0]) == "Eq":
                taken = [node.body] if file.name == "__main__" else [node.orelse]
        self._check(file, [test])
        for body in taken:
            self._walk(file, body)

    def _walk_try(self, file: _File, node: Any) -> None:
        before = self._left_out
        self._walk(file, node.body)
        if self._left_out == before:
            self._walk(file, node.orelse)
        for handler in node.handlers:
            if self._left_out != before:
                self._walk(file, handler.body)
            else:
                self._check(file, [handler])
        self._walk(file, node.finalbody)

    def _run_mains(self, caller: _File) -> None:
        """Follows the function main that a file has, else that it calls of another one."""
        mains = [one for one in self._bodies.get("main", []) if one[1] in one[0].tree.body]
        for file, node in [one for one in mains if one[0] is caller] or mains:
            if node not in self._mains and _kind(node) != "ClassDef":
                self._mains.add(node)
                self._walk(file, node.body)

    def _check(self, file: _File, nodes: List[Any]) -> None:
        """Raises _Stop where one of the nodes, or what it may call, decides on imports."""
        left = [(file, node) for node in nodes]
        callers = []
        while left:
            place, node = left.pop()
            kind = _kind(node)
            self._check_node(place, node, kind)
            if kind in FUNCTIONS:
                parts = [*node.decorator_list, *node.args.defaults, *node.args.kw_defaults]
                left.extend((place, one) for one in parts if one is not None)
                continue
            left.extend((place, one) for one in _children(node))
            name = {"Name": "id", "Attribute": "attr"}.get(kind)
            name = getattr(node, name) if name else ""
            if name == "main":
                callers.append(place)
                continue
            for other, body in self._bodies.get(name, []):
                if body not in self._checked:
                    self._checked.add(body)
                    functions = [body, *(body.body if _kind(body) == "ClassDef" else [])]
                    left.extend((other, one) for each in functions for one in _children(each))
        for caller in callers:
            self._run_mains(caller)

    def _check_node(self, file: _File, node: Any, kind: str) -> None:
        what = ""
        if kind == "AugAssign" or _kind(getattr(node, "ctx", None)) in ("Store", "Del"):
            what = self._changed(file, node, kind)
        elif kind == "Call":
            called = file.meaning(node.func)
            base, _, method = called.rpartition(".")
            if base in DECIDING and method in WRITERS:
                what = f"changes {base}"
            elif called in DECIDING_CALLS or called.startswith(DECIDING_MODULES):
                what = f"calls {called}"
            elif called in ("setattr", "delattr") and node.args:
                if self._is_library(file, node.args[0]):
                    what = f"changes {file.meaning(node.args[0])}"
        if what:
            raise _Stop(f"{os.path.basename(file.path)}:{node.lineno} {what}")

    def _changed(self, file: _File, node: Any, kind: str) -> str:
        part = {"AugAssign": "target", "Subscript": "value"}.get(kind)
        what = file.meaning(getattr(node, part) if part else node)
        # A name alone is only bound anew. Switches of torch's libraries import nothing.
        decides = kind != "Name" and what in DECIDING
        if kind == "Attribute" and not what.startswith("torch.backends."):
            decides = decides or self._is_library(file, node)
        return f"changes {what}" if decides else ""

    def _is_library(self, file: _File, node: Any) -> bool:
        while _kind(node) == "Attribute":
            node = node.value
        if _kind(node) != "Name" or node.id not in file.meanings:
            return False
        spec = self._fence.find(file.meanings[node.id].partition(".")[0])
        return spec is not None and self._libraries.has(spec)

    def _import_from(self, file: _File, node: Any) -> None:
        name = node.module or ""
        if node.level:
            package = file.package.split(".") if file.package else []
            if node.level > len(package):
                self._left_out += 1
                return
            package = package[: len(package) - node.level + 1]
            name = ".".join(package + ([name] if name else []))
        self._import(name, [item.name for item in node.names])

    def _import(self, name: str, names: Optional[List[str]]) -> None:
        """import name; from name import names."""
        top = name.partition(".")[0]
        if top in SKIPPED:
            return
        spec = None if top in sys.modules else self._fence.find(top)
        if top in sys.modules or (spec is not None and self._libraries.has(spec)):
            self._load(name, names or [])
            return
        parts = name.split(".")
        for count in range(1, len(parts) + 1):
            if not self._own(".".join(parts[:count])):
                self._left_out += 1
                return
        for one in names or []:
            self._own(f"{name}.{one}")

    def _spec(self, name: str) -> Any:
        """Finds a module without importing the packages above it."""
        parts = name.split(".")
        spec = self._fence.find(parts[0])
        for count in range(2, len(parts) + 1):
            if spec is None or spec.submodule_search_locations is None:
                return None
            where = list(spec.submodule_search_locations)
            spec = _path_finder().find_spec(".".join(parts[:count]), where)
        return spec

    def _own(self, name: str) -> bool:
        spec = self._spec(name)
        if spec is None:
            return False
        if spec.loader is not None and spec.has_location and spec.origin:
            package = spec.submodule_search_locations is not None
            self._read(spec.origin, name, name if package else name.rpartition(".")[0])
        return True

    def _load(self, name: str, names: List[str]) -> None:
        before = set(sys.modules)

        def load() -> None:
            module = __import__(name, {}, {}, names or ["__name__"], 0)
            # What it finds in a package may be imported by the look alone.
            for one in names:
                if one != "*":
                    getattr(module, one)

        if _quietly(load):
            if name not in self.imported:
                self.imported.append(name)
            return
        self._left_out += 1
        top = name.partition(".")[0]
        for other in set(sys.modules) - before:
            module = sys.modules[other]
            spec = getattr(module, "__spec__", None)
            # An extension can be loaded once only.
            extension = type(getattr(spec, "loader", None)).__name__ == "ExtensionFileLoader"
            if other.startswith(top + ".") and top not in sys.modules and not extension:
                del sys.modules[other]


def _quietly(call: Call) -> bool:
    """Whether the call returned. A library may raise what it wants, also SystemExit."""
    try:
        call()
    except BaseException:
        return False
    return True


def _path_finder() -> Any:
    return sys.modules["_frozen_importlib_external"].PathFinder


class Program:
    """What the arguments after the interpreter's options name."""

    def __init__(self, words: List[str]) -> None:
        self.script, self.module, self.argv = "", "", list(words)
        first = words[0] if words else "-"
        if first.startswith("-m"):
            rest = [first[2:], *words[1:]] if first[2:] else words[1:]
            if not rest:
                _refuse("-m names no module")
            self.module, self.argv = rest[0], ["-m", *rest[1:]]
        elif first.startswith("-"):
            _refuse("the program is neither a file nor a module")
        else:
            self.script = first

    def folder(self) -> str:
        """The first entry of sys.path."""
        return os.path.dirname(os.path.realpath(self.script)) if self.script else os.getcwd()

    def take_place(self, old_folder: str) -> None:
        """Makes sys and __main__ those of the program's start."""
        sys.argv[:] = self.argv
        if not (sys.flags.isolated or getattr(sys.flags, "safe_path", False)):
            place = sys.path.index(old_folder) if old_folder in sys.path else 0
            sys.path[place : place + 1] = [self.folder()]
        names = sys.modules["__main__"].__dict__
        for name in list(names):
            if name not in MAIN_NAMES:
                del names[name]
        names.update(__doc__=None, __package__=None, __spec__=None)
        if self.module:
            names["__loader__"] = sys.modules["_frozen_importlib"].BuiltinImporter
            names.pop("__file__", None)
            names.pop("__cached__", None)
            return
        loader = sys.modules["_frozen_importlib_external"].SourceFileLoader
        names["__file__"] = self._file()
        names["__loader__"] = loader("__main__", self._file())

    def _file(self) -> str:
        """The name of the script's file, as the interpreter makes it."""
        if sys.version_info < (3, 9) or os.path.isabs(self.script):
            return self.script
        return os.getcwd() + "/" + self.script

    def code(self) -> Call:
        """Returns what runs it, without a frame of Python. Raises where it is no source."""
        bind: Callable[..., Call] = _functools.partial
        if self.module:
            import runpy

            return bind(vars(runpy)["_run_module_as_main"], self.module)
        if self.script.endswith(".pyc"):
            raise _Stop("it is compiled")
        with open(self.script, "rb") as file:
            text = file.read()
        code = compile(text, self._file(), "exec", dont_inherit=True)
        return bind(exec, code, sys.modules["__main__"].__dict__)


class _Handover:
    """The start of a rank: its directory, its arguments, its environment."""

    def __init__(self, text: bytes) -> None:
        parts = text.split(b"\0")
        count = int(parts[1])
        self.folder, self.argv = parts[0], parts[2 : 2 + count]
        self.variables: Dict[bytes, bytes] = {}
        for part in parts[2 + count :]:
            name, equals, value = part.partition(b"=")
            if name and equals:
                self.variables.setdefault(name, value)

    def start_cold(self) -> None:
        os.chdir(self.folder)
        os.execve(sys.executable or self.argv[0], self.argv, self.variables)

    def fits(self, before: Dict[bytes, bytes], options: List[str]) -> bool:
        """Whether this process read at its start what the rank's would read."""
        changed = {name for name, _ in before.items() ^ self.variables.items()}
        early = any(one.startswith(EARLY_VARIABLES) or one.endswith(b"_NUM_THREADS")
                    for one in changed)  # fmt: skip
        given = [os.fsdecode(word) for word in self.argv[1 : 1 + len(options)]]
        return not early and given == options

    def take_environment(self, before: Dict[bytes, bytes]) -> None:
        now = dict(os.environb)
        variables = dict(self.variables)
        # Some libraries set variables when they are imported.
        for name in before.keys() | now.keys():
            if before.get(name) != now.get(name) and variables.get(name) == before.get(name):
                variables.pop(name, None)
                if name in now:
                    variables[name] = now[name]
        os.environ.clear()
        for name, value in variables.items():
            os.environb[name] = value
        temporary: Any = sys.modules.get("tempfile")
        if temporary and any(before.get(one) != variables.get(one)
                             for one in (b"TMPDIR", b"TEMP", b"TMP")):  # fmt: skip
            temporary.tempdir = None


def _receive() -> _Handover:
    """Waits for a packet with a descriptor. Leaves no descriptor open."""
    with_data = _socket.socket(fileno=SOCKET)
    with_data.setblocking(True)
    try:
        data, extra, _, _ = with_data.recvmsg(4096, _socket.CMSG_SPACE(4))
    except KeyboardInterrupt:
        os._exit(REFUSED)
    if not data:
        os._exit(REFUSED)
    if not extra:
        _refuse("a packet without a descriptor")
    file = int.from_bytes(extra[0][2][:4], sys.byteorder)
    with_data.close()
    os.close(SELF)
    os.lseek(file, 0, os.SEEK_SET)
    with open(file, "rb") as opened:
        return _Handover(opened.read())


def _json(value: object) -> str:
    if isinstance(value, list):
        return "[" + ", ".join(map(_json, value)) + "]"
    if isinstance(value, float):
        return f"{value:.3f}"
    text = ""
    for one in str(value):
        code = ord(one)
        if 32 <= code < 127 and one not in '"\\':
            text += one
        elif code < 0x10000:
            text += f"\\u{code:04x}"
        else:
            code -= 0x10000
            text += f"\\u{0xD800 + (code >> 10):04x}\\u{0xDC00 + (code & 0x3FF):04x}"
    return f'"{text}"'


def _report(imports: _Imports, seconds: float) -> None:
    names, stopped = list(imports.imported), imports.stopped[:1000]
    while True:
        text = f'{{"imported": {_json(names)}, "seconds": {_json(seconds)}'
        text += f', "stopped": {_json(stopped)}}}' if stopped else "}"
        if len(text) <= MOST_BYTES:
            break
        del names[len(names) * 9 // 10 :]
    sender = _socket.socket(fileno=SOCKET)
    try:
        sender.send(text.encode("ascii"))
    except OSError:
        os._exit(REFUSED)
    sender.detach()


def _check_devices() -> None:
    """A rank may get other GPUs than those that CUDA has seen here."""
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    if cuda is not None and cuda.is_initialized():
        _refuse("an import has initialized CUDA")
    for name in os.listdir("/proc/self/fd"):
        try:
            if os.readlink("/proc/self/fd/" + name).startswith("/dev/nvidia-uvm"):
                _refuse("an import has initialized CUDA")
        except OSError:
            continue


class Guard:
    """Around the program: takes the frames of this file out of its traceback."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, value: object, trace: object) -> None:
        hook = getattr(sys, "excepthook", None)
        if value is None or isinstance(value, SystemExit) or hook is None:
            return
        ours = Guard.__exit__.__code__.co_filename

        def trimmed(value: BaseException) -> Optional[TracebackType]:
            trace = value.__traceback__
            while trace is not None and trace.tb_frame.f_code.co_filename == ours:
                trace = trace.tb_next
            value.__traceback__ = trace
            return trace

        def show(kind: Any, value: BaseException, trace: object) -> None:
            """As the interpreter, which calls it."""
            sys.excepthook = hook
            sys.last_traceback = trimmed(value)
            try:
                hook(kind, value, value.__traceback__)
            except SystemExit:
                raise
            except BaseException as error:
                sys.stderr.write("Error in sys.excepthook:\n")
                sys.__excepthook__(type(error), error, trimmed(error))
                sys.stderr.write("\nOriginal exception was:\n")
                sys.__excepthook__(kind, value, value.__traceback__)

        sys.excepthook = show


def start() -> Call:
    """Returns the program when a rank starts."""
    begin = time.monotonic()
    sys.modules.pop("__future__", None)
    before = dict(os.environb)
    words = getattr(sys, "orig_argv", None)
    if words is None:
        with open("/proc/self/cmdline", "rb") as file:
            words = [os.fsdecode(word) for word in file.read().split(b"\0")[:-1]]
    options = words[1 : len(words) - len(sys.argv)]
    os.set_inheritable(SOCKET, False)
    os.set_inheritable(SELF, False)
    program = Program(sys.argv[1:])
    # Where the interpreter thinks that this file is.
    program.take_place(sys.path[0])
    old_folder = program.folder()
    imports = _Imports([old_folder, os.getcwd()])
    imports.follow(program)
    _check_devices()
    _report(imports, time.monotonic() - begin)
    handover = _receive()
    try:
        if not handover.fits(before, options):
            raise _Stop("the interpreter would start otherwise")
        os.chdir(handover.folder)
        handover.take_environment(before)
        arguments = handover.argv[1 + len(options) :]
        program = Program([os.fsdecode(word) for word in arguments])
        if hasattr(sys, "orig_argv"):
            sys.orig_argv[:] = [os.fsdecode(word) for word in handover.argv]
        program.take_place(old_folder)
        finders: List[Any] = list(sys.path_importer_cache.values())
        for finder in finders:
            if hasattr(finder, "invalidate_caches"):
                finder.invalidate_caches()
        processes: Any = sys.modules.get("multiprocessing.process")
        if processes:
            processes.ORIGINAL_DIR = os.getcwd()
        return program.code()
    except BaseException:
        handover.start_cold()
        raise


if __name__ == "__main__":
    # The program gets this module's dictionary, emptied: these run in one of their own.
    _space = dict(globals(), __name__="lockstep_warm_start")
    exec(sys._getframe().f_code, _space)
    with _space["Guard"]():
        _space["start"]()()
