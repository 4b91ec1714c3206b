"""Keras under MultiWorkerMirroredStrategy, with BackupAndRestore.

TensorFlow has no hook for the collectives of CPUs, so its own reduce; lockstep
starts the workers, shows their steps, and starts them again after a failure.
"""

import argparse
import os

# Keras 3 cannot train under this strategy.
os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")
import tensorflow as tf
import tf_keras as keras

import lockstep
import lockstep.keras

BATCH = 64


def data() -> tf.data.Dataset:
    points = tf.random.stateless_normal([1024, 16], seed=(1, 2))
    directions = tf.random.stateless_normal([16, 4], seed=(3, 4))
    labels = tf.argmax(points @ directions, axis=1)
    return tf.data.Dataset.from_tensor_slices((points, labels)).repeat().batch(BATCH)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--steps", type=int, default=16)
    options = parser.parse_args()
    # Before any other call of TensorFlow.
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    session = lockstep.join()
    with strategy.scope():
        model = keras.Sequential(
            [
                keras.layers.InputLayer(input_shape=(16,)),
                keras.layers.Dense(64, activation="relu"),
                keras.layers.Dense(4),
            ]
        )
        model.compile(
            optimizer=keras.optimizers.Adam(3e-3),
            loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            metrics=["accuracy"],
        )
    backup = os.path.join(session.output_directory or ".", "backup")
    history = model.fit(
        data(),
        epochs=options.epochs,
        steps_per_epoch=options.steps,
        verbose=2 if session.chief else 0,
        callbacks=[
            keras.callbacks.BackupAndRestore(backup),
            lockstep.keras.Callback(batch_size=BATCH // session.world_size),
        ],
    )
    if session.chief:
        print(f"accuracy {history.history['accuracy'][-1]:.3f}")


if __name__ == "__main__":
    main()
