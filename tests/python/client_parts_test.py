"""Parts of the Python client without a cluster.

  PYTHONPATH=build/release/python python3 tests/python/client_parts_test.py

Needs grpcio, protobuf and cloudpickle, and the target lockstep_python_descriptors.
"""

import datetime
import gzip
import io
import os
import pathlib
import pickle
import subprocess
import sys
import tarfile
import tempfile
import threading
import types
import unittest
from typing import Any
from unittest import mock

import grpc  # type: ignore[import-untyped,unused-ignore]

from lockstep import errors
from lockstep.client import (
    _context,
    _ignore,
    _package,
    _pickling,
    _progress,
    _rpc,
    _schema,
    _spec,
    _streams,
    _train,
    _views,
)

FILE = """\
# Written by hand.
current-context: lab
contexts:
  lab:
    address: head.example.com:7443   # HOST:PORT
    ca: '/home/ann/it''s/ca.crt'
    cert: "/home/ann/tls.crt"
    key: /home/ann/#1/tls.key
  here: {address: "127.0.0.1:7443", insecure-loopback: true}
"""


class ContextTest(unittest.TestCase):
    def test_reads_what_people_write(self) -> None:
        config = _context.parse(FILE, "f")
        self.assertEqual(config.current, "lab")
        self.assertEqual(
            config.contexts["lab"],
            {
                "address": "head.example.com:7443",
                "ca": "/home/ann/it's/ca.crt",
                "cert": "/home/ann/tls.crt",
                "key": "/home/ann/#1/tls.key",
            },
        )
        self.assertEqual(config.contexts["here"]["address"], "127.0.0.1:7443")

    def test_reads_empty_files(self) -> None:
        for text in ("", "# none\n", "contexts:\n  {}\n", "contexts: {}\n", "contexts:\n"):
            self.assertEqual(_context.parse(text, "f").contexts, {}, text)

    def test_refuses_with_the_line(self) -> None:
        for text, want in (
            ("contexts:\n  a:\n    address: &x y\n", "f:3: cannot read '&x y'"),
            ("contexts:\n  a:\n\taddress: y\n", "f:3: a tab"),
            ("contexts:\n  a\n", "f:2: is not a field"),
            ('current-context: "a\n', "f:1: a quoted text"),
            ("contexts:\n  a:\n    addres: y\n", "did you mean address?"),
            ("current: a\n", "there is no field current"),
            ("contexts:\n  a: {address: y\n", "f:2: a mapping in braces"),
            ("contexts:\n  a:\n    ca: x\n      key: y\n", "f:4: its indentation"),
            ("current-context: a\ncurrent-context: b\n", "f:2: current-context is"),
        ):
            with self.assertRaises(errors.InvalidArgumentError) as caught:
                _context.parse(text, "f")
            self.assertIn(want, str(caught.exception))

    def resolve(self, text: str, *args: object, **kwargs: object) -> _context.Connection:
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "config.yaml")
            pathlib.Path(path).write_text(text)
            env = {"LOCKSTEP_CONFIG": path, **kwargs.pop("env", {})}  # type: ignore
            return _context.resolve(*args, env=env, site_file="", **kwargs)  # type: ignore

    def test_resolves_as_the_command(self) -> None:
        lab = self.resolve(FILE)
        self.assertEqual(lab.address, "head.example.com:7443")
        self.assertEqual(lab.key, "/home/ann/#1/tls.key")
        here = self.resolve(FILE, "here")
        self.assertTrue(here.insecure_loopback)
        self.assertEqual(here.context, "here")
        self.assertTrue(self.resolve(FILE, env={"LOCKSTEP_CONTEXT": "here"}).insecure_loopback)
        env = {"LOCKSTEP_ADDRESS": "a:1", "LOCKSTEP_CA": "c"}
        mixed = self.resolve(FILE, env=env)
        self.assertEqual((mixed.address, mixed.ca), ("a:1", "c"))
        self.assertEqual(mixed.cert, "/home/ann/tls.crt")
        self.assertEqual(self.resolve(FILE, address="b:2", env=env).address, "b:2")

    def test_says_what_is_missing(self) -> None:
        with self.assertRaisesRegex(errors.NotFoundError, "lba .*did you mean lab"):
            self.resolve(FILE, "lba")
        for text, kwargs, want in (
            ("", {}, "lockstep local up"),
            (FILE.replace("current-context: lab", ""), {}, "no context is chosen"),
            ("", {"address": "a:1"}, "needs ca=FILE"),
        ):
            with self.assertRaises(errors.Error) as caught:
                self.resolve(text, **kwargs)
            self.assertEqual(caught.exception.code, "FAILED_PRECONDITION")
            self.assertIn(want, str(caught.exception))


