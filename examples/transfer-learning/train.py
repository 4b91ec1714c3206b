"""Transfer learning on packed JPEG pictures, under MultiWorkerMirroredStrategy.

A small network learns to tell the digits 0 to 4. Then it is frozen, and a new
head on its features learns the digits 5 to 9.
"""

import argparse
import os

# Keras 3 cannot train under this strategy.
os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")
import sklearn.datasets
import tensorflow as tf
import tf_keras as keras

import lockstep
import lockstep.keras

BATCH = 64  # Of all workers.
SIDE = 32
CLASSES = 5
FEATURES = {
    "image/encoded": tf.io.FixedLenFeature([], tf.string),
    "image/class/label": tf.io.FixedLenFeature([], tf.int64),
}


def example(picture: tf.Tensor, label: int) -> bytes:
    """A record: the picture as JPEG, and its class."""
    values = {
        "image/encoded": tf.train.Feature(
            bytes_list=tf.train.BytesList(value=[tf.io.encode_jpeg(picture).numpy()])
        ),
        "image/format": tf.train.Feature(bytes_list=tf.train.BytesList(value=[b"jpeg"])),
        "image/class/label": tf.train.Feature(int64_list=tf.train.Int64List(value=[label])),
    }
    return tf.train.Example(features=tf.train.Features(feature=values)).SerializeToString()


def pack(folder: str, part: int, parts: int) -> dict[str, str]:
    """Packs this worker's part; returns its shard of each kind.

    A shard appears under its name when it is whole, so one that is there is good.
    """
    digits = sklearn.datasets.load_digits()
    pictures = tf.image.resize(digits.images[..., None] * (255 / 16), [SIDE, SIDE])
    pictures = tf.cast(tf.round(pictures), tf.uint8)
    os.makedirs(folder, exist_ok=True)
    shards = {}
    for kind in ("train", "test"):
        # Every fifth picture is for the test; the workers share both kinds.
        chosen = [i for i in range(len(pictures)) if (i % 5 == 0) == (kind == "test")][part::parts]
        path = shards[kind] = os.path.join(folder, f"{kind}-{part:02}-{len(chosen)}.tfrec")
        if os.path.exists(path):
            continue
        with tf.io.TFRecordWriter(path + ".new") as writer:
            for i in chosen:
                writer.write(example(pictures[i], int(digits.target[i])))
        os.replace(path + ".new", path)
    return shards


def read(shard: str, first: int) -> tf.data.Dataset:
    """Batches of the pictures of the classes from `first` on, which count from 0."""

    def parse(record: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        values = tf.io.parse_single_example(record, FEATURES)
        picture = tf.io.decode_jpeg(values["image/encoded"], channels=1)
        picture = tf.ensure_shape(picture, [SIDE, SIDE, 1])
        return tf.cast(picture, tf.float32) / 255, values["image/class/label"] - first

    dataset = tf.data.TFRecordDataset(shard).map(parse)
    dataset = dataset.filter(lambda _, label: (0 <= label) & (label < CLASSES))
    dataset = dataset.cache().shuffle(1024, seed=1).repeat().batch(BATCH)
    # Each worker has a shard of its own already.
    choice = tf.data.Options()
    choice.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    return dataset.with_options(choice).prefetch(2)


def network() -> keras.Model:
    layers = keras.layers
    return keras.Sequential(
        [
            layers.InputLayer(input_shape=(SIDE, SIDE, 1)),
            layers.Conv2D(8, 3, strides=2, activation="relu"),
            layers.Conv2D(16, 3, strides=2, activation="relu"),
            layers.Flatten(),
        ],
        name="features",
    )


def fit(
    model: keras.Model, shards: dict[str, str], first: int, name: str, options: argparse.Namespace
) -> float:
    """Trains on the classes from `first` on; returns the accuracy of the test."""
    session = lockstep.session()
    history = model.fit(
        read(shards["train"], first),
        validation_data=read(shards["test"], first),
        epochs=options.epochs,
        steps_per_epoch=options.steps,
        validation_steps=4,
        verbose=2 if session.chief else 0,
        callbacks=[
            keras.callbacks.BackupAndRestore(os.path.join(options.output, "backup-" + name)),
            lockstep.keras.Callback(batch_size=BATCH // session.world_size),
        ],
    )
    return history.history["val_accuracy"][-1]


def compiled(*layers: keras.layers.Layer) -> keras.Model:
    model = keras.Sequential(layers)
    model.compile(
        optimizer=keras.optimizers.Adam(3e-3),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    return model


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--output", help="for records and backups; default: the job's")
    options = parser.parse_args()
    # Before any other call of TensorFlow.
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    session = lockstep.join()
    options.output = options.output or session.output_directory or "."
    records = os.path.join(options.output, "records")
    shards = pack(records, session.rank, session.world_size)

    with strategy.scope():
        features = network()
        model = compiled(features, keras.layers.Dense(CLASSES))
    before = fit(model, shards, 0, "features", options)
    features.trainable = False
    with strategy.scope():
        model = compiled(features, keras.layers.Dense(CLASSES))
    after = fit(model, shards, CLASSES, "head", options)
    if session.chief:
        session.report(accuracy=after)
        print(f"accuracy {before:.3f} of the digits 0 to 4, then {after:.3f} of 5 to 9")


if __name__ == "__main__":
    main()
