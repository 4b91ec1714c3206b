"""One line for Lightning: ``Trainer(callbacks=[lockstep.lightning.Callback()])``."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from ._session import session

if TYPE_CHECKING:
    _Base = Any
else:
    try:
        from lightning.pytorch.callbacks import Callback as _Base
    except ModuleNotFoundError:
        from pytorch_lightning.callbacks import Callback as _Base


class Callback(_Base):  # type: ignore[misc]
    """Reports steps, loss, phases, epochs, metrics and checkpoints to the job.

    When the job is told to, it saves ``step-N.ckpt`` in the job's output directory
    (else in the trainer's ``default_root_dir``), and stops.

    Args:
      batch_size: samples of this rank in a batch; 0: the first dimension of the
        batch's first tensor.
      loss_interval: steps between two reports of the loss. Reading it waits for
        the device.
    """

    def __init__(self, batch_size: int = 0, loss_interval: int = 10) -> None:
        super().__init__()
        self._session = session()
        self._batch_size = batch_size
        self._loss_interval = max(1, loss_interval)
        self._samples = 0
        self._step = 0

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        self._step = trainer.global_step
        if self._step:
            self._session.resumed(self._step)
        self._session.phase("input")

    def on_train_epoch_start(self, trainer: Any, pl_module: Any) -> None:
        planned = trainer.estimated_stepping_batches
        self._session.progress(
            total_steps=int(planned) if planned != float("inf") else 0,
            epoch=trainer.current_epoch,
        )

    def on_train_batch_start(
        self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int
    ) -> None:
        self._session.phase("compute")

    def on_train_batch_end(
        self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        self._samples += self._batch_size or _first_dimension(batch)
        # Of several batches that accumulate, the last one ends the step.
        if trainer.global_step > self._step:
            self._step = trainer.global_step
            loss = None
            if self._step % self._loss_interval == 0 and isinstance(outputs, dict):
                loss = outputs.get("loss")
            self._session.step(samples=self._samples, loss=loss, step=self._step)
            self._samples = 0
            self._obey(trainer)
        self._session.phase("input")

    def on_validation_start(self, trainer: Any, pl_module: Any) -> None:
        self._session.phase("evaluation")

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        self._session.phase("input" if trainer.training else "other")
        if self._session.chief:
            metrics = {
                name: float(value)
                for name, value in trainer.callback_metrics.items()
                if name.isidentifier()
            }
            self._session.report(**dict(list(metrics.items())[:16]))

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        self._session.phase("other")

    def _obey(self, trainer: Any) -> None:
        if self._session.checkpoint_due():
            folder = self._session.output_directory or trainer.default_root_dir
            path = os.path.join(folder, f"step-{self._step}.ckpt")
            with self._session.phase("checkpoint"):
                trainer.save_checkpoint(path)  # On every rank: strategies may need it.
                if self._session.chief:
                    self._session.checkpoint_saved(self._step, path)
        if self._session.should_stop():
            trainer.should_stop = True


def _first_dimension(batch: Any) -> int:
    """Samples of a batch: a tensor, or a list, tuple or dict that begins with one."""
    while isinstance(batch, (list, tuple, dict)) and batch:
        batch = next(iter(batch.values())) if isinstance(batch, dict) else batch[0]
    shape = getattr(batch, "shape", None)
    return int(shape[0]) if shape else 0
