"""Lightning, Accelerate and Hugging Face's Trainer on CPUs, over lockstep.

PYTHONPATH=build/release/python python3 tests/python/torch_frameworks_test.py
"""

from __future__ import annotations

import os
import socket
import unittest
from typing import Any

import torch_ranks

try:
    import accelerate
    import lightning
    import torch
    import torch.distributed as dist
    import transformers
    from torch import nn
except ImportError:
    Module: Any = object
else:
    Module = lightning.LightningModule

STEPS = 5


class Lit(Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 2)

    def training_step(self, batch: Any, _: int) -> Any:
        return self.layer(batch).square().mean()

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), lr=0.1)


def check_alike(parameters: Any) -> None:
    """The ranks had different data, so an exchange made their parameters equal."""
    assert dist.get_backend() == "lockstep", dist.get_backend()
    own = torch.cat([one.detach().reshape(-1) for one in parameters])
    ranks = [torch.empty_like(own) for _ in range(dist.get_world_size())]
    dist.all_gather(ranks, own)
    assert all(torch.equal(one, own) for one in ranks), ranks
    assert own.isfinite().all(), own


def lightning_trains() -> None:
    from lightning.pytorch.strategies import DDPStrategy

    torch.manual_seed(1)
    model = Lit()
    before = model.layer.weight.detach().clone()
    trainer = lightning.Trainer(
        accelerator="cpu",
        devices=2,
        strategy=DDPStrategy(process_group_backend="lockstep"),
        max_steps=STEPS,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
    )
    data = torch.arange(64 * 4, dtype=torch.float32).reshape(64, 4) / 256
    trainer.fit(model, torch.utils.data.DataLoader(data, batch_size=4))
    assert trainer.global_step == STEPS
    assert not torch.equal(model.layer.weight, before)
    check_alike(model.parameters())


def accelerate_trains() -> None:
    # Accelerate chooses gloo for CPUs by itself, unless there is a process group.
    dist.init_process_group("lockstep")
    accelerator = accelerate.Accelerator(cpu=True)
    assert accelerator.num_processes == 2
    torch.manual_seed(1)
    model = nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model, optimizer = accelerator.prepare(model, optimizer)
    generator = torch.Generator().manual_seed(accelerator.process_index)
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = model(torch.randn(8, 4, generator=generator)).square().mean()
        accelerator.backward(loss)
        optimizer.step()
    index = torch.tensor([accelerator.process_index])
    assert accelerator.gather(index).tolist() == [0, 1]
    assert accelerator.reduce(torch.ones(3), "sum").tolist() == [2.0] * 3
    check_alike(model.parameters())


def hugging_face_trains() -> None:
    dist.init_process_group("lockstep")
    config = transformers.GPT2Config(
        vocab_size=32,
        n_positions=16,
        n_embd=16,
        n_layer=1,
        n_head=2,
        bos_token_id=0,
        eos_token_id=0,
    )
    torch.manual_seed(1)
    model = transformers.GPT2LMHeadModel(config)
    rows = [{"input_ids": [(i + j) % 32 for j in range(8)]} for i in range(32)]
    for row in rows:
        row["labels"] = row["input_ids"]
    trainer = transformers.Trainer(
        model=model,
        args=transformers.TrainingArguments(
            output_dir=os.environ["RANK_FOLDER"],
            use_cpu=True,
            max_steps=STEPS,
            per_device_train_batch_size=2,
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
        ),
        train_dataset=rows,
    )
    trainer.train()
    assert trainer.state.global_step == STEPS
    check_alike(model.parameters())


PROGRAMS = {
    "lightning_trains": lightning_trains,
    "accelerate_trains": accelerate_trains,
    "hugging_face_trains": hugging_face_trains,
}


def free_port() -> int:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        return int(bound.getsockname()[1])


class TorchFrameworksTest(unittest.TestCase):
    def test_two_ranks(self) -> None:
        for name in PROGRAMS:
            with self.subTest(name):
                launcher = {
                    "MASTER_ADDR": "127.0.0.1",
                    "MASTER_PORT": str(free_port()),
                    "LOCAL_WORLD_SIZE": "2",
                    "TORCHELASTIC_RUN_ID": name,
                }
                torch_ranks.run(self, __file__, name, 2, **launcher)


if __name__ == "__main__":
    torch_ranks.main(PROGRAMS)
