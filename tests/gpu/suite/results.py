"""What the cases found: rows of one table, on the terminal and in files."""

from __future__ import annotations

import dataclasses
import json
import pathlib
import textwrap
from typing import Any, Dict, List

PASSED, FAILED, SKIPPED = "passed", "failed", "skipped"
WIDTH = 110


@dataclasses.dataclass
class Row:
    """One thing that was tested or measured."""

    name: str
    outcome: str
    # A measured value with its interval, in words; empty: it is no measurement.
    figure: str = ""
    # Why it failed or was skipped; a remark where it passed.
    reason: str = ""
    # The same values for programs.
    values: Dict[str, Any] = dataclasses.field(default_factory=dict)


def table(rows: List[Row]) -> str:
    """Returns the rows as lines: name, outcome, figure; reasons below."""
    names = max([len(row.name) for row in rows], default=0)
    lines = []
    for row in rows:
        lines.append(f"{row.name:<{names}}  {row.outcome:<7}  {row.figure}".rstrip())
        lines += textwrap.wrap(row.reason, WIDTH, initial_indent="    ", subsequent_indent="    ")
    return "\n".join(lines)


def summary(rows: List[Row]) -> str:
    counts = [sum(row.outcome == one for row in rows) for one in (PASSED, FAILED, SKIPPED)]
    return "{} passed, {} failed, {} skipped".format(*counts)


def write(folder: pathlib.Path, facts: Dict[str, Any], rows: List[Row], text: str) -> None:
    """Writes results.json and results.txt."""
    document = {"host": facts, "results": [dataclasses.asdict(row) for row in rows]}
    (folder / "results.json").write_text(json.dumps(document, indent=2) + "\n")
    (folder / "results.txt").write_text(text + "\n")


def exit_code(rows: List[Row]) -> int:
    """1 where a row failed, else 0."""
    return 1 if any(row.outcome == FAILED for row in rows) else 0
