"""Makes the uploaded file of a job's code.

A folder becomes a gzipped tar; an sdist or a wheel stays as it is. Packing is
deterministic, so a folder that did not change is not uploaded again.
"""

from __future__ import annotations

import builtins
import dataclasses
import gzip
import hashlib
import io
import os
import stat
import tarfile
import tempfile
from collections.abc import Iterator, Mapping
from typing import IO, Any, Union

from lockstep.client import _ignore
from lockstep.client._rpc import Rpc
from lockstep.errors import Error, InvalidArgumentError, NotFoundError

MOST_ENTRIES = 100_000
# The sum of a folder's files, or a package file.
MOST_BYTES = 1 << 30
_PIECE = 1 << 20
_IGNORE_FILE = ".gcloudignore"
_GOOD = set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-+!")
# Names of PackageFormat.
_TREE = "PACKAGE_FORMAT_TREE"
_SDIST = "PACKAGE_FORMAT_SDIST"
_WHEEL = "PACKAGE_FORMAT_WHEEL"

PathLike = Union[str, "os.PathLike[str]"]


@dataclasses.dataclass
class Packed:
    """A package's bytes in an open file; close() it."""

    file: IO[bytes]
    digest: str
    bytes: int
    format: str
    file_name: str

    def close(self) -> None:
        self.file.close()

    def message(self, rpc: Rpc) -> Any:
        return rpc.message(
            "Package",
            digest=self.digest,
            bytes=self.bytes,
            format=rpc.schema.enum_value("PackageFormat", self.format),
            file_name=self.file_name,
        )


def _bad(text: str) -> InvalidArgumentError:
    return InvalidArgumentError("packages: " + text, code="INVALID_ARGUMENT")


def _digest(file: IO[bytes]) -> tuple[str, int]:
    file.seek(0)
    sha = hashlib.sha256()
    size = 0
    while True:
        piece = file.read(_PIECE)
        if not piece:
            return "sha256:" + sha.hexdigest(), size
        sha.update(piece)
        size += len(piece)


class _Tar:
    """Writes entries with zero times and owners, as every host would."""

    def __init__(self) -> None:
        # Owned by the Packed that finish() returns.
        self.file: IO[bytes] = tempfile.TemporaryFile(prefix="lockstep-")  # noqa: SIM115
        self._gzip = gzip.GzipFile("", "wb", 6, self.file, 0)
        self._tar = tarfile.TarFile(fileobj=self._gzip, mode="w", format=tarfile.PAX_FORMAT)

    def add(self, name: str, kind: bytes, mode: int, size: int = 0) -> tarfile.TarInfo:
        entry = tarfile.TarInfo(name)
        entry.type = kind
        entry.mode = mode
        entry.size = size
        return entry

    def add_folder(self, name: str) -> None:
        self._tar.addfile(self.add(name, tarfile.DIRTYPE, 0o755))

    def add_link(self, name: str, target: str) -> None:
        entry = self.add(name, tarfile.SYMTYPE, 0o755)
        entry.linkname = target
        self._tar.addfile(entry)

    def add_file(self, name: str, mode: int, size: int, source: IO[bytes]) -> None:
        self._tar.addfile(self.add(name, tarfile.REGTYPE, mode, size), source)

    def finish(self, file_name: str) -> Packed:
        self._tar.close()
        self._gzip.close()
        digest, size = _digest(self.file)
        return Packed(self.file, digest, size, _TREE, file_name)


def pack_files(files: Mapping[str, bytes], file_name: str) -> Packed:
    """Packs files that are not on disk: name -> bytes, "a/b.py"."""
    tar = _Tar()
    folders = set()
    for name in sorted(files):
        folder = name.rpartition("/")[0]
        if folder and folder not in folders:
            folders.add(folder)
            tar.add_folder(folder)
        data = files[name]
        tar.add_file(name, 0o644, len(data), io.BytesIO(data))
    return tar.finish(file_name)


