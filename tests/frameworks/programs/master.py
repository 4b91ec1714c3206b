"""What TensorFlow says when the first task is called "master"."""

import tensorflow as tf

tf.distribute.MultiWorkerMirroredStrategy()
