"""The messages of the coordinator's API, made at run time.

They come from a FileDescriptorSet that the build makes of ``proto/``, in a pool
of their own. So one package serves every protobuf from 4.25 on, and no other
package's ``google/rpc`` files collide with it.
"""

from __future__ import annotations

import functools
import os
from typing import Any

from lockstep.errors import Error

# Beside this file, where the build puts it.
_FILE = "lockstep.desc"
_PACKAGE = "lockstep.v1."


class Schema:
    """Message classes, enums and methods by their names."""

    def __init__(self, data: bytes) -> None:
        from google.protobuf import descriptor_pb2, descriptor_pool

        files = descriptor_pb2.FileDescriptorSet.FromString(data)
        self._pool: Any = descriptor_pool.DescriptorPool()
        for file in files.file:
            self._pool.AddSerializedFile(file.SerializeToString())
        self._classes: dict[str, Any] = {}

    def message(self, name: str) -> Any:
        """Returns the class "Job" of lockstep.v1, or of a full name."""
        if name not in self._classes:
            from google.protobuf import message_factory

            full = name if "." in name else _PACKAGE + name
            found = self._pool.FindMessageTypeByName(full)
            self._classes[name] = message_factory.GetMessageClass(found)
        return self._classes[name]

    def enum_name(self, enum: str, number: int) -> str:
        """Returns "RUNNING" for 5 of "JobState"; the number if it is unknown."""
        values = self._pool.FindEnumTypeByName(_PACKAGE + enum).values_by_number
        if number not in values:
            return str(number)
        prefix = values[0].name[: -len("UNSPECIFIED")]
        name: str = values[number].name
        return name.removeprefix(prefix)

    def enum_value(self, enum: str, name: str) -> int:
        """Returns 5 for "JOB_STATE_RUNNING" of "JobState"; KeyError otherwise."""
        found = self._pool.FindEnumTypeByName(_PACKAGE + enum)
        number: int = found.values_by_name[name].number
        return number

    def method(self, service: str, name: str) -> tuple[str, Any, Any]:
        """Returns the path, the request's class and the answer's class."""
        found = self._pool.FindServiceByName(_PACKAGE + service).FindMethodByName(name)
        return (
            f"/{_PACKAGE}{service}/{name}",
            self.message(found.input_type.full_name),
            self.message(found.output_type.full_name),
        )


@functools.lru_cache(maxsize=1)
def load() -> Schema:
    """Reads the shipped descriptors. Error if this copy was not built."""
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), _FILE)
    try:
        with open(path, "rb") as file:
            return Schema(file.read())
    except OSError as error:
        raise Error(
            f"this copy of lockstep is not complete: {path} is not there; install "
            "the wheel, or use BUILD/python after building lockstep_python_descriptors",
            code="FAILED_PRECONDITION",
        ) from error
