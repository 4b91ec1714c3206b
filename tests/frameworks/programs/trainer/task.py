"""Trains a small CNN with MultiWorkerMirroredStrategy on TFRecord shards.

Every task runs the whole program: all save, the chief's copy stays and the
others go to a temporary directory beside it, which they remove. Started when
the file STOP_FILE is there it trains for one epoch only.
"""

import argparse
import json
import os
import shutil

import tensorflow as tf


def parse(record):
    features = tf.io.parse_single_example(record, {
        "image/encoded": tf.io.FixedLenFeature([], tf.string),
        "image/class/label": tf.io.FixedLenFeature([], tf.int64),
    })
    image = tf.reshape(tf.io.decode_raw(features["image/encoded"], tf.uint8),
                       [28, 28, 1])
    return tf.cast(image, tf.float32) / 255.0, features["image/class/label"]


def make_model():
    return tf.keras.Sequential([
        tf.keras.layers.Conv2D(8, 3, activation="relu",
                               input_shape=(28, 28, 1)),
        tf.keras.layers.MaxPooling2D(),
        tf.keras.layers.Flatten(),
        tf.keras.layers.Dense(10),
    ])


def save_path(directory, task_type, task_id):
    if task_type in (None, "chief") or (task_type == "worker" and
                                        task_id == 0 and
                                        "chief" not in cluster()):
        return directory
    return os.path.join(os.path.dirname(directory),
                        "workertemp_" + str(task_id))


def cluster():
    return json.loads(os.environ.get("TF_CONFIG", "{}")).get("cluster", {})


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", required=True)
    parser.add_argument("--job-dir", required=True)
    parser.add_argument("--epochs", type=int, default=1)
    args = parser.parse_args()

    if os.path.exists(os.environ.get("STOP_FILE", "")):
        args.epochs = 1

    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    resolver = strategy.cluster_resolver
    batch = 32 * strategy.num_replicas_in_sync
    files = sorted(tf.io.gfile.glob(args.data + "/*.tfrec"))
    data = (tf.data.TFRecordDataset(files).map(parse).shuffle(1024, seed=1)
            .repeat().batch(batch))
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = (
        tf.data.experimental.AutoShardPolicy.DATA)
    with strategy.scope():
        model = make_model()
        model.compile(
            loss=tf.keras.losses.SparseCategoricalCrossentropy(
                from_logits=True),
            optimizer=tf.keras.optimizers.SGD(0.1), metrics=["accuracy"])
    history = model.fit(data.with_options(options), epochs=args.epochs,
                        steps_per_epoch=20, verbose=2)
    print("trained", resolver.task_type, resolver.task_id, "replicas",
          strategy.num_replicas_in_sync, "loss",
          round(history.history["loss"][-1], 3), flush=True)

    target = os.path.join(args.job_dir, "model")
    mine = save_path(target, resolver.task_type, resolver.task_id)
    model.save(mine)
    if mine != target:
        shutil.rmtree(mine)
    print("saved", os.path.basename(mine), flush=True)


if __name__ == "__main__":
    main()
