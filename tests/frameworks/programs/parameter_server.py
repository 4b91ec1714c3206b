"""A step counter and a weight on a parameter server, driven by the chief.

ps and worker serve for ever: the job ends with the chief. With STOP_FILE the
chief stops in the middle until that file is there.
"""

import os
import time

import tensorflow as tf


def main():
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    if resolver.task_type in ("worker", "ps"):
        server = tf.distribute.Server(
            resolver.cluster_spec(), job_name=resolver.task_type,
            task_index=resolver.task_id, protocol=resolver.rpc_layer or "grpc",
            start=True)
        print("serving", resolver.task_type, resolver.task_id,
              "pid", os.getpid(), flush=True)
        server.join()
        return
    strategy = tf.distribute.ParameterServerStrategy(resolver)
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    with strategy.scope():
        weight = tf.Variable(5.0)

    @tf.function
    def step():
        def replica():
            # d/dw (w - 1)^2 = 2 (w - 1)
            weight.assign_sub(0.1 * 2.0 * (weight - 1.0))
        strategy.run(replica)

    def steps(count):
        for _ in range(count):
            coordinator.schedule(step)
        coordinator.join()

    steps(20)
    stop = os.environ.get("STOP_FILE")
    if stop:
        print("halfway", flush=True)
        while not os.path.exists(stop):
            time.sleep(0.05)
    steps(20)
    print("weight %.3f" % weight.numpy(), flush=True)


if __name__ == "__main__":
    main()