class _Folder:
    """The entries of a folder, sorted, without what the rules exclude."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.rules = _ignore.Rules()
        self.entries: list[tuple[str, os.stat_result]] = []
        self.bytes = 0

    def list(self) -> builtins.list[tuple[str, os.stat_result]]:
        self._read_rules()
        self._walk("")
        self.entries.sort(key=lambda entry: os.fsencode(entry[0]))
        return self.entries

    def _text(self, name: str) -> str:
        with open(os.path.join(self.folder, name), encoding="utf-8") as file:
            return file.read(1 << 20)

    def _read_rules(self) -> None:
        if not os.path.exists(os.path.join(self.folder, _IGNORE_FILE)):
            return
        text = self._text(_IGNORE_FILE)
        for name in _ignore.includes(text):
            if "/" in name:
                raise _bad(f"{self.folder}/{_IGNORE_FILE}: #!include:{name} is in "
                           "another folder")  # fmt: skip
            self.rules.add(self._text(name))
        self.rules.add(text)

    def _walk(self, below: str) -> None:
        for name in os.listdir(os.path.join(self.folder, below)):
            path = f"{below}/{name}" if below else name
            info = os.lstat(os.path.join(self.folder, path))
            if self.rules.ignores(path, stat.S_ISDIR(info.st_mode)):
                continue
            self._check(path, info)
            self.entries.append((path, info))
            if len(self.entries) > MOST_ENTRIES:
                raise _bad(f"{self.folder} has more than {MOST_ENTRIES} files; leave "
                           f"some out by a {_IGNORE_FILE}")  # fmt: skip
            if self.bytes > MOST_BYTES:
                raise _bad(f"{self.folder} has more than {MOST_BYTES >> 20} MiB; leave "
                           f"out what is not code by a {_IGNORE_FILE}")  # fmt: skip
            if stat.S_ISDIR(info.st_mode):
                self._walk(path)

    def _check(self, path: str, info: os.stat_result) -> None:
        whole = os.path.join(self.folder, path)
        if stat.S_ISLNK(info.st_mode):
            real = os.path.realpath(whole)
            inside = real == self.folder or real.startswith(self.folder.rstrip("/") + "/")
            if os.path.isabs(os.readlink(whole)) or not inside or not os.path.exists(real):
                raise _bad(f"{whole} is a link that leaves the folder or leads "
                           f"nowhere; leave it out by a {_IGNORE_FILE}")  # fmt: skip
        elif stat.S_ISREG(info.st_mode):
            self.bytes += info.st_size
        elif not stat.S_ISDIR(info.st_mode):
            raise _bad(f"{whole} is a socket, pipe or device; leave it out by a "
                       f"{_IGNORE_FILE}")  # fmt: skip
        try:
            path.encode()
        except UnicodeEncodeError:
            raise _bad(f"{whole!r} is a name that is not UTF-8") from None


def _file_name(name: str) -> str:
    good = "".join(c if c in _GOOD else "_" for c in name[:100]) or "package"
    return ("_" + good[1:] if good[0] in ".-" else good) + ".tar.gz"


def pack_folder(folder: str) -> Packed:
    """Packs a folder.

    A folder with ``__init__.py`` is a Python package and keeps its name; of
    another one the content is at the top. Both are importable on the nodes.
    """
    real = os.path.realpath(folder)
    name = os.path.basename(real)
    is_package = os.path.exists(os.path.join(real, "__init__.py"))
    prefix = name + "/" if is_package else ""
    entries = _Folder(real).list()
    if not any(stat.S_ISREG(info.st_mode) for _, info in entries):
        raise _bad(f"{folder} has no files after exclusions")
    tar = _Tar()
    for path, info in entries:
        whole = os.path.join(real, path)
        if stat.S_ISDIR(info.st_mode):
            tar.add_folder(prefix + path)
        elif stat.S_ISLNK(info.st_mode):
            tar.add_link(prefix + path, os.readlink(whole))
        else:
            mode = 0o755 if info.st_mode & stat.S_IXUSR else 0o644
            try:
                with open(whole, "rb") as source:
                    tar.add_file(prefix + path, mode, info.st_size, source)
            except OSError as error:
                raise Error(f"packages: packing {whole}: {error}",
                            code="ABORTED") from error  # fmt: skip
    return tar.finish(_file_name(name))


def open_file(path: str) -> Packed:
    """Opens an sdist (.tar.gz) or a wheel (.whl)."""
    name = os.path.basename(path)
    kind = _SDIST if name.endswith(".tar.gz") else _WHEEL
    if kind == _WHEEL and not (name.endswith(".whl") and 4 <= name.count("-") <= 5):
        raise _bad(f"{path} is neither a folder, an sdist (.tar.gz) nor a wheel "
                   "(NAME-VERSION-PYTHON-ABI-PLATFORM.whl)")  # fmt: skip
    if not set(name) <= _GOOD or name[0] in ".-":
        raise _bad(f"{path}: pip rejects its name")
    file = open(path, "rb")  # noqa: SIM115 - the Packed owns it.
    head = file.read(2)
    digest, size = _digest(file)
    if size > MOST_BYTES:
        raise _bad(f"{path} has more than {MOST_BYTES >> 20} MiB")
    if head != (b"\x1f\x8b" if kind == _SDIST else b"PK"):
        raise _bad(f"{path} is not what its name says")
    return Packed(file, digest, size, kind, name)


def open_all(packages: Any | None) -> list[Packed]:
    """Opens folders, sdists and wheels by their paths."""
    if packages is None:
        return []
    if isinstance(packages, (str, os.PathLike)):
        packages = [packages]
    out = []
    for package in packages:
        path = os.path.expanduser(os.fspath(package))
        if "://" in path:
            raise _bad(f"{path}: URLs are not downloaded; give a path")
        if not os.path.exists(path):
            raise NotFoundError(f"packages: {path} does not exist", code="NOT_FOUND")
        out.append(pack_folder(path) if os.path.isdir(path) else open_file(path))
    return out


def upload(rpc: Rpc, package: Packed) -> None:
    """Uploads a package, unless the coordinator has it."""
    request = rpc.schema.message("UploadPackageRequest")

    def requests() -> Iterator[Any]:
        yield request(package=package.message(rpc))
        package.file.seek(0)
        while True:
            piece = package.file.read(_PIECE)
            if not piece:
                return
            yield request(data=piece)

    # A slow line has 256 KiB/s.
    rpc.upload(requests, timeout=60.0 + package.bytes / (256 << 10))
