"""Asks the joined program of this rank for a trace by its framework's profiler.

  python -m lockstep.profile --seconds 5

Run it in the rank, as its user: `lockstep jobs profile` does so by a session. The
program begins at the end of a step, records for the seconds, and writes a Chrome
trace (PyTorch) or a folder for TensorBoard (JAX) to `profiles/` in the job's output
directory, or in the working directory where there is none. Prints its path.

Exit codes: 0: it is written. 1: it failed. 3: no program of this rank has joined
its job, or it has no profiler. 4: the program ended no step in time.

It needs the standard library only.
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import shutil
import signal
import sys
import time
from typing import Any, NoReturn, Optional

from ._mailbox import (
    MOST_SECONDS,
    PARENTS,
    VERSION,
    Mailbox,
    Ready,
    folder_in,
    private,
    read_object,
    read_ready,
    remove,
    write_first,
)

FAILED, NOT_JOINED, NO_STEP = 1, 3, 4
# For what the program does between its last step and the answer.
_WRITING_S = 300.0
_POLL_S = 0.1


class _Failure(Exception):
    def __init__(self, code: int, sentence: str) -> None:
        super().__init__(sentence)
        self.code = code


def _find(link_file: str) -> "tuple[Mailbox, Ready]":
    if not link_file:
        raise _Failure(NOT_JOINED, "this is not a rank of a program: LOCKSTEP_LINK_FILE is not set")
    for parent in PARENTS:
        if not private(folder_in(parent)):
            continue
        box = Mailbox(folder_in(parent), link_file)
        ready = read_ready(box.ready)
        if ready is not None and ready.link_file == link_file and ready.alive():
            return box, ready
    raise _Failure(
        NOT_JOINED,
        "no program of this rank has joined its job: call lockstep.join() in it",
    )


class Requester:
    """One request, to its end. Every wait has a deadline."""

    def __init__(self, box: Mailbox, ready: Ready, options: argparse.Namespace) -> None:
        self._box = box
        self._ready = ready
        self._options = options
        self._nonce = secrets.token_hex(16)
        self._text = json.dumps(
            {
                "version": VERSION,
                "nonce": self._nonce,
                "framework": options.framework,
                "seconds": options.seconds,
                "rank": options.rank,
                "directory": os.getcwd(),
                "expires": time.time() + options.wait,
            }
        )

    def run(self) -> dict[str, Any]:
        """Returns the answer. Raises _Failure."""
        self._put()
        try:
            wait, seconds = self._options.wait, self._options.seconds
            self._await(
                ("recording", "writing", "done"),
                wait,
                NO_STEP,
                f"the program ended no step within {wait} s, so no trace was begun: it reports"
                " steps by session.step(); --wait waits longer",
            )
            self._await(
                ("writing", "done"),
                seconds + wait,
                NO_STEP,
                f"the program ended no step within {wait} s after the {seconds} s: it writes the"
                " trace once it does",
            )
            return self._await(
                ("done",), _WRITING_S, FAILED, f"no trace was written within {_WRITING_S:.0f} s"
            )
        finally:
            self.withdraw()

    def withdraw(self) -> None:
        """The program does not begin, if it has not yet."""
        for path in (self._box.request, self._box.answer):
            if (read_object(path) or {}).get("nonce") == self._nonce:
                remove(path)

    def _put(self) -> None:
        for _ in range(2):
            if write_first(self._box.request, self._text):
                return
            # Of one that was killed, perhaps.
            other = read_object(self._box.request) or {}
            expires = other.get("expires")
            if isinstance(expires, (int, float)) and expires > time.time():
                break
            remove(self._box.request)
        raise _Failure(FAILED, "another trace of this rank was asked for: try again after it")

    def _await(
        self, states: "tuple[str, ...]", timeout: float, code: int, sentence: str
    ) -> dict[str, Any]:
        deadline = time.monotonic() + timeout
        while True:
            answer = read_object(self._box.answer) or {}
            if answer.get("nonce") == self._nonce:
                if answer.get("state") == "failed":
                    why = str(answer.get("message"))
                    raise _Failure(NOT_JOINED if answer.get("none") else FAILED, why)
                if answer.get("state") in states:
                    return answer
            if not self._ready.alive():
                raise _Failure(FAILED, "the program ended before the trace was written")
            if time.monotonic() > deadline:
                raise _Failure(code, sentence)
            time.sleep(_POLL_S)


def _interrupted(number: int, _: object) -> NoReturn:
    raise _Failure(FAILED, f"ended by {signal.Signals(number).name}")


def _options(arguments: Optional["list[str]"]) -> argparse.Namespace:
    def within(least: int, most: int) -> Any:
        def number(text: str) -> int:
            value = int(text)
            if not least <= value <= most:
                raise argparse.ArgumentTypeError(f"{value} is not from {least} to {most}")
            return value

        return number

    parser = argparse.ArgumentParser(
        prog="python -m lockstep.profile",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--seconds", type=within(1, MOST_SECONDS), default=5)
    parser.add_argument("--wait", type=within(1, 600), default=30, help="seconds for a step's end")
    parser.add_argument("--with", dest="framework", choices=("torch", "jax"), default="")
    parser.add_argument("--rank", type=within(0, 1 << 20), help="for names (default: $RANK)")
    parser.add_argument(
        "--copy",
        action="store_true",
        help="print the path, a line with a number, and so many bytes: of the file, or of the"
        " Chrome trace in the folder",
    )
    options = parser.parse_args(arguments)
    if options.rank is None:
        rank = os.environ.get("LOCKSTEP_RANK", "")
        options.rank = int(rank) if rank.isdigit() else 0
    return options


def _print(answer: dict[str, Any], copy: bool) -> None:
    out = sys.stdout.buffer
    path = str(answer.get("path")).replace("\n", "?")
    out.write(os.fsencode(path) + b"\n")
    if copy:
        file = answer.get("copy") or None
        size = os.path.getsize(file) if file else 0
        out.write(f"{size}\n".encode())
        if file:
            with open(file, "rb") as trace:
                shutil.copyfileobj(trace, out)
    out.flush()


def main(arguments: Optional["list[str]"] = None) -> int:
    options = _options(arguments)
    try:
        # A session that ends sends SIGHUP.
        for number in (signal.SIGHUP, signal.SIGTERM, signal.SIGINT):
            signal.signal(number, _interrupted)
        box, ready = _find(os.environ.get("LOCKSTEP_LINK_FILE", ""))
        _print(Requester(box, ready, options).run(), options.copy)
    except _Failure as failure:
        print(failure, file=sys.stderr)
        return failure.code
    except OSError as error:
        print(f"no trace: {error}", file=sys.stderr)
        return FAILED
    return 0


if __name__ == "__main__":
    sys.exit(main())
