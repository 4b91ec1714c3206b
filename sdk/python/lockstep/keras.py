"""One line for Keras: ``model.fit(..., callbacks=[lockstep.keras.Callback()])``.

For Keras 3 (``keras``, ``tf.keras`` since TensorFlow 2.16) and for Keras 2
(``tf_keras``).
"""

from __future__ import annotations

import functools
import sys
from typing import Any, Optional

from ._session import session


class _Reporter:
    """What a callback does, for either Keras."""

    params: Any
    model: Any

    def __init__(self, batch_size: int, loss_interval: int) -> None:
        super().__init__()
        self._session = session()
        self._batch_size = batch_size
        self._loss_interval = max(1, loss_interval)
        self._steps = 0

    def on_train_begin(self, logs: Optional[dict[str, Any]] = None) -> None:
        self._session.phase("input")

    def on_epoch_begin(self, epoch: int, logs: Optional[dict[str, Any]] = None) -> None:
        params = self.params or {}
        steps = params.get("steps") or 0
        self._session.progress(
            total_steps=steps * (params.get("epochs") or 0),
            epoch=epoch,
            global_batch=self._batch_size * self._session.world_size,
        )

    def on_train_batch_begin(self, batch: int, logs: Optional[dict[str, Any]] = None) -> None:
        self._session.phase("compute")

    def on_train_batch_end(self, batch: int, logs: Optional[dict[str, Any]] = None) -> None:
        loss = None
        if logs and self._steps % self._loss_interval == 0:
            loss = logs.get("loss")
        self._steps += 1
        self._session.step(samples=self._batch_size, loss=loss)
        self._session.phase("input")
        if self._session.should_stop():
            self.model.stop_training = True

    def on_test_begin(self, logs: Optional[dict[str, Any]] = None) -> None:
        self._session.phase("evaluation")

    def on_test_end(self, logs: Optional[dict[str, Any]] = None) -> None:
        self._session.phase("input" if self._steps else "other")

    def on_epoch_end(self, epoch: int, logs: Optional[dict[str, Any]] = None) -> None:
        if self._session.chief and logs:
            values = {name: value for name, value in logs.items() if name != "loss"}
            # A rank's page has room for 16.
            self._session.report(**dict(list(values.items())[:16]))

    def on_train_end(self, logs: Optional[dict[str, Any]] = None) -> None:
        self._session.phase("other")


@functools.lru_cache(maxsize=None)
def _class(keras: str) -> type[_Reporter]:
    """A Keras takes callbacks of its own kind only."""
    if keras == "tf_keras":
        from tf_keras.callbacks import Callback as Base
    else:
        from keras.callbacks import Callback as Base
    return type("Callback", (_Reporter, Base), {})


def Callback(batch_size: int = 0, loss_interval: int = 10) -> Any:  # noqa: N802 - a class, to its users
    """Makes a callback that reports steps, loss, phases, epochs and metrics.

    When the job is told to stop, ``fit`` returns after the step. What it saves is
    the program's: by ``ModelCheckpoint``, or after ``fit``.

    Args:
      batch_size: samples of this rank in a step; 0: samples are not shown.
      loss_interval: steps between two reports of the loss. Reading it waits for
        the device.
    """
    # A program that has imported Keras 2 trains with it: TensorFlow alone does not
    # import it.
    return _class("tf_keras" if "tf_keras" in sys.modules else "keras")(batch_size, loss_interval)