class IgnoreTest(unittest.TestCase):
    def test_matches_as_gitignore(self) -> None:
        for pattern, text, want in (
            ("*.pyc", "a.pyc", True),
            ("*.pyc", "a/b.pyc", False),
            ("a/**/b", "a/b", True),
            ("a/**/b", "a/x/y/b", True),
            ("**/b", "x/b", True),
            ("a/**", "a/x/y", True),
            ("a/**", "a", False),
            ("[a-c]?", "b1", True),
            ("[!a]", "a", False),
            ("[!a]", "/", False),
            (r"\*", "*", True),
            ("[", "[", True),
            ("a.b", "axb", False),
        ):
            found = bool(_ignore.glob(pattern).match(text))
            self.assertEqual(found, want, (pattern, text))

    def test_the_last_rule_decides(self) -> None:
        rules = _ignore.Rules()
        rules.add("# note\n*.log\n!keep.log\n/data\nlogs/\n")
        self.assertTrue(rules.ignores("x/a.log", False))
        self.assertFalse(rules.ignores("x/keep.log", False))
        self.assertTrue(rules.ignores("data", True))
        self.assertFalse(rules.ignores("x/data", True))
        self.assertTrue(rules.ignores("logs", True))
        self.assertFalse(rules.ignores("logs", False))
        self.assertTrue(rules.ignores("x/__pycache__", True))


class PackageTest(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name) / "trainer"
        (self.folder / "sub").mkdir(parents=True)
        (self.folder / "sub" / "a.py").write_text("x = 1\n")
        (self.folder / "run").write_text("#!/bin/sh\n")
        (self.folder / "run").chmod(0o755)

    def pack(self) -> _package.Packed:
        packed = _package.pack_folder(str(self.folder))
        self.addCleanup(packed.close)
        return packed

    def names(self, packed: _package.Packed) -> "dict[str, tarfile.TarInfo]":
        packed.file.seek(0)
        data = gzip.decompress(packed.file.read())
        with tarfile.open(fileobj=io.BytesIO(data)) as tar:
            return {entry.name: entry for entry in tar.getmembers()}

    def test_packs_the_content_without_noise(self) -> None:
        (self.folder / "__pycache__").mkdir()
        (self.folder / "__pycache__" / "a.pyc").write_text("")
        (self.folder / "link").symlink_to("sub/a.py")
        packed = self.pack()
        entries = self.names(packed)
        self.assertEqual(list(entries), ["link", "run", "sub", "sub/a.py"])
        self.assertEqual(entries["run"].mode, 0o755)
        self.assertEqual({entry.mtime for entry in entries.values()}, {0})
        self.assertEqual(packed.file_name, "trainer.tar.gz")

    def test_a_python_package_keeps_its_name(self) -> None:
        (self.folder / "__init__.py").write_text("")
        entries = self.names(self.pack())
        self.assertIn("trainer/sub/a.py", entries)

    def test_the_same_files_have_the_same_digest(self) -> None:
        first = self.pack()
        os.utime(self.folder / "run", (5, 5))
        self.assertEqual(first.digest, self.pack().digest)
        (self.folder / "run").write_text("")
        self.assertNotEqual(first.digest, self.pack().digest)

    def test_refuses_what_cannot_travel(self) -> None:
        (self.folder / "out").symlink_to("/etc")
        with self.assertRaisesRegex(errors.InvalidArgumentError, "leaves the folder"):
            self.pack()
        (self.folder / ".gcloudignore").write_text("*\n")
        with self.assertRaisesRegex(errors.InvalidArgumentError, "no files"):
            self.pack()
        with self.assertRaises(errors.NotFoundError):
            _package.open_all(["/nowhere"])
        with self.assertRaisesRegex(errors.InvalidArgumentError, "neither a folder"):
            _package.open_all([self.folder / "run"])


