"""Hugging Face's Trainer on a tiny GPT-2 with random weights: no download."""

import argparse

import torch
from torch.utils.data import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

import lockstep
import lockstep.transformers


class Counting(Dataset):
    """Sequences that count upwards: easy to learn."""

    def __len__(self) -> int:
        return 256

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        tokens = (torch.arange(32) + index) % 64
        return {"input_ids": tokens, "labels": tokens}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=float, default=2)
    parser.add_argument("--output", help="default: the job's")
    options = parser.parse_args()
    session = lockstep.session()
    # Before the trainer, which would take Gloo: of CPU backends it knows no other.
    torch.distributed.init_process_group("lockstep")
    arguments = TrainingArguments(
        output_dir=options.output or session.output_directory or "output",
        num_train_epochs=options.epochs,
        per_device_train_batch_size=16,
        learning_rate=1e-2,
        logging_steps=4,
        save_strategy="epoch",
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
        ddp_find_unused_parameters=False,
    )
    config = GPT2Config(vocab_size=64, n_positions=32, n_embd=32, n_layer=2, n_head=2)
    trainer = Trainer(
        model=GPT2LMHeadModel(config),
        args=arguments,
        train_dataset=Counting(),
        callbacks=[lockstep.transformers.Callback()],
    )
    result = trainer.train()
    if session.chief:
        print(f"loss {result.training_loss:.3f} after {result.global_step} steps")
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
