"""The programs in C++: NCCL engine, gradients on the device, all-reduce, NVML."""

from __future__ import annotations

import json
import re
from typing import Any, Dict, List, Optional, Tuple

import host
import report
from case import Context, program, run, tail
from results import FAILED, PASSED, SKIPPED, Row

RANKS = 2
BENCH_ROUNDS = 5
TEST_LINE = re.compile(r"^\[ *(RUN|OK|FAILED|SKIPPED) *\] (\w+\.\w+)")


def gtest_rows(label: str, output: str, code: int) -> List[Row]:
    """A row for each test of a GoogleTest program, as its lines say."""
    rows: List[Row] = []
    running, said = "", []
    for line in output.splitlines():
        match = TEST_LINE.match(line)
        if not match:
            said.append(line)
            continue
        what, name = match.groups()
        if what == "RUN":
            running, said = name, []
        elif name == running:
            outcome = {"OK": PASSED, "FAILED": FAILED, "SKIPPED": SKIPPED}[what]
            reason = (
                ""
                if what == "OK"
                else " ".join(
                    text for text in said if text.strip() and not text.endswith(": Skipped")
                )
            )
            rows.append(Row(f"{label}: {name.partition('.')[2]}", outcome, reason=reason))
            running = ""
    if running:
        name = running.partition(".")[2]
        rows.append(Row(f"{label}: {name}", FAILED, reason=f"it ended the program, code {code}"))
    elif not rows or (code and not any(row.outcome == FAILED for row in rows)):
        rows.append(Row(label, FAILED, reason=f"exit code {code}: {tail(output)}"))
    return rows


def excused(context: Context, reason: str) -> bool:
    """Whether NCCL's engine may be left out: where a GPU is, for an old driver or NCCL."""
    return context.dry_run or any(word in reason for word in ("older than the CUDA", "too old"))


def no_excuse(context: Context, row: Row) -> Row:
    """The row; it has failed where a GPU is and the test is skipped all the same."""
    if row.outcome != SKIPPED or excused(context, row.reason):
        return row
    return Row(row.name, FAILED, reason=f"skipped on a host with a GPU: {row.reason}")


def gtest(context: Context, label: str, name: str) -> List[Row]:
    code, output = run(context, name, [program(name)], timeout=900)
    return [no_excuse(context, row) for row in gtest_rows(label, output, code)]


def nccl_engine(context: Context) -> List[Row]:
    return gtest(context, "NCCL engine", "collective_nccl_gpu_test")


def device_gradients(context: Context) -> List[Row]:
    return gtest(context, "gradients on the device", "worker_device_gradients_gpu_test")


def bench_command(context: Context, ranks: int) -> List[str]:
    devices = range(ranks) if ranks <= max(1, context.gpus) else [0] * ranks
    return [
        program("lockstep-bench"), "allreduce", "--backend", "nccl", "--ranks", str(ranks),
        "--devices", ",".join(map(str, devices)), "--minbytes", "1K", "--maxbytes", "64M",
        "--stepfactor", "16", "--json", str(context.results / "bench.json"),
    ]  # fmt: skip


def bench(context: Context) -> List[Row]:
    """`lockstep bench allreduce --backend nccl`: a row for each size."""
    ranks = max(RANKS, context.gpus)
    times: Dict[int, List[List[float]]] = {}
    for number in range(BENCH_ROUNDS):
        code, output = run(context, f"bench-{number}", bench_command(context, ranks), timeout=300)
        if "backend nccl cannot be used" in output:
            row = Row("all-reduce over NCCL", SKIPPED, reason=tail(output, 1))
            return [no_excuse(context, row)]
        if code:
            return [Row("all-reduce over NCCL", FAILED, reason=f"exit code {code}: {tail(output)}")]
        document = json.loads((context.results / "bench.json").read_text())
        for result in document["results"]:
            times.setdefault(result["bytes"], []).append([result["in_place"]["seconds"]])
    return [bench_row(context, ranks, size, rounds) for size, rounds in sorted(times.items())]


