"""One line for Hugging Face: ``Trainer(callbacks=[lockstep.transformers.Callback()])``."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Optional

from ._session import session

if TYPE_CHECKING:
    _Base = Any
else:
    from transformers import TrainerCallback as _Base


class Callback(_Base):  # type: ignore[misc]
    """Reports steps, loss, phases, epochs, metrics and checkpoints to the job.

    Saves and stops when the job is told to.
    """

    def __init__(self) -> None:
        super().__init__()
        self._session = session()

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.global_step:
            self._session.resumed(state.global_step)
        self._plan(args, state)
        self._session.phase("input")

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._plan(args, state)

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._session.phase("compute")

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        samples = args.per_device_train_batch_size * args.gradient_accumulation_steps
        self._session.step(samples=samples, loss=self._loss(state), step=state.global_step)
        self._session.phase("input")
        if self._session.checkpoint_due():
            control.should_save = True
        if self._session.should_stop():
            control.should_training_stop = True

    def on_log(
        self,
        args: Any,
        state: Any,
        control: Any,
        logs: Optional[dict[str, Any]] = None,
        **kwargs: Any,
    ) -> None:
        # Steps have the loss; the trainer logs these under names of its own.
        if self._session.chief and logs:
            names = ("grad_norm", "learning_rate")
            self._session.report(**{name: logs[name] for name in names if name in logs})

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        path = os.path.join(args.output_dir, f"checkpoint-{state.global_step}")
        if self._session.chief and os.path.isdir(path):
            self._session.checkpoint_saved(state.global_step, path)

    def on_prediction_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._session.phase("evaluation")

    def on_evaluate(
        self,
        args: Any,
        state: Any,
        control: Any,
        metrics: Optional[dict[str, float]] = None,
        **kwargs: Any,
    ) -> None:
        if self._session.chief and metrics:
            self._session.report(**dict(list(metrics.items())[:16]))
        self._session.phase("input")

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._session.phase("other")

    def _plan(self, args: Any, state: Any) -> None:
        self._session.progress(
            total_steps=state.max_steps,
            epoch=int(state.epoch or 0),
            global_batch=args.train_batch_size * args.gradient_accumulation_steps * args.world_size,
        )

    @staticmethod
    def _loss(state: Any) -> Optional[float]:
        """The loss that the trainer logged last: its mean over some steps."""
        for entry in reversed(state.log_history):
            if "loss" in entry:
                return float(entry["loss"])
        return None