class SpecTest(unittest.TestCase):
    def build(self, *command: str, **options: Any) -> Any:
        return _spec.build(_schema.load(), list(command), "0a1b2c", **options)

    def test_the_defaults_are_the_commands(self) -> None:
        spec = self.build("python3", "train.py")
        self.assertEqual(list(spec.argv), ["python3", "train.py"])
        self.assertEqual(spec.name, "python3-0a1b2c")
        self.assertEqual([(r.type, r.count) for r in spec.roles], [(1, 1)])
        self.assertEqual(spec.roles[0].resources.cpus, 1)
        self.assertEqual(spec.kind, 2)
        self.assertFalse(spec.HasField("restart_budget"))
        self.assertEqual(spec.output_directory, "")
        native = self.build("lockstep-train", name="n")
        self.assertEqual(native.kind, 1)
        self.assertEqual(native.output_directory, os.environ["HOME"] + "/lockstep/n")

    def test_takes_every_argument(self) -> None:
        spec = self.build(
            "./a", tasks=3, ranks_per_task=2, gpus=2, memory="2GiB", gpu_type="T4",
            env={"A": 1}, labels={"b": "c"}, max_restarts=0, priority=7, pool="p",
            time_limit=90.5, wait_limit=datetime.timedelta(minutes=1), output="o",
            workdir="output", end_with="chief", end_grace=0, image="i", comment="x",
            checkpoint_interval_steps=5, checkpoint_keep=2, slurm_env=True,
            node_lost_timeout=90,
        )  # fmt: skip
        self.assertEqual(spec.argv[0], os.path.abspath("a"))
        self.assertEqual([(r.type, r.count) for r in spec.roles], [(1, 1), (2, 2)])
        for role in spec.roles:
            self.assertEqual(role.ranks_per_task, 2)
            self.assertEqual(role.resources.cpus, 2)
            self.assertEqual(role.resources.gpus, 2)
            self.assertEqual(role.resources.memory_bytes, 2 << 30)
            self.assertEqual(role.container.image, "i")
        self.assertEqual(dict(spec.environment), {"A": "1"})
        self.assertEqual(spec.restart_budget, 0)
        self.assertTrue(spec.HasField("restart_budget"))
        self.assertEqual(
            (spec.max_running_time.seconds, spec.max_running_time.nanos), (90, 500000000)
        )
        self.assertEqual(spec.max_wait_time.seconds, 60)
        self.assertEqual(spec.working_directory, os.path.abspath("o"))
        self.assertTrue(spec.HasField("end_grace"))
        self.assertEqual(spec.node_lost_timeout.seconds, 90)
        self.assertFalse(spec.rescale)
        smaller = self.build("./a", tasks=4, elastic=2, rescale=True)
        self.assertEqual((smaller.elastic_min_tasks, smaller.rescale), (2, True))
        for policy, value in (("auto", 1), ("never", 2)):
            spec = self.build("./a", node_lost_timeout=policy)
            self.assertEqual(spec.node_loss, value)
            self.assertFalse(spec.HasField("node_lost_timeout"))

    def test_errors_name_the_argument(self) -> None:
        for options, want in (
            ({"tasks": 0}, "tasks: 0 is not 1 or more"),
            ({"tasks": 1, "workers": 1}, "tasks: excludes workers"),
            ({"kind": "x"}, 'kind: "x"'),
            ({"node_lost_timeout": "5m"}, 'node_lost_timeout: "5m" is neither auto nor never'),
            ({"memory": "2 apples"}, 'memory: "2 apples" is not a size'),
            ({"time_limit": "2h"}, "time_limit: '2h' is neither seconds"),
            ({"time_limit": float("inf")}, "time_limit: inf"),
            ({"workdir": "output"}, 'workdir: is "output"'),
            ({"end_with": "x"}, 'end_with: "x"'),
            ({"env": {"A": None}}, "env: A is None"),
            ({"gpus": -1}, "gpus: -1"),
        ):
            with self.assertRaises(errors.InvalidArgumentError) as caught:
                self.build("a", **options)
            self.assertIn(want, str(caught.exception))
        with self.assertRaisesRegex(ValueError, "command: is one text"):
            _spec.build(_schema.load(), "python3 train.py", "0")

    def test_names_jobs_as_the_command(self) -> None:
        for program, want in (
            ("/x/train.v2.py", "train-r"),
            ("7z", "job-7z-r"),
            (".x", "job-r"),
            ("a b", "a-b-r"),
            ("a" * 60, "a" * 40 + "-r"),
        ):
            self.assertEqual(_spec.job_name(program, "r"), want)

    def test_the_interpreter_of_packages(self) -> None:
        for argv, python, runtime, want in (
            (["/v/bin/python3.11"], None, None, "/v/bin/python3.11"),
            (["python3"], None, None, ""),
            (["python3"], "/p", None, "/p"),
            (["/v/bin/python3"], None, "tf2", ""),
        ):
            spec = self.build("a")
            spec.packages.add()
            _spec.set_interpreter(spec, argv, python, runtime)
            self.assertEqual(spec.runtime.python, want)
            self.assertEqual(spec.runtime.name, runtime or "")


