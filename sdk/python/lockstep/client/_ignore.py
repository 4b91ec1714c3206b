"""Selects files of a folder to leave out, by the rules of .gcloudignore.

They are those of gitignore(5), with ``#!include:FILE``. The last matching rule
decides. Files in an excluded folder cannot be included again.
"""

from __future__ import annotations

import dataclasses
import re
from re import Pattern

DEFAULTS = ".git\n.gitignore\n.gcloudignore\n.hg\n.svn\n__pycache__/\n*.pyc\n"
_INCLUDE = "#!include:"


def includes(text: str) -> list[str]:
    """Returns the names after "#!include:", in order."""
    return [
        line[len(_INCLUDE) :].rstrip(" ") for line in text.splitlines() if line.startswith(_INCLUDE)
    ]


def _class(pattern: str, at: int) -> int:
    """Returns the place after the set that begins at ``at``; -1: it has no end."""
    i = at + 1
    if i < len(pattern) and pattern[i] in "!^":
        i += 1
    end = pattern.find("]", i + 1)
    return -1 if end < 0 else end + 1


def glob(pattern: str) -> Pattern[str]:
    """Translates a pattern: "*" and "?" match anything but "/"."""
    out = ""
    i = 0
    while i < len(pattern):
        c = pattern[i]
        first = i == 0 or pattern[i - 1] == "/"
        if first and pattern.startswith("**/", i):
            out += "(?:.*/)?"
            i += 3
        elif first and pattern[i:] == "**":
            out += ".+"
            i += 2
        elif c == "*":
            out += "[^/]*"
            while i < len(pattern) and pattern[i] == "*":
                i += 1
        elif c == "?":
            out += "[^/]"
            i += 1
        elif c == "[" and _class(pattern, i) > 0:
            end = _class(pattern, i)
            body = pattern[i + 1 : end - 1]
            negated = body[:1] in ("!", "^")
            body = (body[1:] if negated else body).replace("[", r"\[")
            out += f"(?!/)[{'^' if negated else ''}{body}]"
            i = end
        else:
            if c == "\\" and i + 1 < len(pattern):
                i += 1
            out += re.escape(pattern[i])
            i += 1
    try:
        return re.compile(out + r"\Z", re.DOTALL)
    except re.error:  # A set such as "[z-a]" matches nothing.
        return re.compile(r"(?!)")


@dataclasses.dataclass
class _Rule:
    pattern: Pattern[str]
    negated: bool
    folders_only: bool
    # Matches the whole path, not just the name.
    anchored: bool


class Rules:
    """The rules of a folder; at first those that hold in every folder."""

    def __init__(self) -> None:
        self._rules: list[_Rule] = []
        self.add(DEFAULTS)

    def add(self, text: str) -> None:
        for line in text.splitlines():
            while line.endswith(" ") and not line.endswith("\\ "):
                line = line[:-1]
            if not line or line.startswith("#"):
                continue
            negated = line.startswith("!")
            body = line[1:] if negated else line
            bare = body.rstrip("/")
            anchored = "/" in bare
            bare = bare.removeprefix("/")
            if bare:
                self._rules.append(_Rule(glob(bare), negated, body.endswith("/"), anchored))

    def ignores(self, path: str, is_folder: bool) -> bool:
        """``path`` is relative to the folder: "a/b/c"."""
        name = path.rpartition("/")[2]
        for rule in reversed(self._rules):
            if rule.folders_only and not is_folder:
                continue
            if rule.pattern.match(path if rule.anchored else name):
                return not rule.negated
        return False
