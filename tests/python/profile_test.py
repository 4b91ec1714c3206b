"""Traces for `lockstep jobs profile`: the files by which they are asked for.

PYTHONPATH=build/release/python python3 tests/python/profile_test.py

The profilers here are small; profile_cluster_test.py has PyTorch's and JAX's.
"""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import threading
import time
import types
import unittest
from typing import Any, Iterator
from unittest import mock

from lockstep import _mailbox, _profiler, profile

# Seconds: a loaded machine is slow.
LONG = 60


class FakeProfile:
    """torch.profiler.profile, which counts its steps."""

    def __init__(self, activities: list[str], schedule: object) -> None:
        self.activities, self.steps, self.running = activities, 0, False

    def start(self) -> None:
        self.running = True

    def step(self) -> None:
        assert self.running
        self.steps += 1

    def stop(self) -> None:
        assert self.running
        self.running = False

    def export_chrome_trace(self, path: str) -> None:
        assert not self.running
        pathlib.Path(path).write_text(f"trace of {self.steps} steps")


def fake_torch() -> Any:
    torch: Any = types.ModuleType("torch")
    torch.cuda = types.SimpleNamespace(is_initialized=lambda: False)
    torch.profiler = types.SimpleNamespace(
        profile=FakeProfile,
        ProfilerActivity=types.SimpleNamespace(CPU="cpu", CUDA="cuda"),
        ProfilerAction=types.SimpleNamespace(RECORD=3),
    )
    return torch


def fake_jax() -> Any:
    jax: Any = types.ModuleType("jax")
    started: list[str] = []

    def start_trace(folder: str) -> None:
        assert not started, "one is being made already"
        started.append(folder)

    def stop_trace() -> None:
        folder = pathlib.Path(started.pop(), "plugins", "profile", "now")
        folder.mkdir(parents=True)
        (folder / "host.xplane.pb").write_bytes(b"planes")
        (folder / "host.trace.json.gz").write_bytes(b"trace")

    jax.profiler = types.SimpleNamespace(start_trace=start_trace, stop_trace=stop_trace)
    return jax