class ErrorTest(unittest.TestCase):
    def of(self, code: str, text: str, trailers: object = ()) -> errors.Error:
        error = mock.Mock()
        error.code.return_value = getattr(grpc.StatusCode, code)
        error.details.return_value = text
        error.trailing_metadata.return_value = trailers
        return _rpc.error_of(error, "h:1")

    def test_has_code_and_reason(self) -> None:
        schema = _schema.load()
        info = schema.message("google.rpc.ErrorInfo")(reason="NEVER_FITS", domain="lockstep")
        status = schema.message("google.rpc.Status")(code=9)
        status.details.add(
            type_url="type.googleapis.com/google.rpc.ErrorInfo",
            value=info.SerializeToString(),
        )
        trailers = (("a", "b"), ("grpc-status-details-bin", status.SerializeToString()))
        error = self.of("FAILED_PRECONDITION", "too large", trailers)
        self.assertEqual((error.code, error.reason), ("FAILED_PRECONDITION", "NEVER_FITS"))
        self.assertEqual(str(error), "too large")
        broken = (("grpc-status-details-bin", b"\xff"),)
        self.assertEqual(self.of("NOT_FOUND", "x", broken).reason, "")
        self.assertIsInstance(self.of("NOT_FOUND", "x"), errors.NotFoundError)

    def test_unavailable_says_what_to_do(self) -> None:
        for text, want in (
            ("failed to connect to all addresses; Connection refused", "is it running"),
            ("failed to connect: certificate verify failed", "another CA"),
            ("failed to connect: WRONG_VERSION_NUMBER", "does not speak TLS"),
            ("Socket closed", "try again in a moment"),
        ):
            error = self.of("UNAVAILABLE", text)
            self.assertEqual(error.code, "UNAVAILABLE")
            self.assertIn(want, str(error))
            self.assertIn("h:1", str(error))
        self.assertIn("stopping", str(self.of("CANCELLED", "Cancelled")))


class StreamTest(unittest.TestCase):
    """A stream that breaks goes on where it was."""

    def setUp(self) -> None:
        self.rpc = mock.Mock()
        self.rpc.message = lambda name, /, **fields: _schema.load().message(name)(**fields)
        self.asked: list[object] = []
        self.answers: list[list[object]] = []
        self.rpc.stream = self.stream
        patch = mock.patch("time.sleep")
        patch.start()
        self.addCleanup(patch.stop)

    def stream(self, method: str, request: object, timeout: object = None) -> object:
        copy = type(request)()
        copy.CopyFrom(request)  # type: ignore
        self.asked.append(copy)
        for answer in self.answers.pop(0):
            if isinstance(answer, Exception):
                raise answer
            yield answer

    def test_each_line_comes_once(self) -> None:
        def lines(*all_: "tuple[int, int, str]") -> object:
            answer = self.rpc.message("StreamLogsResponse")
            for second, rank, text in all_:
                line = answer.lines.add(rank=rank, attempt=1, text=text.encode())
                line.time.seconds = second
            return answer

        away = errors.error_for("UNAVAILABLE", "away")
        self.answers = [
            [lines((1, 0, "a"), (1, 0, "b"), (1, 1, "x")), away],
            [lines((1, 0, "a"), (1, 0, "b"), (1, 0, "c"), (1, 1, "x"), (2, 1, "y"))],
        ]
        request = self.rpc.message("StreamLogsRequest", follow=True, tail=9)
        got = [line.text.decode() for line in _streams.logs(self.rpc, request)]
        self.assertEqual(got, ["a", "b", "x", "c", "y"])
        self.assertEqual(self.asked[1].tail, 0)  # type: ignore
        self.assertEqual(self.asked[1].since.seconds, 1)  # type: ignore

    def test_a_watch_goes_on_after_its_version(self) -> None:
        def change(version: int) -> object:
            answer = self.rpc.message("WatchJobsResponse")
            answer.job.resource_version = version
            return answer

        synced = self.rpc.message("WatchJobsResponse", synced=4)
        self.answers = [
            [change(4), synced, change(6), errors.error_for("UNAVAILABLE", "away")],
            [errors.error_for("OUT_OF_RANGE", "gone")],
            [change(9), errors.error_for("PERMISSION_DENIED", "no")],
        ]
        told: list[errors.Error] = []
        with self.assertRaises(errors.Error) as caught:
            for _ in _streams.watch(self.rpc, "j", on_break=told.append):
                pass
        self.assertEqual(caught.exception.code, "PERMISSION_DENIED")
        versions = [request.resource_version for request in self.asked]  # type: ignore
        self.assertEqual(versions, [0, 6, 0])
        self.assertEqual([str(error) for error in told], ["away"])

    def test_a_coordinator_that_was_never_there_is_an_error(self) -> None:
        self.answers = [[errors.error_for("UNAVAILABLE", "away")]]
        with self.assertRaises(errors.Error):
            list(_streams.watch(self.rpc, "j"))


