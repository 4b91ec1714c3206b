"""TensorFlow's ParameterServerStrategy: one program for all roles.

The chief runs `train`; workers and parameter servers serve it until it ends.
"""

import argparse
import os

# Of the two Keras, the one whose optimizers keep their state on the servers.
os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")
import tensorflow as tf
import tf_keras as keras

import lockstep

BATCH = 32


def data(context: tf.distribute.InputContext = None) -> tf.data.Dataset:
    """Points in four classes: which of four directions is the nearest."""
    points = tf.random.stateless_normal([1024, 16], seed=(1, 2))
    directions = tf.random.stateless_normal([16, 4], seed=(3, 4))
    labels = tf.argmax(points @ directions, axis=1)
    dataset = tf.data.Dataset.from_tensor_slices((points, labels))
    return dataset.shuffle(1024).repeat().batch(BATCH)


def serve(resolver: tf.distribute.cluster_resolver.TFConfigClusterResolver) -> None:
    server = tf.distribute.Server(
        resolver.cluster_spec(),
        job_name=resolver.task_type,
        task_index=resolver.task_id,
        protocol="grpc",
    )
    server.join()  # Until the chief ends: lockstep then stops this process.


def train(
    resolver: tf.distribute.cluster_resolver.TFConfigClusterResolver,
    options: argparse.Namespace,
) -> None:
    session = lockstep.join()
    strategy = tf.distribute.ParameterServerStrategy(resolver)
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    with strategy.scope():
        model = keras.Sequential(
            [
                keras.layers.InputLayer(input_shape=(16,)),
                keras.layers.Dense(64, activation="relu"),
                keras.layers.Dense(4),
            ]
        )
        optimizer = keras.optimizers.legacy.SGD(0.1)
        rounds = tf.Variable(0, dtype=tf.int64, trainable=False)

    @tf.function
    def step(iterator):
        def replica(points, labels):
            with tf.GradientTape() as tape:
                losses = keras.losses.sparse_categorical_crossentropy(
                    labels, model(points, training=True), from_logits=True
                )
                loss = tf.reduce_mean(losses)
            gradients = tape.gradient(loss, model.trainable_variables)
            optimizer.apply_gradients(zip(gradients, model.trainable_variables))
            return loss

        return strategy.run(replica, args=next(iterator))

    state = tf.train.Checkpoint(model=model, optimizer=optimizer, rounds=rounds)
    folder = os.path.join(session.output_directory or ".", "checkpoints")
    manager = tf.train.CheckpointManager(state, folder, max_to_keep=2)
    if manager.restore_or_initialize():
        session.resumed(int(rounds))
    session.progress(total_steps=options.rounds, global_batch=BATCH * options.steps)
    batches = iter(coordinator.create_per_worker_dataset(data))
    for done in range(int(rounds), options.rounds):
        session.phase("compute")
        losses = [coordinator.schedule(step, args=(batches,)) for _ in range(options.steps)]
        coordinator.join()
        loss = sum(coordinator.fetch(losses)) / options.steps
        session.step(samples=BATCH * options.steps, loss=float(loss))
        with session.phase("checkpoint"):
            rounds.assign(done + 1)
            session.checkpoint_saved(done + 1, manager.save() + ".index")

    points, labels = next(iter(data().unbatch().batch(1024)))
    right = tf.reduce_mean(tf.cast(tf.argmax(model(points), axis=1) == labels, tf.float32))
    session.report(accuracy=float(right))
    print(f"accuracy {float(right):.3f} after {options.rounds} rounds")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=40, help="of a round, over all workers")
    options = parser.parse_args()
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    if resolver.task_type in ("worker", "ps"):
        serve(resolver)
    else:
        train(resolver, options)


if __name__ == "__main__":
    main()
