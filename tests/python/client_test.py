"""The Python client against a coordinator and two workers of this machine.

  PYTHONPATH=build/release/python python3 tests/python/client_test.py

Needs grpcio, protobuf and cloudpickle, the target lockstep_python_descriptors,
and the programs in build/release/bin, or in the folder LOCKSTEP_BIN. The ranks
run this interpreter. It starts `lockstep local up` in a temporary folder.
"""

import json
import os
import pathlib
import pickle
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest

from lockstep import errors
from lockstep.client import Client, JobFailedError, RemoteError, RemoteTraceback, TrainJob

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = os.environ.get("LOCKSTEP_BIN") or str(ROOT / "build/release/bin")
# Seconds: a loaded machine is slow.
LONG = 90


def local(*args: str) -> None:
    command = [BIN + "/lockstep", "local", *args]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{command}: {done.stderr}")


def setUpModule() -> None:
    folder = tempfile.mkdtemp(prefix="lockstep-client-test-")
    os.environ["LOCKSTEP_CONFIG"] = folder + "/config.yaml"
    for name in ("ADDRESS", "CA", "CERT", "KEY", "CONTEXT", "INSECURE_LOOPBACK"):
        os.environ.pop("LOCKSTEP_" + name, None)
    unittest.addModuleCleanup(subprocess.run, ["rm", "-rf", folder], check=True)
    cluster = folder + "/cluster"
    unittest.addModuleCleanup(local, "down", "--clean", "--yes", "--dir", cluster)
    # More tasks than cores: they mostly wait.
    local("up", "--dir", cluster, "--cpus", "8", "--timeout", str(LONG))


class ClusterTest(unittest.TestCase):
    def setUp(self) -> None:
        self.client = Client()
        self.addCleanup(self.client.close)

    def wait_for(self, what: str, condition: object) -> None:
        deadline = time.monotonic() + LONG
        while not condition():  # type: ignore[operator]
            self.assertLess(time.monotonic(), deadline, what)
            time.sleep(0.05)