class ProgressTest(unittest.TestCase):
    def status(self, state: str, message: str = "") -> _views.JobStatus:
        job = _schema.load().message("Job")(name="fashion")
        job.state = _schema.load().enum_value("JobState", "JOB_STATE_" + state)
        job.cause.message = message
        return _views.job_of(_schema.load(), job)

    progress = _views.Progress(120, 1000, 1840.0, 0.3125, 75.0, "compute")

    def test_one_line_that_fits(self) -> None:
        text = _progress.line(self.status("RUNNING"), self.progress, 120)
        self.assertIn("] fashion RUNNING  step 120/1,000 (12 %)", text)
        self.assertIn("1,840 samples/s  loss 0.3125  eta 1 min 15 s", text)
        for columns in (1, 20, 60, 80, 200):
            text = _progress.line(self.status("RUNNING"), self.progress, columns)
            self.assertLess(len(text), max(2, columns))
        waiting = _progress.line(self.status("QUEUED", "others\nfirst"), None, 80)
        self.assertEqual(waiting, "fashion QUEUED  others?first")

    def test_a_terminal_gets_it_and_a_pipe_does_not(self) -> None:
        for tty, want in ((True, "\r\x1b[Kfashion QUEUED\r\x1b[K"), (False, "")):
            with mock.patch.object(sys, "stderr", io.StringIO()) as err:
                err.isatty = lambda tty=tty: tty  # type: ignore
                display = _progress.Display()
                display.show(self.status("QUEUED"))
                display.close()
                self.assertEqual(err.getvalue(), want)

    def test_a_notebook_updates_its_output(self) -> None:
        class ZMQInteractiveShell:
            pass

        handle = mock.Mock()
        package = types.ModuleType("IPython")
        package.get_ipython = ZMQInteractiveShell  # type: ignore
        shown = types.ModuleType("IPython.display")
        shown.display = mock.Mock(return_value=handle)  # type: ignore
        modules = {"IPython": package, "IPython.display": shown}
        with mock.patch.dict(sys.modules, modules):
            display = _progress.Display()
            display.show(self.status("QUEUED"))
            display.show(self.status("RUNNING"))
            display.show_progress(self.progress)
            display.show_progress(self.progress)
        first = shown.display.call_args
        self.assertEqual(first.args, ({"text/plain": "fashion QUEUED"},))
        self.assertEqual(handle.update.call_count, 2)


class CallTest(unittest.TestCase):
    def test_a_function_of_a_users_module_travels_whole(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            module = pathlib.Path(folder) / "their_module.py"
            module.write_text("k = 3\ndef f(x): return x + k\n")
            code = (
                "import their_module; from lockstep.client import _pickling; import sys;"
                "sys.stdout.buffer.write("
                "_pickling.pickle_call(their_module.f, (4,), None, []))"
            )
            path = os.pathsep.join([folder, *sys.path])
            data = subprocess.run(
                [sys.executable, "-c", code],
                check=True,
                stdout=subprocess.PIPE,
                env={**os.environ, "PYTHONPATH": path},
            ).stdout
        func, args, kwargs = pickle.loads(data)
        self.assertEqual(func(*args, **kwargs), 7)
        self.assertNotIn("their_module", sys.modules)

    def test_says_what_cannot_be_pickled(self) -> None:
        with self.assertRaisesRegex(errors.InvalidArgumentError, "cannot be pickled"):
            _pickling.pickle_call(print, (iter(lambda: 1, 2), threading.Lock()), None, [])

    def test_spreads_ranks_over_tasks(self) -> None:
        self.assertEqual(_train.spread(8, 4), 2)
        for ranks, each in ((3, 2), (0, 1), (2, 0)):
            with self.assertRaises(errors.InvalidArgumentError):
                _train.spread(ranks, each)


class ImportTest(unittest.TestCase):
    def test_lockstep_alone_imports_no_grpc(self) -> None:
        code = "import lockstep, lockstep.errors, sys; print('grpc' in sys.modules)"
        out = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
        self.assertEqual(out.stdout, b"False\n")


if __name__ == "__main__":
    unittest.main()
