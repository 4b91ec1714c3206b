"""Every program of examples/ runs as its README says, on two ranks, and its job
shows its steps.

  LOCKSTEP_FRAMEWORKS=DIR PYTHONPATH=build/release/python \\
      DIR/client/bin/python tests/python/examples_test.py
"""

import pathlib
import subprocess
import tempfile
import unittest

import local_cluster
from local_cluster import BIN, LONG, VARIABLES, python

import lockstep
import lockstep.client

EXAMPLES = local_cluster.SOURCE / "examples"


def setUpModule() -> None:
    local_cluster.start()


class ExamplesTest(unittest.TestCase):
    def setUp(self) -> None:
        output = tempfile.TemporaryDirectory(prefix="lockstep-examples-")
        self.addCleanup(output.cleanup)
        self.output = pathlib.Path(output.name)
        self.client = lockstep.Client()
        self.addCleanup(self.client.close)

    def submit(self, name: str, framework: str) -> lockstep.client.Job:
        return self.client.submit(
            [python(framework), "train.py"],
            tasks=2,
            workdir=str(EXAMPLES / name),
            output=str(self.output),
            env=VARIABLES,
            max_restarts=1,
        )

    def submit_file(self, name: str, framework: str) -> lockstep.client.Job:
        """With the example's job file, which the client in Python does not read."""
        variables = [f"--env={key}={value}" for key, value in VARIABLES.items()]
        subprocess.run(
            [BIN + "/lockstep", "submit", "-f", EXAMPLES / name / "job.yaml", "--detach"]
            + ["--name", name, "--workdir", EXAMPLES / name, "--output", self.output]
            + [*variables, "--max-restarts", "1", "--", python(framework), "train.py"],
            check=True,
        )
        return self.client.job(name)

    def run_example(self, name: str, framework: str, shown: str, steps: int) -> None:
        """It ends well, prints what matches `shown`, and its job has `steps`."""
        self.check_example(self.submit(name, framework), shown, steps)

    def check_example(self, job: lockstep.client.Job, shown: str, steps: int) -> None:
        status = job.wait(timeout=LONG, progress=False)
        text = "\n".join(line.text for line in job.logs())
        self.assertEqual(status.state, "SUCCEEDED", text[-4000:])
        self.assertRegex(text, shown)
        self.assertEqual(status.committed_step, steps, text[-4000:])

    def test_pytorch_ddp(self) -> None:
        self.run_example("pytorch-ddp", "torch", r"accuracy 0\.9\d+ after 3 epochs on 2", 48)
        self.assertTrue((self.output / "checkpoint.pt").exists())

    def test_pytorch_replica(self) -> None:
        self.run_example("pytorch-replica", "torch", r"accuracy 0\.\d+ after 100 steps on 2", 100)

    def test_pytorch_fsdp2(self) -> None:
        self.run_example("pytorch-fsdp2", "torch", r"loss 2\.\d+ -> [01]\.\d+ on 2", 20)

    def test_lightning(self) -> None:
        self.run_example("lightning", "torch", r"accuracy 0\.[6-9]", 24)

    def test_transformers(self) -> None:
        self.run_example("transformers", "torch", r"loss \d\.\d+ after 16 steps", 16)

    def test_keras_multiworker(self) -> None:
        self.run_example("keras-multiworker", "tensorflow", r"accuracy 0\.[6-9]", 48)

    def test_jax(self) -> None:
        self.run_example("jax", "tensorflow", r"2 devices: sum \[4\.0, 6\.0, 8\.0, 10\.0\]", 10)

    def test_tf_parameter_server(self) -> None:
        job = self.submit_file("tf-parameter-server", "tensorflow")
        self.check_example(job, r"accuracy 0\.[6-9]\d+ after 5 rounds", 5)
        self.assertTrue((self.output / "checkpoints" / "checkpoint").exists())

    def test_transfer_learning(self) -> None:
        self.run_example(
            "transfer-learning", "tensorflow", r"accuracy 0\.[6-9]\d+ .*, then 0\.[6-9]", 120
        )
        records = sorted(path.name for path in (self.output / "records").iterdir())
        self.assertEqual(
            records,
            ["test-00-180.tfrec", "test-01-180.tfrec", "train-00-719.tfrec", "train-01-718.tfrec"],
        )
        # The shards are what lockstep's own reader takes.
        subprocess.run([BIN + "/lockstep", "data", "check", self.output / "records"], check=True)


if __name__ == "__main__":
    unittest.main()