class SubmitTest(ClusterTest):
    def test_submit_wait_logs_describe(self) -> None:
        job = self.client.submit(
            ["sh", "-c", 'echo "$RANK of $WORLD_SIZE $A"; echo bad >&2'],
            tasks=2,
            env={"A": "b"},
            labels={"team": "vision"},
        )
        self.assertRegex(job.name, "^sh-[0-9a-f]{6}$")
        lines = list(job.logs())
        self.assertEqual(
            sorted((line.rank, line.text) for line in lines if line.stream == "stdout"),
            [(0, "0 of 2 b"), (1, "1 of 2 b")],
        )
        self.assertEqual({line.task for line in lines},
                         {"master-replica-0", "worker-replica-0"})  # fmt: skip
        self.assertEqual([str(line) for line in job.logs(ranks=[1], grep="of")], ["1 of 2 b"])
        status = job.wait(LONG)
        self.assertEqual((status.state, status.exit_code), ("SUCCEEDED", 0))
        self.assertEqual([rank.exit_code for rank in status.ranks], [0, 0])
        self.assertEqual(status.labels, {"team": "vision"})
        assert status.end_time is not None and status.create_time is not None
        self.assertGreaterEqual(status.end_time, status.create_time)
        self.assertEqual(job.state, "SUCCEEDED")
        self.assertEqual(job.describe().to_dict()["spec"]["roles"][0]["count"], 1)
        listed = self.client.jobs(["SUCCEEDED"], filter="labels.team=vision")
        self.assertEqual([each.name for each in listed], [job.name])
        self.assertEqual(self.client.jobs(limit=1)[0].name, job.name)

    def test_nodes(self) -> None:
        nodes = self.client.nodes()
        self.assertEqual([node.name for node in nodes], ["worker-0", "worker-1"])
        self.assertEqual({node.state for node in nodes}, {"READY"})
        self.assertEqual(sum(node.cpus for node in nodes), 8)

    def test_wait_has_a_timeout_and_cancel_ends_it(self) -> None:
        job = self.client.submit(["sleep", "600"], max_restarts=0)
        with self.assertRaisesRegex(errors.TimeoutError, "has not ended after 0.3 s"):
            job.wait(0.3)
        job.cancel()
        self.assertEqual(job.wait(LONG).state, "CANCELLED")
        with self.assertRaises(JobFailedError) as caught:
            job.wait(check=True)
        self.assertEqual(caught.exception.code, "CANCELLED")
        self.assertEqual(caught.exception.reason, "CANCELLED_BY_USER")

    def test_a_failed_job(self) -> None:
        job = self.client.submit(["sh", "-c", "exit 7"], max_restarts=0)
        status = job.wait(LONG)
        self.assertEqual((status.state, status.exit_code), ("FAILED", 7))
        with self.assertRaisesRegex(JobFailedError, "is FAILED: .*7") as caught:
            job.wait(check=True)
        self.assertEqual(caught.exception.status, status)
        self.assertEqual(str(pickle.loads(pickle.dumps(caught.exception))),
                         str(caught.exception))  # fmt: skip

    def test_resize(self) -> None:
        job = self.client.submit(
            ["sh", "-c", 'echo "world $WORLD_SIZE"; exec sleep 600'],
            tasks=2,
            elastic=1,
            rescale=True,
        )
        self.addCleanup(job.cancel)
        self.wait_for("RUNNING", lambda: job.state == "RUNNING")
        self.assertEqual(len(job.describe().ranks), 2)
        self.client.resize(job.name, 1)
        self.wait_for("one rank", lambda: len(job.describe().ranks) == 1)
        self.wait_for("RUNNING", lambda: job.state == "RUNNING")
        self.assertEqual(job.describe().restarts, 1)
        with self.assertRaisesRegex(errors.Error, "may have 1 to 2 tasks") as caught:
            job.resize(3)
        self.assertEqual(caught.exception.code, "INVALID_ARGUMENT")
        fixed = self.client.submit(["sleep", "600"])
        self.addCleanup(fixed.cancel)
        with self.assertRaises(errors.Error) as caught:
            fixed.resize(1)
        self.assertEqual(caught.exception.reason, "FIXED_SIZE")

    def test_a_program_cannot_save(self) -> None:
        job = self.client.submit(["sleep", "600"])
        self.addCleanup(job.cancel)
        self.wait_for("RUNNING", lambda: job.state == "RUNNING")
        with self.assertRaises(errors.Error) as caught:
            job.cancel(save=True)
        self.assertEqual(caught.exception.code, "FAILED_PRECONDITION")
        self.assertEqual(job.state, "RUNNING")

    def test_files_of_the_task(self) -> None:
        job = self.client.submit(["sh", "-c", "mkdir d; printf abc > d/x; : > e"])
        job.wait(LONG, check=True)
        self.assertEqual(job.files(), ["d/", "e"])
        self.assertEqual(job.read_file("d/x"), b"abc")
        self.assertEqual(job.read_file("e"), b"")
        with self.assertRaises(errors.NotFoundError):
            job.read_file("f")

    def test_packages_reach_the_ranks(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            pathlib.Path(folder, "task.py").write_text("print('from', __name__)\n")
            job = self.client.submit([sys.executable, "-m", "task"], packages=[folder])
            self.assertEqual([line.text for line in job.logs()], ["from __main__"])
            big = pathlib.Path(folder, "big")
            big.write_bytes(os.urandom(3 << 20))
            job = self.client.submit([sys.executable, "-m", "task"], packages=folder)
            job.wait(LONG, check=True)


class RestartTest(ClusterTest):
    def test_wait_and_logs_outlive_the_coordinator(self) -> None:
        job = self.client.submit(["sh", "-c", "echo a; sleep 1; echo b; sleep 4; echo c"])
        texts: list[str] = []
        states: list[str] = []
        threads = [
            threading.Thread(target=lambda: texts.extend(map(str, job.logs()))),
            threading.Thread(target=lambda: states.append(job.wait(LONG).state)),
        ]
        self.wait_for("RUNNING", lambda: job.state == "RUNNING")
        for thread in threads:
            thread.start()
        self.wait_for("b", lambda: "b" in [str(x) for x in job.logs(follow=False)])
        folder = os.path.dirname(os.environ["LOCKSTEP_CONFIG"]) + "/cluster"
        command = [BIN + "/lockstep", "local", "status", "--dir", folder, "-o", "json"]
        for daemon in json.loads(subprocess.check_output(command))["daemons"]:
            if daemon["name"] == "coordinator":
                os.kill(daemon["pid"], signal.SIGKILL)
        time.sleep(0.5)
        local("up", "--dir", folder, "--timeout", str(LONG))
        for thread in threads:
            thread.join(LONG)
        self.assertEqual((texts, states), (["a", "b", "c"], ["SUCCEEDED"]))


class ErrorTest(ClusterTest):
    def test_a_job_that_does_not_exist(self) -> None:
        self.client.submit(["true"], name="fashion").wait(LONG)
        with self.assertRaisesRegex(errors.NotFoundError, "fashion") as caught:
            self.client.job("fashoin")
        self.assertEqual(caught.exception.code, "NOT_FOUND")

    def test_codes_and_reasons_of_the_coordinator(self) -> None:
        with self.assertRaises(errors.Error) as caught:
            self.client.submit(["true"], gpus=64)
        self.assertEqual(caught.exception.code, "FAILED_PRECONDITION")
        self.assertEqual(caught.exception.reason, "NEVER_FITS")
        self.client.submit(["true"], name="twice")
        with self.assertRaises(errors.Error) as caught:
            self.client.submit(["true"], name="twice")
        self.assertEqual(caught.exception.code, "ALREADY_EXISTS")
        with self.assertRaisesRegex(errors.InvalidArgumentError, "priority"):
            self.client.submit(["true"], priority=5000)
        with self.assertRaises(errors.InvalidArgumentError):
            self.client.jobs(filter="((")

    def test_a_coordinator_that_is_not_there(self) -> None:
        client = Client(address="127.0.0.1:1")
        self.addCleanup(client.close)
        with self.assertRaises(errors.Error) as caught:
            client.nodes()
        self.assertEqual(caught.exception.code, "UNAVAILABLE")
        self.assertIn("cannot reach the coordinator at 127.0.0.1:1", str(caught.exception))
        self.assertIn("lockstep local up", str(caught.exception))

    def test_no_tls_where_tls_is_spoken(self) -> None:
        client = Client(address=self.client.address, insecure_loopback=True)
        self.addCleanup(client.close)
        with self.assertRaises(errors.Error) as caught:
            client.nodes()
        self.assertEqual(caught.exception.code, "UNAVAILABLE")

    def test_a_context_that_does_not_exist(self) -> None:
        with self.assertRaisesRegex(errors.NotFoundError, "did you mean local"):
            Client("locla")


class TrainTest(ClusterTest):
    def test_a_closure_and_its_values(self) -> None:
        factor = 10
        seen = []

        def work(x: int, y: int = 0) -> "tuple[int, str]":
            seen.append(x)
            return (x + y) * factor, os.environ["RANK"]

        job = self.client.train(work, (1,), {"y": 2}, ranks=3)
        self.assertRegex(job.name, "^work-")
        self.assertEqual(job.result(LONG), (30, "0"))
        self.assertEqual(job.results(), [(30, "0"), (30, "1"), (30, "2")])
        self.assertEqual(seen, [])
        again = self.client.job(job.name)
        assert isinstance(again, TrainJob)
        self.assertEqual(again.result(), (30, "0"))

    def test_ranks_of_one_task(self) -> None:
        def work() -> "tuple[str, str]":
            return os.environ["LOCAL_RANK"], os.environ["LOCAL_WORLD_SIZE"]

        job = self.client.train(work, ranks=4, ranks_per_task=2)
        self.assertEqual(job.results(LONG), [("0", "2"), ("1", "2"), ("0", "2"), ("1", "2")])

    def test_prints_are_in_the_log(self) -> None:
        job = self.client.train(lambda: print("hello", os.environ["RANK"]), ranks=2)
        self.assertRegex(job.name, "^function-")
        self.assertEqual(sorted(str(line) for line in job.logs()), ["hello 0", "hello 1"])
        self.assertIsNone(job.result(LONG))

    def test_a_large_value_and_argument(self) -> None:
        data = os.urandom(5 << 20)
        job = self.client.train(lambda x: x[::-1], (data,), ranks=1)
        self.assertEqual(job.result(LONG), data[::-1])

    def test_a_class_of_this_program_comes_back(self) -> None:
        class Model:
            weight = 0

        def work() -> Model:
            model = Model()
            model.weight = 5
            return model

        model = self.client.train(work, ranks=1).result(LONG)
        self.assertIsInstance(model, Model)
        self.assertEqual(model.weight, 5)

    def test_an_exception_with_the_remote_traceback(self) -> None:
        def inner() -> None:
            raise KeyError("nothing here")

        def work() -> None:
            if os.environ["RANK"] == "1":
                inner()
            time.sleep(600)

        job = self.client.train(work, ranks=2)
        with self.assertRaisesRegex(KeyError, "nothing here") as caught:
            job.result(LONG)
        cause = caught.exception.__cause__
        self.assertIsInstance(cause, RemoteTraceback)
        self.assertIn(f"rank 1 of job {job.name}", str(cause))
        self.assertIn('raise KeyError("nothing here")', str(cause))
        self.assertNotIn("_lockstep_call.py", str(cause))
        status = job.describe()
        self.assertEqual((status.state, status.attempt), ("FAILED", 1))
        self.assertIn("KeyError: 'nothing here'", status.message)
        self.assertRegex(status.ranks[1].location, r"^client_test.py:\d+$")

    def test_an_exception_that_cannot_be_made_here(self) -> None:
        def work() -> None:
            class Odd(Exception):
                def __init__(self, a: int, b: int) -> None:
                    super().__init__("odd")

            raise Odd(1, 2)

        with self.assertRaisesRegex(RemoteError, "raised .*Odd: odd") as caught:
            self.client.train(work, ranks=1).result(LONG)
        self.assertIn("raise Odd(1, 2)", caught.exception.traceback)
        self.assertEqual(caught.exception.type_name, "Odd")

    def test_a_module_that_the_nodes_lack(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            pathlib.Path(folder, "only_here.py").write_text("def g(): return 5\n")

            def work() -> int:
                import only_here  # type: ignore

                value: int = only_here.g()
                return value

            with self.assertRaises(ModuleNotFoundError) as caught:
                self.client.train(work, ranks=1).result(LONG)
            self.assertIn("packages=[FOLDER]", str(caught.exception.__cause__))
            job = self.client.train(work, ranks=1, packages=[folder])
            self.assertEqual(job.result(LONG), 5)

    def test_a_rank_that_is_killed(self) -> None:
        job = self.client.train(lambda: os.kill(os.getpid(), signal.SIGKILL), ranks=1)
        with self.assertRaises(JobFailedError) as caught:
            job.result(LONG)
        self.assertEqual(caught.exception.reason, "RANK_SIGNAL")

    def test_a_value_that_cannot_be_pickled(self) -> None:
        job = self.client.train(lambda: threading.Lock(), ranks=1)
        with self.assertRaisesRegex(errors.Error, "_thread.lock, which cannot") as caught:
            job.result(LONG)
        self.assertEqual(caught.exception.reason, "UNPICKLABLE_VALUE")
        self.assertEqual(job.state, "SUCCEEDED")

    def test_another_python(self) -> None:
        other = tempfile.mkdtemp(prefix="lockstep-client-test-")
        self.addCleanup(subprocess.run, ["rm", "-rf", other], check=True)
        python = pathlib.Path(other, "python3")
        python.write_text(
            f"#!{sys.executable} -u\nimport sys; sys.version_info = (3, 1, 0)\n"
            "sys.argv[:] = sys.argv[3:]; exec(sys.argv.pop(0))\n"
        )
        python.chmod(0o755)
        job = self.client.train(lambda: 1, ranks=1, python=str(python))
        with self.assertRaisesRegex(errors.Error, "give python=") as caught:
            job.result(LONG)
        self.assertEqual(caught.exception.reason, "PYTHON_MISMATCH")

    def test_a_workdir_and_a_restart(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            os.chmod(folder, 0o777)

            def work() -> str:
                if not os.path.exists("again"):
                    open("again", "w").close()
                    raise SystemExit(3)
                return os.getcwd()

            job = self.client.train(work, ranks=1, workdir=folder, max_restarts=2)
            self.assertEqual(job.result(LONG), os.path.realpath(folder))
        self.assertEqual(job.describe().attempt, 2)

    def test_a_restart_goes_on_in_the_data(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            os.chmod(folder, 0o777)
            checkpoint = folder + "/step-4"

            def work() -> object:
                import lockstep

                session = lockstep.join()
                if session.generation == 1:
                    session.step(step=4)
                    if session.chief:
                        pathlib.Path(checkpoint).write_text("state")
                        session.checkpoint_saved(4, checkpoint, data_position=[1, 250])
                        session.close()
                        raise SystemExit(3)
                    time.sleep(600)
                session.resumed(4, checkpoint)
                return session.data_position()

            path = {"PYTHONPATH": os.environ["PYTHONPATH"]}
            job = self.client.train(work, ranks=2, max_restarts=2, env=path)
            self.assertEqual(job.results(LONG), [[1, 250], [1, 250]])

    def test_a_result_has_a_timeout(self) -> None:
        job = self.client.train(time.sleep, (600,), ranks=1)
        with self.assertRaises(TimeoutError):
            job.result(0.2)
        job.cancel()
        with self.assertRaises(JobFailedError):
            job.result(LONG)


INTERRUPTED = """
import os, signal, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)
from lockstep.client import Client
job = Client().train(time.sleep, (600,), ranks=1)
print(job.name, flush=True)
CALL
"""


class InterruptTest(ClusterTest):
    def interrupt(self, call: str) -> None:
        program = subprocess.Popen(
            [sys.executable, "-c", INTERRUPTED.replace("CALL", call)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert program.stdout is not None
        name = program.stdout.readline().strip()
        job = self.client.job(name)
        self.addCleanup(job.cancel)
        self.wait_for("RUNNING", lambda: job.state == "RUNNING")
        program.send_signal(signal.SIGINT)
        _, err = program.communicate(timeout=LONG)
        self.assertEqual(program.returncode, -signal.SIGINT, err)
        self.assertIn(f"job {name} runs on", err)
        self.assertIn(f"lockstep jobs wait {name}", err)
        self.assertEqual(job.state, "RUNNING")

    def test_ctrl_c_leaves_the_job_running(self) -> None:
        for call in ("job.result()", "job.wait()", "list(job.logs())"):
            with self.subTest(call):
                self.interrupt(call)


if __name__ == "__main__":
    unittest.main()
