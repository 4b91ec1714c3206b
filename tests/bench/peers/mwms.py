"""One rank of M1 in TensorFlow's MultiWorkerMirroredStrategy.

Speaks as step_probe does, but knows no "word": "ready" and versions, then for
each line "N" on its input N steps and "START END" (CLOCK_MONOTONIC,
nanoseconds), in the end "end HASH LOSS". One thread for each kind of work, SGD without momentum, one
fixed synthetic batch. --start: weights and batch as step_probe left them
(step_models.h), else its own.
"""

import argparse
import json
import os
import sys
import time
import zlib


def begin_as(np, path, rank):
    """(kernels and biases in Keras's order and shapes, images, labels)."""
    flat = np.fromfile(path + ".weights", np.float32)
    shapes = [(32, 1, 3, 3), (32,), (128, 32, 26, 26), (128,), (10, 128), (10,)]
    weights, at = [], 0
    for shape in shapes:
        size = int(np.prod(shape))
        weights.append(flat[at:at + size].reshape(shape))
        at += size
    assert at == flat.size, "another network"
    # (out, in, height, width) to (height, width, in, out); what is flattened
    # is (height, width, channel) here.
    weights[0] = weights[0].transpose(2, 3, 1, 0)
    weights[2] = weights[2].transpose(2, 3, 1, 0).reshape(-1, 128)
    weights[4] = weights[4].transpose()
    path = "%s.batch-%d" % (path, rank)
    pixels = 64 * 28 * 28
    images = np.fromfile(path, np.float32)[:pixels].reshape(64, 28, 28, 1)
    return weights, images, np.fromfile(path, np.int32)[pixels:]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", choices=["shallow"], default="shallow")
    parser.add_argument("--store", required=True)
    parser.add_argument("--rank", type=int, required=True)
    parser.add_argument("--ranks", type=int, required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--core", type=int, default=-1)
    parser.add_argument("--warm-up", type=int, default=5)
    parser.add_argument("--start")
    parser.add_argument("--threads", type=int, default=1, help="0: its own")
    args = parser.parse_args()
    if args.core >= 0:
        os.sched_setaffinity(0, {args.core})
    workers = ["127.0.0.1:%d" % (args.port + i) for i in range(args.ranks)]
    os.environ["TF_CONFIG"] = json.dumps({
        "cluster": {"worker": workers},
        "task": {"type": "worker", "index": args.rank}})
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")

    import numpy as np
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(args.threads)
    tf.config.threading.set_inter_op_parallelism_threads(args.threads)
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    print("rank %d: tensorflow %s" % (args.rank, tf.__version__),
          file=sys.stderr)
    with strategy.scope():
        model = tf.keras.Sequential([
            tf.keras.Input((28, 28, 1)),
            tf.keras.layers.Conv2D(32, 3, activation="relu"),
            tf.keras.layers.Flatten(),
            tf.keras.layers.Dense(128, activation="relu"),
            tf.keras.layers.Dense(10)])
        optimizer = tf.keras.optimizers.SGD(0.001)
        loss = tf.keras.losses.SparseCategoricalCrossentropy(
            from_logits=True, reduction="none")
    tf.random.set_seed(args.rank + 1)
    images = tf.random.normal((64, 28, 28, 1))
    labels = tf.random.uniform((64,), maxval=10, dtype=tf.int32)
    if args.start:
        weights, images, labels = begin_as(np, args.start, args.rank)
        images, labels = tf.constant(images), tf.constant(labels)
        with strategy.scope():
            model.set_weights(weights)

    def replica_step():
        with tf.GradientTape() as tape:
            value = tf.reduce_sum(loss(labels, model(images, training=True)))
            value /= 64 * args.ranks
        gradients = tape.gradient(value, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))
        return value

    @tf.function
    def step():
        return strategy.run(replica_step)

    for _ in range(args.warm_up):
        step()
    print("ready\ttensorflow=%s" % tf.__version__, flush=True)
    for line in sys.stdin:
        start = time.monotonic_ns()
        for _ in range(int(line)):
            value = step()
        strategy.experimental_local_results(value)[0].numpy()
        print(start, time.monotonic_ns(), flush=True)
    hashed = 0
    for weight in model.get_weights():
        hashed = zlib.crc32(np.ascontiguousarray(weight).tobytes(), hashed)
    last = float(tf.reduce_mean(loss(labels, model(images, training=False))))
    print("end %08x %.9g" % (hashed, last), flush=True)
    # Its shutdown waits for the others' and can take minutes.
    sys.stdout.flush()
    os._exit(0)


main()
