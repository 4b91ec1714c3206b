"""The rank part outside lockstep: rank 0 of 1, and every call works.

PYTHONPATH=build/release/python python3 tests/python/session_test.py
"""

import glob
import multiprocessing
import os
import pathlib
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest

import lockstep


def run(code: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


class SessionTest(unittest.TestCase):
    def setUp(self) -> None:
        self.session = lockstep.join()
        self.addCleanup(lambda: self.session.close())

    def test_is_rank_0_of_1(self) -> None:
        session = self.session
        self.assertEqual((session.rank, session.world_size), (0, 1))
        self.assertEqual((session.local_rank, session.local_world_size), (0, 1))
        self.assertTrue(session.chief)
        self.assertFalse(session.managed)
        self.assertEqual(session.job, "local")
        self.assertEqual(session.gpus, [])

    def test_every_call_works(self) -> None:
        session = self.session
        session.progress(total_steps=10, epoch=1, global_batch=64)
        with session.phase("input"):
            pass
        session.step(samples=32, loss=0.5, learning_rate=0.1)
        with session.step(samples=32) as step:
            step.loss = float("nan")
        session.report(accuracy=0.9, f1=1)
        session.event("half of it is done")
        session.artifact("model", __file__)
        session.checkpoint_saved(2, __file__)
        session.resumed(0)
        self.assertIs(session.checkpoint_due(), False)
        self.assertIs(session.should_stop(), False)

    def test_a_data_position_belongs_to_its_checkpoint(self) -> None:
        position = {"epoch": 3, "shards": [4, 0, 17], "seed": "abc"}
        with tempfile.TemporaryDirectory() as folder:
            file, directory = folder + "/step-7.pt", folder + "/step-9"
            pathlib.Path(file).write_text("state")
            os.mkdir(directory)
            self.session.step(step=7)
            self.session.checkpoint_saved(7, file, data_position=position)
            # What was said last goes with the next one.
            self.session.data_position([9])
            self.session.checkpoint_saved(9, directory)
            self.assertEqual(self.session.data_position(), [9])
            # No scan for checkpoints finds the files.
            names = glob.glob(folder + "/step-*")
            self.assertEqual(sorted(names), [file, directory])
            self.session.close()

            self.session = lockstep.join()
            self.assertIsNone(self.session.data_position())
            self.session.resumed(7, file)
            self.assertEqual(self.session.data_position(), position)
            # It is the old one's, and not the next one's.
            other = folder + "/step-8.pt"
            pathlib.Path(other).write_text("state")
            self.session.checkpoint_saved(8, other)
            self.session.resumed(8, other)
            self.assertIsNone(self.session.data_position())
            self.session.resumed(9, directory)
            self.assertEqual(self.session.data_position(), [9])
            # Another checkpoint at the same path, of which nothing was said.
            self.session.resumed(10, directory)
            self.assertIsNone(self.session.data_position())
            self.session.resumed(0)
            self.assertIsNone(self.session.data_position())

    def test_a_bad_data_position_is_refused(self) -> None:
        session = self.session
        for value in ({1, 2}, float("nan"), "x" * (64 << 10)):
            with self.assertRaisesRegex(lockstep.InvalidArgumentError, "a data position"):
                session.data_position(value)
        self.assertIsNone(session.data_position())
        with tempfile.TemporaryDirectory() as folder:
            with self.assertRaises(lockstep.InvalidArgumentError):
                session.checkpoint_saved(1, folder, data_position=object())
            self.assertEqual(os.listdir(folder), [])
            session.checkpoint_saved(1, folder, data_position=5)
            (name,) = os.listdir(folder)
            pathlib.Path(folder, name).write_text("[")
            with self.assertRaisesRegex(lockstep.Error, name) as caught:
                session.resumed(1, folder)
            self.assertEqual(caught.exception.code, "DATA_LOSS")

    def test_a_block_that_raises_is_no_step(self) -> None:
        with self.assertRaises(KeyError), self.session.step() as step:
            raise KeyError
        with self.assertRaisesRegex(lockstep.Error, "has ended"):
            step.__enter__()

    def test_a_phase_comes_back(self) -> None:
        session = self.session
        session.phase("compute")
        with session.phase("input"):
            with session.phase("checkpoint"):
                pass
        # The number of a phase is not shown: that of "compute" is 1.
        self.assertEqual(session._enter(7), 1)

    def test_compiling_is_a_phase_within_another(self) -> None:
        session = self.session
        compilations = session._compilations
        session.phase("optimizer")
        compilations.begin()
        compilations.begin()
        compilations.end()
        self.assertEqual(session._enter(8), 8)
        compilations.end()
        self.assertEqual(session._enter(4), 4)
        compilations.end()  # It has not begun.
        self.assertEqual(session._enter(4), 4)
        # A phase that another thread names meanwhile stays.
        compilations.begin()
        session._enter(0)
        compilations.end()
        self.assertEqual(session._enter(4), 0)
        session.close()
        compilations.begin()
        compilations.end()

    def test_frameworks_are_noticed_when_the_program_imports_them(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            for name, text in {
                "jax/__init__.py": "from jax import monitoring",
                "jax/monitoring.py": (
                    "scalars, durations = [], []\n"
                    "register_scalar_listener = scalars.append\n"
                    "register_event_duration_secs_listener = durations.append\n"
                ),
                "torch/__init__.py": "",
                "torch/_dynamo/__init__.py": "from . import callback",
                "torch/_dynamo/callback.py": (
                    "class callback_handler:\n    start_callbacks, end_callbacks = [], []\n"
                ),
            }.items():
                file = pathlib.Path(folder) / name
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(text)
            result = run(
                "import sys, threading, lockstep\n"
                "session = lockstep.join()\n"
                "assert not {'jax', 'torch'} & set(sys.modules)\n"
                "session.phase('compute')\n"
                "import jax, torch._dynamo\n"
                "m, h = jax.monitoring, torch._dynamo.callback.callback_handler\n"
                "(begin,), (end,) = m.scalars, m.durations\n"
                "event = '/jax/core/compile/backend_compile_duration'\n"
                "begin(event, 1.0, fun_name='f')\n"
                "assert session._enter(8) == 8\n"
                "end(event, 1.0, fun_name='f')\n"
                "begin('/jax/other', 1.0)\n"
                "other = threading.Thread(target=begin, args=(event, 1.0))\n"
                "other.start(); other.join()\n"
                "assert session._enter(1) == 1\n"
                "h.start_callbacks[0]('args')\n"
                "assert session._enter(8) == 8\n"
                "h.end_callbacks[0]()\n"
                "assert session._enter(1) == 1\n"
                "h.start_callbacks.clear(), h.end_callbacks.clear()\n"
                "session.step()\n"
                "assert len(h.start_callbacks) == len(h.end_callbacks) == 1\n"
                "session.close()\n"
                "session = lockstep.join()\n"
                "assert len(m.scalars) == len(h.start_callbacks) == 1\n"
                "h.start_callbacks[0]()\n"
                "assert session._enter(8) == 8\n",
                PYTHONPATH=folder + os.pathsep + os.environ["PYTHONPATH"],
            )
            self.assertEqual(result.returncode, 0, result.stderr)

    def test_bad_input_is_refused(self) -> None:
        session = self.session
        with self.assertRaisesRegex(ValueError, "no phase; the phases are input"):
            session.phase("sleep")
        with self.assertRaises(lockstep.InvalidArgumentError):
            session.step(samples=-1)
        with self.assertRaises(lockstep.InvalidArgumentError):
            session.step(step=-2)
        with self.assertRaisesRegex(ValueError, "not None and 2.5"):
            session.step(samples=2.5)  # type: ignore[arg-type]
        with self.assertRaises(lockstep.InvalidArgumentError):
            session.report(**{"n" * 40: 1.0})
        with self.assertRaises(lockstep.InvalidArgumentError):
            session.resumed(-3)

    def test_a_second_join_is_refused(self) -> None:
        with self.assertRaises(lockstep.Error) as caught:
            lockstep.join()
        self.assertEqual(caught.exception.code, "ALREADY_EXISTS")
        self.assertIs(lockstep.session(), self.session)

    def test_a_closed_session_refuses(self) -> None:
        self.session.close()
        for call in (
            lambda: self.session.step(),
            lambda: self.session.phase("input"),
            lambda: self.session.report(a=1.0),
            lambda: self.session.event("text"),
            lambda: self.session.data_position(3),
        ):
            with self.assertRaisesRegex(lockstep.Error, "closed"):
                call()
        self.session.close()
        # And the process may join again.
        self.session = lockstep.session()

    def test_threads_share_it(self) -> None:
        errors: list[BaseException] = []

        def work() -> None:
            try:
                for _ in range(200):
                    with self.session.phase("compute"):
                        self.session.step(samples=1, loss=0.1)
                    self.session.report(value=1.0)
            except BaseException as error:
                errors.append(error)

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(errors, [])

    def test_a_question_that_waits_holds_up_no_other_thread(self) -> None:
        asked, stepped = threading.Event(), threading.Event()

        def wait(*_: object) -> int:
            asked.set()
            return 0 if stepped.wait(30) else 4

        answers: list[bool] = []
        asking = threading.Thread(target=lambda: answers.append(self.session._ask(wait)))
        asking.start()
        self.assertTrue(asked.wait(30))
        # It would wait for the lock, if the question held it.
        self.session.step(samples=1)
        stepped.set()
        asking.join(30)
        self.assertEqual(answers, [False])

    def test_close_waits_for_a_question(self) -> None:
        asked, go_on = threading.Event(), threading.Event()

        def wait(*_: object) -> int:
            asked.set()
            return 0 if go_on.wait(30) else 4

        asking = threading.Thread(target=self.session._ask, args=(wait,))
        asking.start()
        self.assertTrue(asked.wait(30))
        closing = threading.Thread(target=self.session.close)
        closing.start()
        until = time.monotonic() + 30
        while not self.session.closed:
            self.assertLess(time.monotonic(), until)
        self.assertTrue(closing.is_alive())
        go_on.set()
        closing.join(30)
        self.assertFalse(closing.is_alive())

    def test_a_child_of_fork_is_refused(self) -> None:
        context = multiprocessing.get_context("fork")
        with context.Pool(1) as pool:
            self.assertEqual(pool.apply(_step_in_child), "FAILED_PRECONDITION")


def _step_in_child() -> str:
    try:
        lockstep.session().step()
    except lockstep.Error as error:
        return error.code
    return "no error"


class ProcessTest(unittest.TestCase):
    def test_importing_takes_no_other_package(self) -> None:
        done = run(
            "import lockstep, sys; lockstep.join().step()\n"
            "print([m for m in ('grpc', 'torch', 'numpy', 'google') if m in sys.modules])"
        )
        self.assertEqual((done.stdout.strip(), done.stderr), ("[]", ""))

    def test_a_rank_of_a_native_job_is_refused(self) -> None:
        done = run("import lockstep; lockstep.join()", LOCKSTEP_LINK="/nonexistent/link")
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("lockstep.errors", done.stderr)
        self.assertIn("native job", done.stderr)

    def test_a_daemon_of_another_version_says_what_to_do(self) -> None:
        why = "lockstep 0.1.0 of this program and lockstep-worker 9.0.0 of this node"
        with (
            tempfile.TemporaryDirectory() as folder,
            socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as daemon,
        ):
            daemon.bind(folder + "/link")
            daemon.listen()
            daemon.settimeout(30)
            pathlib.Path(folder, "file").write_text(f"{folder}/link\nnonce\n")
            hellos: list[bytes] = []

            def refuse() -> None:
                connection, _ = daemon.accept()
                hellos.append(connection.recv(1 << 16))
                # DaemonMessage.refusal.message of rank.proto.
                text = b"\x0a" + bytes([len(why)]) + why.encode()
                connection.send(b"\x12" + bytes([len(text)]) + text)
                connection.close()

            serving = threading.Thread(target=refuse)
            serving.start()
            done = run(
                "import lockstep\n"
                "try:\n    lockstep.join()\n"
                "except lockstep.Error as error:\n    print(error.code, error)",
                LOCKSTEP_LINK_FILE=folder + "/file",
                LOCKSTEP_JOB="mnist",
                LOCKSTEP_GENERATION="1",
                LOCKSTEP_RANK="0",
            )
            serving.join(30)
        # The daemon judges by what Hello has: the protocol, 1, and the version.
        said = b"\x30\x01\x3a" + bytes([len(lockstep.__version__)])
        self.assertIn(said + lockstep.__version__.encode(), hellos[0])
        self.assertRegex(done.stdout, f"^PERMISSION_DENIED .*{why}", done.stderr)

    def test_a_library_that_is_missing_is_named(self) -> None:
        done = run(
            "import lockstep; lockstep.join()", LOCKSTEP_LIBRARY="/nonexistent/liblockstep.so.0"
        )
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("/nonexistent/liblockstep.so.0", done.stderr)


if __name__ == "__main__":
    unittest.main()
