"""Results: their statistics, how they are judged, and the one format of them."""
import dataclasses
import itertools
import json
import math
import os
import pathlib
import random

SEED = 1  # of the bootstrap
NOT_MEASURED = 77  # exit code: no peer, no rights, or no quiet machine


class BenchError(Exception):
    """A benchmark failed."""
    code = 1


class NotMeasured(BenchError):
    """A peer is missing, a right is missing, or the machine stays busy."""
    code = NOT_MEASURED


@dataclasses.dataclass
class Result:
    """Two sides of one comparison. `ours` and `theirs` hold the samples of each
    round: equally many rounds, none empty."""
    id: str
    peer: str  # what ours is compared with, and its settings
    ours: list
    theirs: list
    bytes: int = 0
    ranks: int = 0
    verified: bool = True
    unit: str = "seconds"  # or "bytes"
    checked: str = ""  # how it was verified
    must: float = 0  # what peer / ours must be; 0: nothing was set
    aim: float = 0
    limit: float = 0  # seconds that nothing could take less than, in this run
    limit_what: str = ""
    repeated_rounds: int = 0  # because others used the machine
    busy_rounds: int = 0  # kept although others used the machine
    parted_runs: int = 0  # repeated because processors parted (CoreDistance)
    kept_parted_runs: int = 0
    # The processors had no common cache all the time. What must be was measured
    # on machines where they have one.
    apart: bool = False
    # The sides took samples by turns in the same processes, so that what the
    # machine did meanwhile is in both.
    by_turns: bool = False
    # The ratio is the median of the samples' own ratios.
    paired: bool = False

    def name(self):
        return f"{self.id} {size(self.bytes)}" if self.bytes else self.id


def percentile(values, quantile):
    """By the nearest rank; 0 for no values."""
    if not values:
        return 0
    ordered = sorted(values)
    return ordered[max(0, min(len(ordered), math.ceil(quantile * len(ordered))) - 1)]


def median(values):
    return percentile(values, 0.5)


def pool(rounds):
    return list(itertools.chain.from_iterable(rounds))


def ratio_of(result):
    """peer / ours, above 1 where ours takes less, and its 95 % interval: a
    bootstrap of 10,000 draws of whole rounds, as samples of one round share the
    state of the machine."""
    if result.paired:
        parts = [[sorted(b / a for a, b in zip(ours, theirs))]
                 for ours, theirs in zip(result.ours, result.theirs)]
        estimate = lambda drawn: median(pool(part[0] for part in drawn))
    else:
        parts = [(sorted(ours), sorted(theirs))
                 for ours, theirs in zip(result.ours, result.theirs)]
        estimate = lambda drawn: (median(pool(part[1] for part in drawn)) /
                                  median(pool(part[0] for part in drawn)))
    draw = random.Random(SEED)
    ratios = [estimate(draw.choices(parts, k=len(parts))) for _ in range(10000)]
    return estimate(parts), percentile(ratios, 0.025), percentile(ratios, 0.975)


def seconds(value):
    for most, scale, text in ((1e-5, 1e6, "{:.3f} us"), (1e-3, 1e6, "{:.1f} us"),
                              (1, 1e3, "{:.3f} ms")):
        if value < most:
            return text.format(value * scale)
    return f"{value:.3f} s"


def size(count):
    for unit, name in ((1 << 20, "MiB"), (1 << 10, "KiB")):
        if count >= unit:
            return f"{count // unit} {name}"
    return f"{count} B"


def print_results(results):
    print(f"{'id':20} {'bytes':>9} {'ours p50':>12} {'p99':>12} {'peer p50':>12} "
          f"{'p99':>12}  {'peer/ours (95 %)':22} verified")
    for result in results:
        shown = seconds if result.unit == "seconds" else (
            lambda value: f"{value / (1 << 20):.1f} MiB")
        ours, theirs = pool(result.ours), pool(result.theirs)
        value, low, high = ratio_of(result)
        print(f"{result.id:20} {size(result.bytes):>9} {shown(median(ours)):>12} "
              f"{shown(percentile(ours, 0.99)):>12} {shown(median(theirs)):>12} "
              f"{shown(percentile(theirs, 0.99)):>12}  {value:.3f} [{low:.3f}, "
              f"{high:.3f}]   {'yes' if result.verified else 'NO'}")
        if result.checked:
            print(f"  checked: {result.checked}")
        if result.limit:
            print(f"  limit: {result.limit_what}: {seconds(result.limit)}; ours "
                  f"takes {median(ours) / result.limit:.3f} of it; in that time "
                  f"the ratio would be {median(theirs) / result.limit:.3f}")