def bench_row(context: Context, ranks: int, size: int, rounds: List[List[float]]) -> Row:
    moved = size * 2 * (ranks - 1) / ranks * 1e-9
    rate, low, high = report.ratio_of(
        report.Result("bench", "", rounds, [[moved]] * len(rounds), ranks=ranks)
    )
    where = "a GPU each" if ranks <= context.gpus else "one GPU, by sockets"
    return Row(
        f"all-reduce over NCCL: {report.size(size)}",
        PASSED,
        f"{report.seconds(report.median(report.pool(rounds)))}, "
        f"{rate:.3g} GB/s bus [{low:.3g}, {high:.3g}]",
        f"{ranks} ranks, {where}; results right",
        {"bytes": size, "seconds": rounds, "bus_gb_per_s": [rate, low, high]},
    )


def check_lines(output: str) -> Dict[str, List[str]]:
    """What lockstep-gpu-check said of each part, and under "cannot" of all."""
    said: Dict[str, List[str]] = {}
    for line in output.splitlines():
        what, *words = line.split("\t")
        if what == "cannot":
            said["cannot"] = words
        elif what in ("passed", "failed", "skipped") and words:
            said[words[0]] = [what, *words[1:]]
    return said


def check_rows(label: str, parts: List[str], output: str, code: int, spoiled: str) -> List[Row]:
    """A row for each part; the spoiled one must have failed, and the others passed."""
    said = check_lines(output)
    if "cannot" in said:
        return [Row(label, SKIPPED, reason=" ".join(said["cannot"]))]
    rows: List[Row] = []
    for part in parts if not spoiled else [spoiled]:
        outcome, *words = said.get(part, ["nothing"])
        name = f"{label}: {part}" + (", one value spoiled" if spoiled else "")
        if outcome == "skipped":
            rows.append(Row(name, SKIPPED, reason=" ".join(words)))
        elif spoiled:
            found = outcome == "failed" and "wrong" in " ".join(words)
            rows.append(
                Row(name, PASSED, "it was found")
                if found
                else Row(name, FAILED, reason=f"it was not found: {tail(output)}")
            )
        elif outcome == "passed" and code == 0 and float(words[0]) > 0:
            rows.append(Row(name, PASSED, " ".join(words), "values right"))
        else:
            rows.append(Row(name, FAILED, reason=f"exit code {code}: {tail(output)}"))
    return rows


def check(context: Context) -> List[Row]:
    """The check of GPUs that the worker daemon runs, also with a value that is wrong."""
    rows: List[Row] = []
    runs = [(str(gpu), f"check of GPU {gpu}", ["memory", "matmul"]) for gpu in range(context.gpus)]
    if context.gpus > 1:
        runs.append(("0,1", "check of GPUs 0 and 1", ["all_reduce"]))
    for devices, label, parts in runs or [("0", "check", ["memory"])]:
        flags = ["--all-reduce"] if parts == ["all_reduce"] else []
        for spoiled in ["", *parts]:
            more = ["--spoil", spoiled, "--seconds", "1"] if spoiled else []
            code, output = run(
                context,
                f"check-{devices}{spoiled and '-' + spoiled}",
                ["env", f"CUDA_VISIBLE_DEVICES={devices}", program("lockstep-gpu-check")]
                + [*flags, *more],
                timeout=120,
            )
            found = check_rows(label, parts, output, code, spoiled)
            rows.extend(no_excuse(context, row) for row in found)
    return rows


