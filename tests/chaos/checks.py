"""What must be true after a run. Each check returns sentences about what is not.

Values in, sentences out: checks_test.py shows that each can find something.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Iterable, Mapping, Optional, Sequence, Tuple

FINAL = ("JOB_STATE_SUCCEEDED", "JOB_STATE_FAILED", "JOB_STATE_CANCELLED")


def check_history(text: str, ranks: int, steps: int, every: int) -> list[str]:
    """The history of a program that saves each `every` steps.

    Lines are "RANK ATTEMPT STEP". An attempt goes on from a step that was saved, and
    the newest such: only the one of the very last line may not have been saved yet.
    """
    lines: dict[int, list[tuple[int, int]]] = {rank: [] for rank in range(ranks)}
    problems = []
    for number, line in enumerate(text.splitlines(), start=1):
        words = line.split()
        if len(words) != 3 or not all(word.isdigit() for word in words):
            problems.append(f"line {number} of the history is broken: {line!r}")
            continue
        rank, attempt, step = map(int, words)
        if rank not in lines:
            problems.append(f"line {number} of the history is of rank {rank}")
            continue
        lines[rank].append((attempt, step))
    for rank, made in lines.items():
        problems += [f"rank {rank}: {text}" for text in _check_rank(made, steps, every)]
    return problems


def _check_rank(made: Sequence[tuple[int, int]], steps: int, every: int) -> Iterable[str]:
    last_attempt, last = 0, 0
    for attempt, step in made:
        if attempt < last_attempt:
            yield f"attempt {attempt} made step {step} after attempt {last_attempt} had begun"
        elif attempt == last_attempt:
            if step <= last:
                yield f"attempt {attempt} made step {step} after step {last}: a double"
            elif step != last + 1:
                yield f"attempt {attempt} made step {step} after step {last}: a gap"
        else:
            saved = last - last % every
            if step - 1 not in (saved, saved - every if last == saved else saved):
                yield (
                    f"attempt {attempt} began with step {step}, and attempt {last_attempt} had "
                    f"made step {last} and saved step {saved}"
                )
        last_attempt, last = attempt, step
    if last != steps:
        yield f"the last step was {last}, not {steps}"


def check_equal(what: str, found: Optional[str], wanted: Optional[str]) -> list[str]:
    """Such as digests of weights; None: there is none."""
    if not wanted:
        return [f"{what}: the undisturbed run has none"]
    if found != wanted:
        return [f"{what}: {found}, but {wanted} without faults"]
    return []


def check_counts(what: str, text: Optional[str], wanted: Sequence[int]) -> list[str]:
    """`text` is numbers, such as "steps samples sum"."""
    found = (text or "").split()
    if found != [str(number) for number in wanted]:
        return [f"{what}: {text!r}, but must be {' '.join(map(str, wanted))}"]
    return []


@dataclasses.dataclass
class Order:
    """A command of the user. `answered`: lockstep said that it was accepted."""

    kind: str  # "submit" or "cancel"
    target: str  # The label of the submission, or the job.
    answered: bool


def check_submits(orders: Sequence[Order], jobs: Sequence[Mapping[str, Any]]) -> list[str]:
    """Each submission has a label of its own, and no name."""
    problems = []
    for order in orders:
        if order.kind != "submit":
            continue
        made = [job for job in jobs if job["spec"]["labels"].get("chaos") == order.target]
        if order.answered and len(made) != 1:
            problems.append(f"the submission {order.target} was accepted and made {len(made)} jobs")
        elif len(made) > 1:
            problems.append(f"the submission {order.target} made {len(made)} jobs")
        for job in made:
            if job["state"] not in FINAL:
                problems.append(f"job {job['name']} of the submission {order.target} has not ended")
    return problems


def check_cancels(orders: Sequence[Order], jobs: Sequence[Mapping[str, Any]]) -> list[str]:
    """The jobs that were to be cancelled never end by themselves."""
    states = {job["name"]: job["state"] for job in jobs}
    problems = []
    for order in orders:
        if order.kind != "cancel" or not order.answered:
            continue
        state = states.get(order.target, "unknown")
        if state != "JOB_STATE_CANCELLED":
            problems.append(f"the cancel of {order.target} was accepted, and it is {state}")
    return problems


Saved = Tuple[int, int]  # The step and the generation of a checkpoint.


@dataclasses.dataclass
class CheckpointOrder:
    """An accepted `lockstep jobs checkpoint`, while no earlier one was open."""

    job: str
    # Of the job when it was ordered.
    generation: int
    committed: int
    before: Optional[Saved]
    # The first one that was not there before.
    found: Optional[Saved] = None
    # The disk was full meanwhile, or an event says why there is none.
    given_up: bool = False


def check_checkpoints(orders: Sequence[CheckpointOrder], last_step: int) -> list[str]:
    """`last_step`: the job saves then without an order."""
    problems = []
    for order in orders:
        if order.given_up:
            continue
        what = f"a checkpoint of {order.job} was ordered after step {order.committed}"
        if order.found is None or order.found == order.before:
            problems.append(f"{what}, and there is none")
        elif order.found[0] >= last_step:
            problems.append(f"{what}, and the job saved only in the end")
        elif order.found[1] == order.generation and order.found[0] < order.committed:
            problems.append(f"{what}, and that of step {order.found[0]} was taken for it")
    return problems


def check_drain(node: Mapping[str, Any], wanted: bool) -> list[str]:
    """A drain that was accepted holds until an undrain is accepted, and not longer."""
    if bool(node.get("drain")) == wanted:
        return []
    accepted = "drain" if wanted else "undrain"
    return [f"the {accepted} of {node['name']} was accepted, and it is {node['state']}"]


def check_runs(name: str, generations: Sequence[int], newest: int) -> list[str]:
    """A small job writes its generation each time that it runs."""
    if not generations:
        return [f"{name} has SUCCEEDED and never ran"]
    if len(set(generations)) < len(generations):
        return [f"{name} ran twice in one generation: {list(generations)}"]
    if max(generations) > newest:
        return [f"{name} ran in generation {max(generations)}, and the newest is {newest}"]
    return []


def check_nodes(nodes: Sequence[Mapping[str, Any]], wanted: Iterable[str]) -> list[str]:
    """All are there, READY, and nothing is held on them."""
    problems = []
    found = {node["name"]: node for node in nodes}
    for name in wanted:
        node = found.get(name)
        if node is None:
            problems.append(f"{name} is not known")
            continue
        if node["state"] != "NODE_STATE_READY":
            problems.append(f"{name} is {node['state']}: {node.get('message', '')}")
        held = node.get("allocated", {})
        if float(held.get("cpus", 0)) or int(held.get("memoryBytes", 0)) or node.get("jobs"):
            problems.append(f"{name} holds {held.get('cpus')} cpus for {node.get('jobs')}")
        for key in ("stuckProcesses", "unknownGangs"):
            if node.get(key):
                problems.append(f"{name} has {key}: {node[key]}")
    return problems


def check_log(name: str, text: str) -> list[str]:
    """The coordinator refuses none of its daemons, and no daemon says that it is broken."""
    found = [
        line
        for line in text.splitlines()
        if "audit: refused worker" in line or " fatal " in line or "assertion" in line.lower()
    ]
    more = f" (and {len(found) - 1} lines more)" if len(found) > 1 else ""
    return [f"the log of {name}: {found[0]}{more}"] if found else []


def check_job(job: Mapping[str, Any], wanted: str = "JOB_STATE_SUCCEEDED") -> list[str]:
    if job.get("state") == wanted:
        return []
    cause = job.get("cause", {})
    return [
        f"{job.get('name', 'a job')} is {job.get('state')}, not {wanted}: "
        f"{cause.get('reason')}: {cause.get('message')}"
    ]
