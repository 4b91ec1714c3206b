"""Finds the coordinator's address and the certificates, as the command does.

The file of contexts is YAML that ``lockstep context set`` writes and people may
edit. This reader takes what such a file needs: mappings by indentation or in
braces, plain and quoted texts, and comments. It refuses the rest with the line.
"""

from __future__ import annotations

import dataclasses
import difflib
import json
import os
from collections.abc import Mapping
from typing import Union

from lockstep.errors import Error, InvalidArgumentError, NotFoundError

SITE_FILE = "/etc/lockstep/config.yaml"
_FIELDS = ("address", "ca", "cert", "key", "insecure-loopback", "local-dir")
_TRUE = ("1", "true", "yes")

Tree = dict[str, Union[str, "Tree"]]


@dataclasses.dataclass(frozen=True)
class Connection:
    """How to reach a coordinator: HOST:PORT, and the paths of PEM files."""

    address: str
    ca: str = ""
    cert: str = ""
    key: str = ""
    insecure_loopback: bool = False
    # As given by the caller; "" for the default context.
    context: str = ""


@dataclasses.dataclass
class Config:
    """The content of one file of contexts."""

    current: str = ""
    contexts: dict[str, dict[str, str]] = dataclasses.field(default_factory=dict)


class _Lines:
    """The lines of a file that say something: indentation, text and number."""

    def __init__(self, text: str, source: str) -> None:
        self.source = source
        self.lines: list[tuple[int, str, int]] = []
        self.at = 0
        for number, line in enumerate(text.splitlines(), 1):
            body = _without_comment(line).rstrip()
            bare = body.lstrip(" ")
            if not bare or bare in ("---", "..."):
                continue
            if bare.startswith("\t"):
                raise self.error(number, "a tab indents it; use spaces")
            self.lines.append((len(body) - len(bare), bare, number))

    def error(self, number: int, text: str) -> InvalidArgumentError:
        return InvalidArgumentError(f"{self.source}:{number}: {text}", code="INVALID_ARGUMENT")


def _without_comment(line: str) -> str:
    quote = ""
    for i, c in enumerate(line):
        if quote:
            if c == quote and not (quote == '"' and line[i - 1] == "\\"):
                quote = ""
        elif c in "'\"" and (i == 0 or line[i - 1] in " :{,"):
            quote = c
        elif c == "#" and (i == 0 or line[i - 1] in " \t"):
            return line[:i]
    return line


def _scalar(text: str, lines: _Lines, number: int) -> str:
    if text[:1] == "'":
        if len(text) < 2 or text[-1] != "'":
            raise lines.error(number, "a quoted text has no end")
        return text[1:-1].replace("''", "'")
    if text[:1] == '"':
        try:
            value = json.loads(text)
        except ValueError:
            value = None
        if not isinstance(value, str):
            raise lines.error(number, "a quoted text is not well-formed")
        return value
    if text[:1] in tuple("&*!|>[]%@`"):
        raise lines.error(number, f"cannot read {text[:20]!r}; put it into quotes")
    return "" if text in ("~", "null") else text


def _key_and_rest(text: str, lines: _Lines, number: int) -> tuple[str, str]:
    quote = text[:1] if text[:1] in ("'", '"') else ""
    begin = text.find(quote, 1) + 1 if quote else 0
    at = text.find(":", begin)
    while at >= 0 and at + 1 < len(text) and text[at + 1] != " ":
        at = text.find(":", at + 1)
    if at < 0 or (quote and begin == 0):
        raise lines.error(number, "is not a field: a line is NAME: VALUE")
    return _scalar(text[:at].strip(), lines, number), text[at + 1 :].strip()


def _braces(text: str, lines: _Lines, number: int) -> Tree:
    if not text.endswith("}"):
        raise lines.error(number, "a mapping in braces has to end in its line")
    out: Tree = {}
    quote = ""
    part = ""
    for c in text[1:-1] + ",":
        if quote:
            quote = "" if c == quote else quote
        elif c in "'\"":
            quote = c
        elif c == ",":
            if part.strip():
                key, value = _key_and_rest(part.strip(), lines, number)
                out[key] = _scalar(value, lines, number)
            part = ""
            continue
        part += c
    return out


def _mapping(lines: _Lines, indent: int) -> Tree:
    out: Tree = {}
    while lines.at < len(lines.lines):
        depth, text, number = lines.lines[lines.at]
        if depth < indent:
            break
        if depth > indent:
            raise lines.error(number, "its indentation is not that of its neighbours")
        key, rest = _key_and_rest(text, lines, number)
        if key in out:
            raise lines.error(number, f"{key} is there twice")
        lines.at += 1
        if rest.startswith("{"):
            out[key] = _braces(rest, lines, number)
        elif rest:
            out[key] = _scalar(rest, lines, number)
        else:
            out[key] = _nested(lines, indent)
    return out


def _nested(lines: _Lines, indent: int) -> str | Tree:
    """Reads the value of a field whose line ends after the colon."""
    if lines.at == len(lines.lines) or lines.lines[lines.at][0] <= indent:
        return ""
    depth, text, number = lines.lines[lines.at]
    if text.startswith("{"):
        lines.at += 1
        return _braces(text, lines, number)
    return _mapping(lines, depth)