def is_steady(result):
    """Whether the machine was as quick in one round as in the next: the peer's
    medians are within half of each other. Neighbours that use the other threads
    of a virtual machine's cores show in no counter. Samples by turns need no
    steady machine."""
    medians = [median(samples) for samples in result.theirs]
    return result.by_turns or max(medians) <= 1.5 * min(medians)


def judge(results, factor=1, on_median=False):
    """(exit code, a line for each result that must be something, why).

    What is missed on a machine that others used, that was much quicker in one
    round than in another, or whose processors shared no cache, was not
    measured."""
    lines, wrong, missed, quiet = [], [], [], False
    for result in results:
        if not result.verified:
            wrong.append(result.name())
            lines.append(f"{result.name()}: WRONG DATA")
        elif result.must > 0:
            value, low, _ = ratio_of(result)
            shown, must = (value if on_median else low), result.must * factor
            lines.append(
                f"{result.name()} against {result.peer.split(': ')[0]}: "
                f"{'ratio' if on_median else 'lower end'} {shown:.4f}, must "
                f"{must:.3f}, aim {result.aim:.3f}: "
                f"{'met' if shown >= must else 'MISSED'}")
            if shown < must:
                missed.append(result.name())
                quiet |= not (result.busy_rounds or result.kept_parted_runs or
                              result.apart) and is_steady(result)
    if wrong:
        return 1, lines, "wrong data: " + ", ".join(wrong)
    if missed and quiet:
        return 1, lines, "missed: " + ", ".join(missed)
    if missed:
        return NOT_MEASURED, lines, (
            "missed on a busy or unsteady machine, or without a common cache: " + ", ".join(missed))
    return 0, lines, ""


def entry_of(result):
    value, low, high = ratio_of(result)
    entry = {"id": result.id, "bytes": result.bytes, "ranks": result.ranks,
             "peer": result.peer, "rounds": len(result.ours),
             "samples": len(pool(result.ours))}
    for side, rounds in (("ours", result.ours), ("peer", result.theirs)):
        entry[f"{side}_{result.unit}"] = median(pool(rounds))
        entry[f"{side}_p99_{result.unit}"] = percentile(pool(rounds), 0.99)
        entry[f"{side}_rounds_{result.unit}"] = [median(r) for r in rounds]
    entry.update(
        ratio=value, ratio_low=low, ratio_high=high,
        ratio_is="the median of ratios" if result.paired else "the ratio of medians",
        verified=result.verified, repeated_rounds=result.repeated_rounds,
        busy_rounds=result.busy_rounds, parted_runs=result.parted_runs,
        kept_parted_runs=result.kept_parted_runs)
    if result.checked:
        entry["checked"] = result.checked
    if result.must:
        entry.update(must=result.must, aim=result.aim,
                     met=result.verified and low >= result.must)
    if result.limit:
        entry.update(limit_seconds=result.limit, limit_what=result.limit_what,
                     limit_ratio=median(pool(result.theirs)) / result.limit)
    return entry


def add_to_json(path, machine, versions, results, seeds=()):
    """Adds the results to the file, or makes it: {machine, versions, seeds,
    results}. Of the samples it keeps each round's median. BenchError where
    something else is at `path`."""
    path = pathlib.Path(path)
    document = {}
    if path.exists():
        try:
            document = json.loads(path.read_text())
        except ValueError:
            document = None
        if not isinstance(document, dict):
            raise BenchError(f"{path} is no JSON object: remove it")
    document["machine"] = machine
    document.setdefault("versions", {}).update(versions)
    document.setdefault("seeds", {}).update({"bootstrap": str(SEED)}, **dict(seeds))
    document.setdefault("results", []).extend(entry_of(r) for r in results)
    new = path.with_name(path.name + ".new")
    new.write_text(json.dumps(document, indent=2, sort_keys=True) + "\n")
    os.replace(new, path)
