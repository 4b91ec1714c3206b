"""The cases in PyTorch: mixed groups, DDP over NCCL, phases. Programs are ranks."""

from __future__ import annotations

import json
import re
import sys
from typing import Any, Dict, List, Tuple

import report
from case import FOLDER, Context, program, run, tail
from results import FAILED, PASSED, SKIPPED, Row

NOTHING = 77
RANKS = 2
MUST = 0.995
DRY = "dry run on the CPU, gloo in place of NCCL"


class Skipped(Exception):
    """The program cannot run here; it said why."""


def launch(
    context: Context, name: str, ranks: int, timeout: int = 300
) -> Tuple[Dict[str, Any], List[Any]]:
    """Runs programs/NAME.py; returns the result of rank 0, and the pages of all.

    Raises:
      Skipped: the program says why it cannot run here.
      RuntimeError: a rank failed.
    """
    pages, result = context.results / f"{name}-pages.json", context.results / f"{name}.json"
    result.unlink(missing_ok=True)
    command = [
        program("gpu_ranks"), "--ranks", str(ranks), "--pages", str(pages),
        "--timeout", str(timeout), "--", sys.executable,
        str(FOLDER / "suite" / "programs" / f"{name}.py"),
        "--device", "cpu" if context.dry_run else "cuda", "--result", str(result),
    ]  # fmt: skip
    code, output = run(context, name, command, timeout=timeout + 60)
    if code == NOTHING:
        raise Skipped(tail(output, 1))
    if code:
        raise RuntimeError(f"exit code {code}: {tail(output)} (all of it: {context.log(name)})")
    return json.loads(result.read_text()), json.loads(pages.read_text())


def remark(context: Context, text: str = "") -> str:
    return "; ".join(part for part in (text, DRY if context.dry_run else "") if part)


def mixed(context: Context) -> List[Row]:
    """Two ranks in a group of lockstep for the CPU and NCCL for the GPU."""
    label = "cpu:lockstep,cuda:nccl"
    try:
        found, _ = launch(context, "mixed", RANKS)
    except Skipped as why:
        return [Row(label, SKIPPED, reason=str(why))]
    return [
        Row(f"{label}: {name}", SKIPPED, reason=f"left out: {DRY}")
        if outcome == "left out"
        else Row(f"{label}: {name}", PASSED, reason=remark(context))
        for name, outcome in found["checks"].items()
    ]


def replica(context: Context) -> List[Row]:
    """Two ranks of a Replica whose model is on the GPU."""
    label = "Replica with its model on the device"
    try:
        found, _ = launch(context, "replica", RANKS)
    except Skipped as why:
        return [Row(label, SKIPPED, reason=str(why))]
    ends = set(re.findall(r"ends with (\w{64})", context.log("replica").read_text()))
    if len(ends) != 1:
        return [Row(label, FAILED, reason=f"the ranks end with {len(ends)} states, not with one")]
    return [Row(label, PASSED, f"a step {report.seconds(found['step'])}", remark(context))]


def ddp(context: Context) -> List[Row]:
    """A step of DDP with session.step() beside the same without."""
    label = "DDP with session.step() / without"
    ranks = RANKS if context.dry_run else context.gpus
    try:
        found, pages = launch(context, "ddp_step", ranks, timeout=600)
    except Skipped as why:
        return [Row(label, SKIPPED, reason=str(why))]
    return [ddp_row(context, label, ranks, found, pages)]


def ddp_row(
    context: Context, label: str, ranks: int, found: Dict[str, Any], pages: List[Any]
) -> Row:
    ours, theirs = ([[one] for one in found[side]] for side in ("with", "without"))
    value, low, high = report.ratio_of(
        report.Result("ddp", "the same without", ours, theirs, ranks=ranks, paired=True)
    )
    step = report.seconds(report.median(found["without"]) / found["steps"])
    must = "not judged" if context.dry_run else f"must be {MUST}"
    figure = f"{value:.4f} of the rate [{low:.4f}, {high:.4f}], {must}; a step {step}"
    where = f"{ranks} ranks over {found['backend']}"
    values = {"ratio": [value, low, high], "rounds": found}
    counted = [page and page["steps"] for page in pages]
    if counted != [found["reported"]] * ranks:
        reason = f"the pages count {counted} steps, and each rank reported {found['reported']}"
        return Row(label, FAILED, figure, reason, values)
    if low >= MUST or context.dry_run:
        return Row(label, PASSED, figure, remark(context, where), values)
    too_slow = high < MUST
    reason = "it is slower" if too_slow else "the interval is too wide to tell"
    return Row(label, FAILED, figure, f"{reason}; {where}", values)


def phases(context: Context) -> List[Row]:
    """The page's phases, beside what CUDA's events measured of the same work."""
    label = "phases"
    try:
        found, pages = launch(context, "phases", 1)
    except Skipped as why:
        return [Row(label, SKIPPED, reason=str(why))]
    page = pages[0]
    if page is None:
        return [Row(label, FAILED, reason="the rank has no page")]
    rows = [phase_row(context, name, one, page) for name, one in found["phases"].items()]
    total, wall = sum(page["seconds"].values()), found["wall"]
    good = wall <= total <= wall * 1.02 + (0.5 if context.dry_run else 0.05)
    rows.append(
        Row(
            f"{label}: all of them are the rank's time",
            PASSED if good else FAILED,
            f"{total:.3f} s of {wall:.3f} s",
            remark(context),
        )
    )
    return rows


def problem(context: Context, seconds: float, one: Dict[str, Any]) -> str:
    """Why the seconds of a phase on the page are not right; empty: they are."""
    host, device, steps = one["host"], one["device"], one["steps"]
    # The calls that begin and end it. A dry run's machine does other work, too.
    slack = 0.1 * host + 0.002 * steps if context.dry_run else 0.02 * host + 0.0002 * steps
    if not host - 1e-4 <= seconds <= host + slack:
        return f"the program's clock has {host:.4f} s for it"
    # The device has it from the first launch on, and the host hears of its end.
    if device is not None and not 0.95 * device <= seconds <= 1.10 * device + 0.0005 * steps:
        return f"CUDA's events have {device:.4f} s for it"
    return ""


def phase_row(context: Context, name: str, one: Dict[str, Any], page: Dict[str, Any]) -> Row:
    label, seconds = f"phases: {name}", page["seconds"][name]
    if one.get("left_out"):
        return Row(label, SKIPPED, reason=f"{one['left_out']}: {DRY}")
    wrong = problem(context, seconds, one)
    device = "" if one["device"] is None else f", {seconds / one['device']:.3f} of the device's"
    figure = f"{seconds:.4f} s on the page{device}"
    values = {"page": seconds, **one}
    if wrong:
        return Row(label, FAILED, figure, wrong, values)
    return Row(label, PASSED, figure, remark(context, one.get("remark", "")), values)