# Of nvidia-smi: its field, ours, what one of its units is in ours, and by how
# many of its units they may differ.
FIELDS: List[Tuple[str, str, float, float]] = [
    ("utilization.gpu", "utilization", 0.01, 5),
    ("utilization.memory", "memory_access", 0.01, 5),
    ("memory.total", "memory_total", 1 << 20, 1),
    ("memory.used", "memory_used", 1 << 20, 16),
    ("memory.free", "memory_free", 1 << 20, 16),
    ("memory.reserved", "memory_reserved", 1 << 20, 1),
    ("power.draw", "power", 1, 10),
    ("enforced.power.limit", "power_limit", 1, 0.01),
    ("temperature.gpu", "temperature_core", 1, 2),
    ("temperature.memory", "temperature_memory", 1, 2),
    ("clocks.sm", "clock_sm", 1e6, 30),
    ("clocks.mem", "clock_memory", 1e6, 30),
    ("clocks.max.sm", "clock_max_sm", 1e6, 0),
    ("clocks.max.mem", "clock_max_memory", 1e6, 0),
    ("pcie.link.gen.current", "pcie_generation", 1, 0),
    ("pcie.link.width.current", "pcie_width", 1, 0),
    ("ecc.errors.corrected.volatile.total", "ecc_corrected_volatile", 1, 0),
    ("ecc.errors.uncorrected.volatile.total", "ecc_uncorrected_volatile", 1, 0),
    ("ecc.errors.corrected.aggregate.total", "ecc_corrected_aggregate", 1, 0),
    ("ecc.errors.uncorrected.aggregate.total", "ecc_uncorrected_aggregate", 1, 0),
]
# What changes by itself is compared again.
ATTEMPTS = 5


def number(text: str) -> Optional[float]:
    """nvidia-smi's number; None for "[N/A]" and the like."""
    try:
        return float(text)
    except ValueError:
        return None


def smi_by_uuid(field: str) -> Dict[str, Optional[float]]:
    return {uuid: number(text) for uuid, text in host.nvidia_smi("uuid", field) or []}


def our_gpus(context: Context, library: str) -> Dict[str, Dict[str, Any]]:
    command = [program("gpu_readings"), *([library] if library else [])]
    code, output = run(context, "readings", command, timeout=60)
    if code:
        raise RuntimeError(f"gpu_readings ended with {code}: {tail(output)}")
    return {gpu["uuid"]: gpu for gpu in json.loads(output)["gpus"]}


def compare(
    context: Context, field: str, ours: str, unit: float, slack: float, library: str
) -> Row:
    """One reading of all GPUs, between two of nvidia-smi's."""
    label = f"NVML as nvidia-smi: {field}"
    wrong, compared = "", 0
    for _ in range(ATTEMPTS):
        before, gpus, after = smi_by_uuid(field), our_gpus(context, library), smi_by_uuid(field)
        wrong, compared = "", 0
        for uuid, gpu in gpus.items():
            ends = [one for one in (before.get(uuid), after.get(uuid)) if one is not None]
            if len(ends) < 2:
                continue  # nvidia-smi does not have it.
            value = gpu["values"].get(ours)
            compared += 1
            if value is None:
                wrong = f"GPU {gpu['index']}: nvidia-smi has {ends[0]}, lockstep nothing"
            elif not min(ends) - slack <= value / unit <= max(ends) + slack:
                wrong = f"GPU {gpu['index']}: nvidia-smi has {ends}, lockstep {value / unit}"
        if not wrong:
            break
    if wrong:
        return Row(label, FAILED, reason=wrong)
    if not compared:
        return Row(label, SKIPPED, reason="nvidia-smi does not have it here")
    return Row(label, PASSED, f"{compared} GPUs")


def readings(context: Context, library: str = "") -> List[Row]:
    """What the worker daemon reads, beside nvidia-smi."""
    label = "NVML as nvidia-smi"
    known = host.nvidia_smi("uuid", "name", "pci.bus_id")
    if known is None:
        return [Row(label, SKIPPED, reason="nvidia-smi is missing or does not answer")]
    gpus = our_gpus(context, library)
    theirs = {uuid: (name, bus.upper()) for uuid, name, bus in known}
    ours = {uuid: (gpu["name"], gpu["pci_bus_id"].upper()) for uuid, gpu in gpus.items()}
    rows = [
        Row(f"{label}: uuid, name, pci.bus_id", PASSED, f"{len(ours)} GPUs")
        if ours == theirs
        else Row(f"{label}: uuid, name, pci.bus_id", FAILED, reason=f"{ours} is not {theirs}")
    ]
    return rows + [compare(context, *field, library) for field in FIELDS]
