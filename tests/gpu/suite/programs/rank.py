"""What the programs have in common: a rank, its device, its process group."""

from __future__ import annotations

import argparse
import datetime
import json
import os
import pathlib
import sys
from typing import Any, NoReturn

import torch
import torch.distributed as dist

NOTHING = 77


def skip(why: str) -> NoReturn:
    """Ends the program where it cannot run."""
    print(why, flush=True)
    sys.exit(NOTHING)


class Rank:
    """This process among the ranks that gpu_ranks has started.

    Attributes:
      number, ranks: as torch.distributed has them.
      gpu: whether there is one; else all of it runs on the CPU.
      device: where the model is.
    """

    def __init__(self) -> None:
        parser = argparse.ArgumentParser()
        parser.add_argument("--device", choices=("cuda", "cpu"), required=True)
        parser.add_argument("--result", type=pathlib.Path, required=True)
        args = parser.parse_args()
        self._result = args.result
        self.number, self.ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        self.gpu = args.device == "cuda"
        self.device = torch.device("cpu")
        torch.manual_seed(1)
        if not self.gpu:
            torch.set_num_threads(1)
            return
        gpus = torch.cuda.device_count()
        if self.ranks > gpus:
            # NCCL refuses two ranks of one host on one GPU.
            os.environ["NCCL_HOSTID"] = f"rank-{self.number}"
        self.device = torch.device("cuda", self.number % gpus)
        torch.cuda.set_device(self.device)

    def form(self, backend: str) -> None:
        """Makes the default process group."""
        dist.init_process_group(
            backend,
            init_method=f"file://{os.environ['RANK_FOLDER']}/store",
            rank=self.number,
            world_size=self.ranks,
            timeout=datetime.timedelta(seconds=120),
        )

    def wait(self) -> None:
        """Until the device has done what it was given."""
        if self.gpu:
            torch.cuda.synchronize()

    def finish(self, result: Any) -> None:
        """Writes the result, of rank 0."""
        if self.number == 0:
            self._result.write_text(json.dumps(result))
