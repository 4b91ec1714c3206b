"""MirroredStrategy: one process with every device of its task."""

import json
import os

import tensorflow as tf

strategy = tf.distribute.MirroredStrategy()
with strategy.scope():
    model = tf.keras.Sequential([tf.keras.layers.Dense(1, input_shape=(4,))])
    model.compile(loss="mse", optimizer="sgd")
x = tf.random.normal([64, 4], seed=1)
model.fit(x, tf.reduce_sum(x, axis=1), epochs=1, verbose=0)
config = json.loads(os.environ["TF_CONFIG"])
print("replicas", strategy.num_replicas_in_sync, "task",
      config["task"]["type"], flush=True)
