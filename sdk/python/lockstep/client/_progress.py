"""One line that shows how a job is doing, in a terminal or in a notebook."""

from __future__ import annotations

import shutil
import sys
from typing import Any

from lockstep.client._views import JobStatus, Progress

_CLEAR = "\r\033[K"
_WIDTH = 24
_LEAST_WIDTH = 8


def _seconds(value: float) -> str:
    whole = int(value + 0.5)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def progress_text(progress: Progress) -> str:
    """Returns "step 120/1,000 (12 %)  840 samples/s  loss 0.31  eta 40 s"."""
    text = f"step {progress.step:,}"
    if progress.total_steps > 0:
        done = min(1.0, progress.step / progress.total_steps)
        text += f"/{progress.total_steps:,} ({done * 100:.0f} %)"
    if progress.samples_per_second > 0:
        text += f"  {_number(progress.samples_per_second)} samples/s"
    if progress.loss is not None:
        text += f"  loss {_number(progress.loss)}"
    if progress.eta_seconds is not None:
        text += f"  eta {_seconds(progress.eta_seconds)}"
    return text


def line(status: JobStatus, progress: Progress | None, columns: int) -> str:
    """Returns the line, which fits into ``columns`` without their last."""
    text = f"{status.name} {status.state}"
    bar = ""
    if status.state == "RUNNING" and progress is not None and progress.step > 0:
        text += "  " + progress_text(progress)
        width = min(_WIDTH, columns - len(text) - 4)
        if progress.total_steps > 0 and width >= _LEAST_WIDTH:
            done = min(1.0, progress.step / progress.total_steps)
            bar = "=" * int(done * width)
            bar += ">" if len(bar) < width else ""
            bar = f"[{bar:<{width}}] "
    elif status.message and status.state != "RUNNING":
        text += "  " + status.message
    printable = "".join(c if c.isprintable() else "?" for c in bar + text)
    return printable[: max(1, columns - 1)]


def _in_notebook() -> bool:
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return shell is not None and type(shell).__name__ == "ZMQInteractiveShell"


class Display:
    """Shows the line; silent where stderr is neither terminal nor notebook."""

    def __init__(self, shown: bool | None = None) -> None:
        """``shown``: True or False decides; None looks at stderr."""
        self._notebook = shown is not False and _in_notebook()
        terminal = bool(getattr(sys.stderr, "isatty", lambda: False)())
        self._terminal = not self._notebook and terminal and shown is not False
        self._handle: Any = None
        self._status: JobStatus | None = None
        self._last = ""

    def show(self, status: JobStatus) -> None:
        self._status = status
        self.show_progress(status.progress)

    def show_progress(self, progress: Progress | None) -> None:
        """Shows the progress of the job that was shown last."""
        if self._status is None:
            return
        if self._notebook:
            self._show_in_notebook(line(self._status, progress, 120))
        elif self._terminal:
            columns = shutil.get_terminal_size().columns
            self._write(_CLEAR + line(self._status, progress, columns))

    def note(self, text: str) -> None:
        """Prints a sentence above the line, if the line is shown."""
        if self._terminal:
            self._write(f"{_CLEAR}{text}\n")
        elif self._notebook:
            print(text, file=sys.stderr)

    def close(self) -> None:
        """Clears the line of a terminal; a notebook keeps the last one."""
        if self._terminal and self._last:
            self._write(_CLEAR)
        self._last = ""

    def _write(self, text: str) -> None:
        self._last = text
        sys.stderr.write(text)
        sys.stderr.flush()

    def _show_in_notebook(self, text: str) -> None:
        if text == self._last:
            return
        self._last = text
        data = {"text/plain": text}
        if self._handle is None:
            from IPython.display import (  # type: ignore[import-not-found,unused-ignore]
                display,
            )

            self._handle = display(data, raw=True, display_id=True)
        else:
            self._handle.update(data, raw=True)
