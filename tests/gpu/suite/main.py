"""Runs the cases, prints the table, writes the results: see ../run --help."""

from __future__ import annotations

import argparse
import os
import pathlib
import sys
import traceback
from typing import Callable, Dict, List, NoReturn

import native
import results
import training
from case import Context

NOTHING = 77

CASES: Dict[str, Callable[[Context], List[results.Row]]] = {
    "nccl": native.nccl_engine,
    "gradients": native.device_gradients,
    "bench": native.bench,
    "check": native.check,
    "readings": native.readings,
    "mixed": training.mixed,
    "replica": training.replica,
    "ddp": training.ddp,
    "phases": training.phases,
}


def skip(why: str) -> NoReturn:
    print(f"run: {why}", file=sys.stderr)
    sys.exit(NOTHING)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="run")
    parser.add_argument("--results", type=pathlib.Path, required=True)
    parser.add_argument("--only", default="")
    parser.add_argument("--dry-run", action="store_true")
    args = parser.parse_args()
    if not any(args.only in name for name in CASES):
        parser.error(f"--only {args.only}: the cases are {', '.join(CASES)}")
    return args


def run_case(name: str, context: Context) -> List[results.Row]:
    print(f"== {name}", flush=True)
    try:
        return CASES[name](context)
    except Exception as error:  # The other cases can still say something.
        (context.results / f"{name}.log").write_text(traceback.format_exc())
        return [results.Row(name, results.FAILED, reason=f"{type(error).__name__}: {error}")]


def main() -> int:
    args = parse()
    try:
        import torch
    except ImportError:
        skip(f"there is no PyTorch in {sys.executable}; set PYTHON=... or use --image")
    gpus = 0 if args.dry_run else torch.cuda.device_count()
    if not gpus and not args.dry_run:
        built = torch.version.cuda
        skip(
            f"PyTorch {torch.__version__} sees no GPU here"
            + ("" if built else ": it is built without CUDA")
        )
    import host

    facts = host.facts()
    library = host.nccl_library()
    if library:
        os.environ[host.VARIABLE] = library
    context = Context(args.results, args.dry_run, gpus)
    rows = [row for name in CASES if args.only in name for row in run_case(name, context)]
    lines = [f"{name + ':':<14} {value}" for name, value in facts.items()]
    if args.dry_run:
        lines.append("DRY RUN on the CPU, gloo in place of NCCL: this says nothing about a GPU")
    text = "\n".join([*lines, "", results.table(rows), "", results.summary(rows)])
    results.write(args.results, {**facts, "dry_run": args.dry_run}, rows, text)
    print(f"\n{text}\nwritten to {args.results}/results.json and results.txt")
    return results.exit_code(rows)


if __name__ == "__main__":
    sys.exit(main())