def parse(text: str, source: str) -> Config:
    """Reads a file of contexts. InvalidArgumentError: "SOURCE:LINE: ..."."""
    lines = _Lines(text, source)
    root = _mapping(lines, lines.lines[0][0] if lines.lines else 0)
    config = Config()
    for name, value in root.items():
        if name == "current-context" and isinstance(value, str):
            config.current = value
        elif name == "contexts" and not (isinstance(value, str) and value):
            for context, fields in value.items() if isinstance(value, dict) else ():
                config.contexts[context] = _context(context, fields, source)
        else:
            raise InvalidArgumentError(
                f"{source}: there is no field {name}; there are current-context and contexts",
                code="INVALID_ARGUMENT",
            )
    return config


def _context(name: str, fields: str | Tree, source: str) -> dict[str, str]:
    out: dict[str, str] = {}
    for field, value in fields.items() if isinstance(fields, dict) else ():
        if field not in _FIELDS or not isinstance(value, str):
            near = difflib.get_close_matches(field, _FIELDS, 1)
            raise InvalidArgumentError(
                f"{source}: the context {name} has no field {field}"
                + (f"; did you mean {near[0]}?" if near else ""),
                code="INVALID_ARGUMENT",
            )
        out[field] = value
    return out


def user_file(env: Mapping[str, str]) -> str:
    """Returns the path of the user's file, which may not exist, or ""."""
    if env.get("LOCKSTEP_CONFIG"):
        return env["LOCKSTEP_CONFIG"]
    xdg = env.get("XDG_CONFIG_HOME", "")
    if xdg.startswith("/"):
        return xdg + "/lockstep/config.yaml"
    home = env.get("HOME", "")
    return home + "/.config/lockstep/config.yaml" if home else ""


def load(path: str) -> Config:
    """Reads a file. An absent one is empty."""
    if not path:
        return Config()
    try:
        with open(path, encoding="utf-8") as file:
            return parse(file.read(1 << 20), path)
    except FileNotFoundError:
        return Config()
    except (OSError, UnicodeDecodeError) as error:
        raise Error(f"cannot read {path}: {error}", code="FAILED_PRECONDITION") from error


def _choices(names: list[str]) -> str:
    if not names:
        return "there is none"
    if len(names) == 1:
        return "there is " + names[0]
    return "there are " + ", ".join(names[:-1]) + " and " + names[-1]


def resolve(
    context: str | None = None,
    address: str | None = None,
    ca: str | None = None,
    cert: str | None = None,
    key: str | None = None,
    insecure_loopback: bool = False,
    *,
    env: Mapping[str, str] | None = None,
    site_file: str = SITE_FILE,
) -> Connection:
    """Resolves arguments, then LOCKSTEP_* of ``env``, then the context.

    Raises NotFoundError if there is no such context, and Error with the code
    FAILED_PRECONDITION if no cluster or no certificate is given.
    """
    env = os.environ if env is None else env
    wanted = context or env.get("LOCKSTEP_CONTEXT", "")
    given = {
        "address": address or env.get("LOCKSTEP_ADDRESS", ""),
        "ca": ca or env.get("LOCKSTEP_CA", ""),
        "cert": cert or env.get("LOCKSTEP_CERT", ""),
        "key": key or env.get("LOCKSTEP_KEY", ""),
    }
    path = user_file(env)
    known: dict[str, dict[str, str]] = {}
    for file in (path, site_file):
        config = load(file)
        wanted = wanted or config.current
        for name, fields in config.contexts.items():
            known.setdefault(name, fields)
    if wanted and wanted not in known and not given["address"]:
        near = difflib.get_close_matches(wanted, list(known), 1)
        raise NotFoundError(
            f"there is no context {wanted} in {path}; {_choices(sorted(known))}"
            + (f"; did you mean {near[0]}?" if near else ""),
            code="NOT_FOUND",
        )
    entry = known.get(wanted, {})
    given = {field: value or entry.get(field, "") for field, value in given.items()}
    _need_address(given["address"], wanted, known, path)
    plain = (
        insecure_loopback
        or env.get("LOCKSTEP_INSECURE_LOOPBACK", "") in _TRUE
        or entry.get("insecure-loopback", "").lower() in _TRUE
    )
    if plain:
        return Connection(given["address"], insecure_loopback=True, context=context or "")
    for field in ("ca", "cert", "key"):
        if not given[field]:
            raise Error(
                f"the connection to {given['address']} needs {field}=FILE (or "
                f"LOCKSTEP_{field.upper()} or a context)",
                code="FAILED_PRECONDITION",
            )
    return Connection(
        given["address"], given["ca"], given["cert"], given["key"], context=context or ""
    )


def _need_address(
    address: str, wanted: str, known: Mapping[str, Mapping[str, str]], path: str
) -> None:
    if address:
        return
    if not wanted and known:
        raise Error(
            f"no context is chosen: {path} has no current-context; "
            f"{_choices(sorted(known))}: give context=NAME",
            code="FAILED_PRECONDITION",
        )
    raise Error(
        "no cluster is known: `lockstep local up` starts one on this machine; for "
        "another give address, ca, cert and key, or write a context into "
        f"{path or 'a file'} with `lockstep context set`",
        code="FAILED_PRECONDITION",
    )