class ProfileTest(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory(prefix="lockstep-profile-test-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.output = self.folder / "output"
        self.work = self.folder / "work"
        self.work.mkdir()
        # Of this rank alone.
        self.link_file = str(self.folder / "file")
        self.artifacts: list[tuple[str, str]] = []
        for name in ("torch", "jax", "lockstep.jax"):
            self.set_module(name, None)

    def set_module(self, name: str, module: Any) -> None:
        patch = mock.patch.dict(sys.modules)
        patch.start()
        self.addCleanup(patch.stop)
        sys.modules.pop(name, None)
        if module is not None:
            sys.modules[name] = module

    def watch(self, output: str | None = None) -> _profiler.Watch:
        def artifact(name: str, path: str) -> None:
            self.artifacts.append((name, path))

        watch = _profiler.Watch(
            self.link_file, str(self.output) if output is None else output, artifact
        )
        self.addCleanup(watch.close)
        self.assertLess(watch.due, float("inf"), "there is no directory for the files")
        return watch

    def ask(self, *options: str, **environment: str) -> subprocess.Popen[bytes]:
        variables = {**os.environ, "LOCKSTEP_LINK_FILE": self.link_file, "LOCKSTEP_RANK": "5"}
        process = subprocess.Popen(
            [sys.executable, "-m", "lockstep.profile", "--seconds", "1", *options],
            env={**variables, **environment},
            cwd=self.work,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def step_until_end(
        self, watch: _profiler.Watch, process: subprocess.Popen[bytes]
    ) -> tuple[int, str, str]:
        """Steps as a session does, until the requester has ended."""
        ended = threading.Event()
        result: list[tuple[int, str, str]] = []

        def wait() -> None:
            out, error = process.communicate(timeout=LONG)
            result.append((process.returncode, out.decode(), error.decode()))
            ended.set()

        thread = threading.Thread(target=wait)
        thread.start()
        while not ended.wait(0.001):
            if time.monotonic() >= watch.due:
                watch.look()
        thread.join()
        return result[0]

    def test_torch_writes_a_file_to_the_output_directory(self) -> None:
        self.set_module("torch", fake_torch())
        watch = self.watch()
        code, out, error = self.step_until_end(watch, self.ask("--copy"))
        self.assertEqual((code, error), (0, ""))
        path, size, trace = out.split("\n")
        self.assertRegex(path, rf"^{self.output}/profiles/\d+T\d+Z-rank5-torch\.json\.gz$")
        self.assertRegex(trace, r"^trace of [1-9]\d* steps$")
        self.assertEqual(int(size), len(trace))
        self.assertEqual(pathlib.Path(path).read_text(), trace)
        self.assertEqual(self.artifacts, [("profile-rank5", path)])
        # Nothing is left beside it, and a second one is like the first.
        self.assertEqual(len(os.listdir(self.output / "profiles")), 1)
        code, out, _ = self.step_until_end(watch, self.ask("--with", "torch"))
        self.assertEqual(code, 0)
        self.assertEqual(
            sorted(os.listdir(self.output / "profiles"))[1], os.path.basename(out[:-1])
        )

    def test_jax_writes_a_folder_and_its_chrome_trace_is_copied(self) -> None:
        self.set_module("jax", fake_jax())
        code, out, error = self.step_until_end(self.watch(output=""), self.ask("--copy"))
        self.assertEqual((code, error), (0, ""))
        path, size, trace = out.split("\n")
        # Without an output directory, where the requester is.
        self.assertRegex(path, rf"^{self.work}/profiles/\d+T\d+Z-rank5-jax$")
        self.assertEqual((size, trace), ("5", "trace"))
        self.assertTrue(pathlib.Path(path, "plugins/profile/now/host.xplane.pb").exists())

    def test_which_profiler(self) -> None:
        for loaded, wanted, name in (
            (("torch", "jax"), "", "torch"),
            (("torch", "jax", "lockstep.jax"), "", "jax"),
            (("torch", "jax"), "jax", "jax"),
            (("jax",), "", "jax"),
        ):
            for one in ("torch", "jax", "lockstep.jax"):
                made = fake_torch() if one == "torch" else fake_jax()
                self.set_module(one, made if one in loaded else None)
            recorder = _profiler._recorder(wanted)
            self.assertEqual(recorder.name, name, (loaded, wanted))

    def test_a_program_without_a_profiler_is_told(self) -> None:
        watch = self.watch()
        code, _, error = self.step_until_end(watch, self.ask())
        self.assertEqual(code, profile.NOT_JOINED)
        self.assertEqual(error, "the program has imported neither torch nor jax\n")
        self.set_module("torch", fake_torch())
        code, _, error = self.step_until_end(watch, self.ask("--with", "jax"))
        self.assertEqual(code, profile.NOT_JOINED)
        self.assertEqual(error, "the program has not imported jax\n")

    def test_a_profiler_that_fails_leaves_the_program_alone(self) -> None:
        torch = fake_torch()
        with mock.patch.object(FakeProfile, "start", side_effect=RuntimeError("it is on already")):
            self.set_module("torch", torch)
            watch = self.watch()
            code, _, error = self.step_until_end(watch, self.ask())
        self.assertEqual(code, profile.FAILED)
        self.assertEqual(error, "the profiler failed: RuntimeError: it is on already\n")
        # The next one is made.
        self.assertEqual(self.step_until_end(watch, self.ask())[0], 0)

    def test_a_directory_that_cannot_be_written_is_named(self) -> None:
        self.set_module("torch", fake_torch())
        self.output.write_text("a file")
        code, _, error = self.step_until_end(self.watch(), self.ask())
        self.assertEqual(code, profile.FAILED)
        self.assertIn(str(self.output), error)

    def test_jax_is_stopped_where_its_trace_cannot_be_written(self) -> None:
        patch = mock.patch.object(tempfile, "tempdir", str(self.work))
        patch.start()
        self.addCleanup(patch.stop)
        self.set_module("jax", fake_jax())
        self.output.write_text("a file")
        watch = self.watch()
        self.assertEqual(self.step_until_end(watch, self.ask())[0], profile.FAILED)
        self.output.unlink()
        self.assertEqual(self.step_until_end(watch, self.ask())[0], 0)
        # Of both.
        watch.close()
        self.assertEqual(os.listdir(self.work), [])

    def test_a_program_without_steps_is_told(self) -> None:
        self.set_module("torch", fake_torch())
        watch = self.watch()
        process = self.ask("--wait", "1")
        _, error = process.communicate(timeout=LONG)
        self.assertEqual(process.returncode, profile.NO_STEP)
        self.assertIn(b"ended no step within 1 s", error)
        # What was withdrawn is not begun.
        watch.look()
        self.assertLess(time.monotonic(), watch.due)
        self.assertFalse(self.output.exists())

    def test_a_rank_whose_program_has_not_joined_is_told(self) -> None:
        for _ in range(2):
            process = self.ask()
            _, error = process.communicate(timeout=LONG)
            self.assertEqual(process.returncode, profile.NOT_JOINED)
            self.assertIn(b"no program of this rank has joined", error)
            # Nor one that joined and is gone.
            self.watch().close()
        process = self.ask(LOCKSTEP_LINK_FILE="")
        _, error = process.communicate(timeout=LONG)
        self.assertIn(b"not a rank of a program", error)

    def test_one_at_a_time(self) -> None:
        watch = self.watch()
        folder = _mailbox.make_folder()
        assert folder is not None
        request = _mailbox.Mailbox(folder, self.link_file).request
        other = {"nonce": "other", "expires": time.time() + LONG}
        _mailbox.write(request, json.dumps(other))
        process = self.ask()
        _, error = process.communicate(timeout=LONG)
        self.assertEqual(process.returncode, profile.FAILED)
        self.assertIn(b"another trace of this rank", error)
        # One whose requester was killed stops nobody.
        _mailbox.write(request, json.dumps({**other, "expires": time.time() - 1}))
        self.set_module("torch", fake_torch())
        self.assertEqual(self.step_until_end(watch, self.ask())[0], 0)

    def test_a_trace_is_written_when_the_program_ends(self) -> None:
        self.set_module("torch", fake_torch())
        watch = self.watch()
        process = self.ask("--seconds", "300")
        deadline = time.monotonic() + LONG
        while watch.due != 0.0:
            self.assertLess(time.monotonic(), deadline)
            watch.look()
        watch.close()
        out, _ = process.communicate(timeout=LONG)
        self.assertEqual(process.returncode, 0)
        self.assertTrue(os.path.exists(out[:-1]))

    def test_another_thread_does_not_end_it(self) -> None:
        self.set_module("torch", fake_torch())
        watch = self.watch()
        process = self.ask("--seconds", "1")
        deadline = time.monotonic() + LONG
        while watch.due != 0.0:
            self.assertLess(time.monotonic(), deadline)
            watch.look()
        over = threading.Thread(target=lambda: [watch.look() for _ in range(100)])
        watch._until = 0.0
        over.start()
        over.join()
        self.assertEqual(watch.due, 0.0)
        watch.look()
        self.assertGreater(watch.due, 0.0)
        process.communicate(timeout=LONG)
        self.assertEqual(process.returncode, 0)

    def test_a_file_that_was_cleaned_away_comes_back(self) -> None:
        watch = self.watch()
        os.unlink(watch._box.ready)
        watch.look()
        self.assertFalse(os.path.exists(watch._box.ready))
        watch._renewal = 0.0
        watch.look()
        self.assertTrue(os.path.exists(watch._box.ready))


class FilesTest(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory(prefix="lockstep-profile-test-")
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    @contextlib.contextmanager
    def parents(self, *parents: str) -> Iterator[None]:
        with mock.patch.object(_mailbox, "PARENTS", parents):
            yield

    def test_a_directory_that_others_made_is_not_used(self) -> None:
        first, second = self.folder + "/first", self.folder + "/second"
        for parent in (first, second):
            os.mkdir(parent)
        own = _mailbox.folder_in(second)
        for make in (
            lambda path: os.symlink(self.folder, path),
            lambda path: pathlib.Path(path).write_text(""),
            lambda path: (os.mkdir(path), os.chmod(path, 0o770)),
        ):
            theirs = _mailbox.folder_in(first)
            make(theirs)
            with self.parents(first, second):
                self.assertEqual(_mailbox.make_folder(), own)
            with self.parents(first):
                self.assertIsNone(_mailbox.make_folder())
                watch = _profiler.Watch(self.folder + "/file", "", lambda *_: None)
                self.assertEqual(watch.due, float("inf"))
                watch.close()
            os.rename(theirs, theirs + ".before")
            subprocess.run(["rm", "-rf", theirs + ".before"], check=True)

    def test_a_file_that_others_may_write_is_not_read(self) -> None:
        path = self.folder + "/file"
        _mailbox.write(path, '{"a": 1}')
        self.assertEqual(_mailbox.read_object(path), {"a": 1})
        self.assertEqual(os.listdir(self.folder), ["file"])
        os.chmod(path, 0o622)
        self.assertIsNone(_mailbox.read_object(path))
        os.chmod(path, 0o600)
        os.symlink(path, self.folder + "/link")
        self.assertIsNone(_mailbox.read(self.folder + "/link"))
        os.mkfifo(self.folder + "/fifo", 0o600)
        self.assertIsNone(_mailbox.read(self.folder + "/fifo"))
        _mailbox.write(path, "[" * (_mailbox.MOST_BYTES + 1))
        self.assertIsNone(_mailbox.read(path))
        for text in ("", "{", "[]", "1", '{"a": NaN'):
            _mailbox.write(path, text)
            self.assertIsNone(_mailbox.read_object(path), text)

    def test_requests_that_are_not_whole_are_dropped(self) -> None:
        whole = {
            "version": _mailbox.VERSION,
            "nonce": "ab12",
            "framework": "",
            "rank": 0,
            "directory": "/tmp",
            "seconds": 5,
            "expires": 1.5,
        }
        self.assertTrue(_profiler._valid(whole))
        for name in whole:
            self.assertFalse(_profiler._valid({k: v for k, v in whole.items() if k != name}), name)
        for name, bad in (
            ("nonce", "../a"),
            ("framework", "os"),
            ("rank", -1),
            ("directory", "tmp"),
            ("seconds", _mailbox.MOST_SECONDS + 1),
            ("seconds", "5"),
            ("expires", "soon"),
        ):
            self.assertFalse(_profiler._valid({**whole, name: bad}), (name, bad))

    def test_what_killed_programs_left_is_removed(self) -> None:
        with self.parents(self.folder):
            folder = _mailbox.make_folder()
            assert folder is not None
            dead = subprocess.Popen(["true"])
            start = _mailbox.start_of(dead.pid) or "1"
            dead.wait()
            left = _mailbox.Mailbox(folder, "/gone/file")
            ready = _mailbox.Ready(
                "/gone/file", "python", "/p", dead.pid, start, _mailbox.pid_namespace()
            )
            elsewhere = _mailbox.Mailbox(folder, "/elsewhere/file")
            for box, namespace in ((left, ready.namespace), (elsewhere, "pid:[1]")):
                made = _mailbox.Ready(*[*vars(ready).values()][:5], namespace)
                _mailbox.write(box.ready, made.text())
                _mailbox.write(box.answer, "{}")
            watch = _profiler.Watch("/here/file", "", lambda *_: None)
            here = _mailbox.Mailbox(folder, "/here/file")
            names = {os.path.basename(p) for p in (here.ready, elsewhere.ready, elsewhere.answer)}
            self.assertEqual(set(os.listdir(folder)), names)
            watch.close()
            self.assertFalse(os.path.exists(here.ready))


if __name__ == "__main__":
    unittest.main()
