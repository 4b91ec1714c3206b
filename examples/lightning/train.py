"""A LightningModule on CPU ranks over lockstep, with one callback."""

import argparse

import lightning
import torch
from lightning.pytorch.strategies import DDPStrategy
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import lockstep.lightning


class Classifier(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 4))

    def training_step(self, batch: list[torch.Tensor], index: int) -> torch.Tensor:
        points, labels = batch
        return nn.functional.cross_entropy(self.layers(points), labels)

    def validation_step(self, batch: list[torch.Tensor], index: int) -> None:
        points, labels = batch
        right = (self.layers(points).argmax(1) == labels).float().mean()
        self.log("accuracy", right, sync_dist=True)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=3e-3)


def data() -> TensorDataset:
    generator = torch.Generator().manual_seed(1)
    points = torch.randn(1024, 16, generator=generator)
    return TensorDataset(points, (points @ torch.randn(16, 4, generator=generator)).argmax(1))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--ranks", type=int, default=2, help="of the whole job")
    options = parser.parse_args()
    trainer = lightning.Trainer(
        accelerator="cpu",
        devices=1,
        num_nodes=options.ranks,
        strategy=DDPStrategy(process_group_backend="lockstep"),
        max_epochs=options.epochs,
        callbacks=[lockstep.lightning.Callback()],
        enable_progress_bar=False,
        enable_checkpointing=False,
        logger=False,
    )
    loader = DataLoader(data(), 64)
    trainer.fit(Classifier(), loader, loader)
    if trainer.is_global_zero:
        print(f"accuracy {float(trainer.callback_metrics['accuracy']):.3f}")


if __name__ == "__main__":
    main()
