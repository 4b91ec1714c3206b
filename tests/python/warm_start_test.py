"""A warm start differs from a cold one in its time alone.

python3 tests/python/warm_start_test.py

Each program runs twice: by the interpreter itself, and by worker/warm/warm_start.py.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import tempfile
import textwrap
import time
import unittest
from typing import Any, Optional

SOURCE = pathlib.Path(os.environ.get("LOCKSTEP_SOURCE") or pathlib.Path(__file__).parents[2])
WARM_START = SOURCE / "worker" / "warm" / "warm_start.py"
FRAMEWORKS = os.environ.get("LOCKSTEP_FRAMEWORKS", "")
# Seconds: a loaded machine is slow.
LONG = 120
HELLO_BYTES = 16384

# What a program can see of its start.
PROBE = """
import atexit, json, os, signal, subprocess, sys, threading
main = sys.modules["__main__"]
def show(value):
    if type(value).__name__ == "SourceFileLoader":
        return ["SourceFileLoader", value.name, value.path]
    return repr(value)
print(sys.argv, getattr(sys, "orig_argv", None), sys.flags, sys.path, sep="\\n")
print([(name, show(value)) for name, value in vars(main).items() if name not in "fd fds names"])
print(sorted(os.environ.items()))
print(sorted(subprocess.run(["env"], stdout=subprocess.PIPE).stdout.splitlines()))
print(os.getcwd(), sys.executable, sys.getrecursionlimit(), sys.warnoptions, sys._xoptions)
fds = []
for fd in os.listdir("/proc/self/fd"):
    try:
        fds.append((fd, os.readlink("/proc/self/fd/" + fd).split(":")[0]))
    except OSError:
        pass
print(sorted(fds), threading.enumerate(), len(os.listdir("/proc/self/task")))
print([(number, signal.getsignal(number)) for number in signal.valid_signals()])
print(sys.excepthook is sys.__excepthook__, hasattr(sys, "last_type"))
print(sys.meta_path, sys.path_hooks)
atexit.register(print, "first at exit")
atexit.register(print, "second at exit", os.environ.get("RANK"), flush=True)
names = sorted(sys.modules)
print(json.dumps(names), file=sys.stderr)
"""


def setUpModule() -> None:
    """A test's process may have got descriptors that the started ones must not get."""
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            if int(name) > 2:
                os.set_inheritable(int(name), False)


class Result:
    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        out, error = process.communicate(timeout=LONG)
        self.code, self.error = process.returncode, error.decode()
        # Addresses of objects.
        self.out = re.sub(r"(at 0x|started )[0-9a-f]+", r"\1", out.decode())

    def all(self) -> "tuple[int, str, str]":
        return self.code, self.out, self.error


class Warm:
    """The worker daemon's part."""

    def __init__(
        self, words: "list[str]", cwd: pathlib.Path, environment: "dict[str, str]", python: str
    ) -> None:
        self.words, self.python = words, python
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket = ours
        ours.settimeout(LONG)
        file = os.memfd_create("warm_start") if hasattr(os, "memfd_create") else -1
        os.write(file, WARM_START.read_bytes())
        os.lseek(file, 0, os.SEEK_SET)
        # Above those that they become.
        high = [fcntl.fcntl(one, fcntl.F_DUPFD_CLOEXEC, 50) for one in (theirs.fileno(), file)]

        def become() -> None:
            os.dup2(high[0], 3)
            os.dup2(high[1], 4)

        at = len(words) - len(program_of(words))
        self.process = subprocess.Popen(
            [python, *words[:at], "/dev/fd/4", *words[at:]],
            cwd=cwd,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            close_fds=False,
            preexec_fn=become,
        )
        for one in (*high, file):
            os.close(one)
        theirs.close()

    def hello(self) -> "dict[str, Any]":
        packet = self.socket.recv(1 << 20)
        assert len(packet) <= HELLO_BYTES, len(packet)
        answer = json.loads(packet)
        assert isinstance(answer, dict) and answer["seconds"] >= 0
        return answer

    def hand_over(self, cwd: pathlib.Path, environment: "dict[str, str]") -> None:
        argv = [self.python, *self.words]
        variables = [f"{name}={value}" for name, value in environment.items()]
        strings = [str(cwd), str(len(argv)), *argv, *variables]
        file = os.memfd_create("start")
        os.write(file, b"".join(os.fsencode(one) + b"\0" for one in strings))
        rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, file.to_bytes(4, sys.byteorder))
        self.socket.sendmsg([b"start"], [rights])
        os.close(file)
        self.socket.close()

    def end(self) -> None:
        self.socket.close()
        self.process.kill()
        self.process.communicate()


def program_of(words: "list[str]") -> "list[str]":
    """Without the options of the interpreter, which have no values in these tests."""
    for at, word in enumerate(words):
        if not word.startswith("-") or word == "-m":
            return words[at:]
    return []


class WarmStartTest(unittest.TestCase):
    maxDiff = None

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory(prefix="lockstep-warm-test-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name).resolve()
        self.rank_folder = self.folder
        self.python = sys.executable
        self.environment = dict(os.environ, LOCKSTEP_JOB="a")
        # A shell that starts a Python sets it.
        self.environment["PWD"] = str(self.folder)
        # With what the rank gets.
        self.rank_environment = dict(self.environment, RANK="1", ODD="ü\n=x")
        self.hello: "dict[str, Any]" = {}

    def write(self, name: str, text: str) -> None:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text).lstrip("\n"))

    def cold(self, *words: str) -> Result:
        self.rank_environment["PWD"] = str(self.rank_folder)
        process = subprocess.Popen(
            [self.python, *words],
            cwd=self.rank_folder,
            env=self.rank_environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        return Result(process)

    def ready(self, *words: str) -> Warm:
        warm = Warm(list(words), self.folder, self.environment, self.python)
        self.addCleanup(warm.end)
        self.hello = warm.hello()
        return warm

    def warm(self, *words: str) -> Result:
        warm = self.ready(*words)
        warm.hand_over(self.rank_folder, self.rank_environment)
        return Result(warm.process)

    def same(self, *words: str) -> Result:
        """Both starts; what they leave and say is equal."""
        cold, warm = self.cold(*words), self.warm(*words)
        self.assertEqual(warm.all(), cold.all())
        return warm

    def imports(self, *words: str) -> "list[str]":
        self.ready(*words)
        imported: "list[str]" = self.hello["imported"]
        return imported

    # --- what a program sees ---

    def probe(self, *words: str) -> Result:
        cold, warm = self.cold(*words), self.warm(*words)
        for warm_line, cold_line in zip(warm.out.splitlines(), cold.out.splitlines()):
            self.assertEqual(warm_line, cold_line)
        self.assertEqual(warm.out, cold.out)
        self.assertEqual(warm.code, cold.code)
        self.assertIn("second at exit 1\nfirst at exit", cold.out)
        more = set(json.loads(warm.error)) - set(json.loads(cold.error))
        # No name that a file of the program could have meant.
        self.assertLessEqual(more, {"_socket", "_functools"})
        self.assertEqual(set(json.loads(cold.error)) - set(json.loads(warm.error)), set())
        return warm

    def test_a_script_sees_the_same(self) -> None:
        self.write("train.py", PROBE)
        for options in ([], ["-u"], ["-O", "-B"], ["-E"], ["-s"], ["-I"]):
            with self.subTest(options=options):
                self.probe(*options, "train.py", "--lr", "1", "-m", "")
                self.assertIn("json", self.hello["imported"])

    def test_a_script_in_another_folder_sees_the_same(self) -> None:
        self.write("code/v1/train.py", '"""Its text."""\n' + PROBE)
        (self.folder / "code" / "v2").symlink_to("v1")
        (self.folder / "linked.py").symlink_to("code/v2/train.py")
        (self.folder / "work").mkdir()
        for path in (
            "./code/v2/../v2/train.py",
            str(self.folder / "code/v1/train.py"),
            "linked.py",
        ):
            with self.subTest(path=path):
                self.probe(path)
        self.rank_folder = self.folder / "work"
        self.probe(str(self.folder / "linked.py"))

    def test_a_module_sees_the_same(self) -> None:
        self.write("pkg/__init__.py", "")
        self.write("pkg/train.py", '"""Its text."""\n' + PROBE)
        self.write("pkg/__main__.py", PROBE)
        self.probe("-m", "pkg.train", "--lr", "1")
        self.assertIn("json", self.hello["imported"])
        self.probe("-u", "-m", "pkg")

    def test_safe_path(self) -> None:
        self.write("train.py", PROBE)
        self.rank_environment["PYTHONSAFEPATH"] = self.environment["PYTHONSAFEPATH"] = "1"
        self.probe("train.py")
        if sys.version_info >= (3, 11):
            del self.rank_environment["PYTHONSAFEPATH"], self.environment["PYTHONSAFEPATH"]
            self.probe("-P", "train.py")

    def test_the_environment_has_the_order_of_the_ranks(self) -> None:
        with open(self.python, "rb") as file:
            if file.read(4) != b"\x7fELF":
                self.skipTest("a shell that starts this Python gives it another order")
        self.environment["GONE"] = "1"
        self.write("train.py", "import os\nprint(list(os.environb.items()))\nos.system('env')\n")
        self.assertNotIn("GONE", self.same("train.py").out)

    def test_what_a_library_sets_stays(self) -> None:
        self.python = self.with_library("import os\nos.environ['SET_BY_IT'] = '1'\n")
        self.write("train.py", "import it, os\nprint(list(os.environ.items()))\n")
        self.assertIn("SET_BY_IT", self.same("train.py").out)
        self.assertEqual(self.hello["imported"], ["it", "os"])

    def test_an_interpreter_that_would_start_otherwise_is_started(self) -> None:
        self.write("train.py", PROBE)
        self.rank_environment["PYTHONHASHSEED"] = "5"
        self.assertEqual(self.cold("train.py").all(), self.warm("train.py").all())

    # --- how a program ends ---

    def test_exit_codes(self) -> None:
        for text in ("import sys; sys.exit(3)", "raise SystemExit", "raise SystemExit('why')",
                     "import os; os._exit(7)", "exit(300)", "raise SystemExit([1])", "pass",
                     "import os; os.kill(os.getpid(), 9)"):  # fmt: skip
            self.write("train.py", text)
            with self.subTest(text=text):
                self.same("train.py")
                self.same("-m", "train")

    def test_an_uncaught_exception(self) -> None:
        self.write("pkg/__init__.py", "")
        self.write("pkg/deep.py", "def fall():\n    raise ValueError('bad')\n")
        self.write(
            "pkg/train.py",
            """
            import pkg.deep

            def main():
                try:
                    pkg.deep.fall()
                except ValueError as error:
                    raise RuntimeError("worse") from error

            if __name__ == "__main__":
                main()
            """,
        )
        self.write("train.py", "import pkg.train\npkg.train.main()\n")
        self.assertEqual(self.same("train.py").code, 1)
        self.assertIn("line 7", self.same("-m", "pkg.train").error)

    def test_a_missing_program(self) -> None:
        self.assertEqual(self.same("none.py").code, 2)
        self.assertEqual(self.same("-m", "none.at.all").code, 1)

    def test_an_interrupt(self) -> None:
        self.write("train.py", "import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n")
        self.assertEqual(self.same("train.py").code, -signal.SIGINT)

    def test_a_hook_for_exceptions(self) -> None:
        hook = """
            import atexit, sys, traceback

            def hook(kind, value, trace):
                print("hooked", kind, value, traceback.format_tb(trace))
                {}

            def end():
                print(sys.excepthook is hook, sys.last_value, traceback.format_tb(sys.last_traceback))

            sys.excepthook = hook
            atexit.register(end)
            1 / 0
            """  # noqa: E501
        for last in ("pass", "sys.exit(9)"):
            self.write("train.py", hook.format(last))
            self.assertIn("hooked", self.same("train.py").out)
        self.write("train.py", hook.format("[][1]"))
        # The frame of what calls the hook is not to be seen either.
        self.assertIn("Error in sys.excepthook", self.same("train.py").error)

    def test_a_syntax_error(self) -> None:
        for text in ("import json\ndef (:\n", "x = '\n", "import json\n  y = 1", "\0"):
            self.write("train.py", text)
            with self.subTest(text=text):
                self.same("train.py")
                self.assertEqual(self.hello["imported"], [])

    def test_a_warning_of_the_compiler_is_shown_once(self) -> None:
        self.write("train.py", "import json\nx = 1 is 1\n")
        self.same("train.py")

    def test_too_deep_a_recursion(self) -> None:
        self.write("train.py", "def f():\n    f()\ntry:\n    f()\nexcept RecursionError:\n"
                   "    print('deep')\n")  # fmt: skip
        self.same("train.py")

    # --- what a program does ---

    def test_pickles_of_its_classes(self) -> None:
        text = """
            import pickle

            class Point:
                pass

            data = pickle.dumps(Point())
            print(data, pickle.loads(data).__class__ is Point)
            """
        self.write("train.py", text)
        self.same("train.py")
        self.same("-m", "train")

    def test_processes_that_import_it_again(self) -> None:
        text = """
            import multiprocessing
            import os

            def work(rank):
                print("rank", rank, os.environ["RANK"], os.getcwd(), __name__, flush=True)

            if __name__ == "__main__":
                context = multiprocessing.get_context("spawn")
                process = context.Process(target=work, args=(3,))
                process.start()
                process.join()
                with context.Pool(1) as pool:
                    print(pool.map(abs, [-1]))
                print(process.exitcode)
            """
        for name in ("train.py", "work/train.py"):
            self.write(name, text)
        self.assertIn("rank 3 1", self.same("train.py").out)
        self.assertIn("rank 3 1", self.same("-m", "train").out)
        self.rank_folder = self.folder / "work"
        self.assertIn("rank 3 1", self.same("train.py").out)
        self.assertIn("rank 3 1", self.same("-m", "train").out)

    # --- what is imported before ---

    def with_library(self, text: str, name: str = "it.py") -> str:
        """Makes an environment of this Python with a library."""
        environment = self.folder / "environment"
        words = [sys.executable, "-m", "venv", "--without-pip", "--symlinks", str(environment)]
        made = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
        python = environment / "bin" / "python"
        asked = "import site; print(site.getsitepackages()[0])"
        found = subprocess.run([str(python), "-c", asked], stdout=subprocess.PIPE, check=False)
        path = pathlib.Path(found.stdout.decode().strip(), name)
        if made.returncode or environment not in path.parents:
            self.skipTest("this Python makes no environments")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return str(python)

    def test_the_forms_of_imports(self) -> None:
        self.write(
            "train.py",
            """
            from __future__ import annotations
            import json, xml.dom.minidom as m
            from concurrent import futures
            from email.mime.text import MIMEText
            from typing import TYPE_CHECKING
            import antigravity
            if TYPE_CHECKING:
                import cgitb
            try:
                import tomllib_that_is_not
            except ImportError:
                import configparser
            try:
                import csv
            except ImportError:
                import wave
            with open(__file__):
                import bz2
            def other():
                import mailbox
            def main():
                if True:
                    import sched
            if __name__ == "__main__":
                import pprint
                main()
            else:
                import netrc
            """,
        )
        self.assertEqual(
            self.imports("train.py"),
            ["json", "xml.dom.minidom", "concurrent", "email.mime.text", "typing", "configparser",
             "csv", "bz2", "pprint", "sched"],
        )  # fmt: skip
        self.assertNotIn("stopped", self.hello)

    def test_nothing_is_imported_after_a_statement_that_decides(self) -> None:
        for text, what in (
            ("import os\nos.environ['A'] = '1'", "changes os.environ"),
            ("import os as x\nx.environ.update(A='1')", "changes os.environ"),
            ("from os import environ\nenviron.setdefault('A', '1')", "changes os.environ"),
            ("from os import environ as e\ndel e['A']", "changes os.environ"),
            ("import os\ne = os.environ\ne['A'] = '1'", "changes os.environ"),
            ("import os\nos.putenv('A', '1')", "calls os.putenv"),
            ("from os import putenv\nputenv('A', '1')", "calls os.putenv"),
            ("import sys\nsys.path.insert(0, '/x')", "changes sys.path"),
            ("import sys\nsys.path += ['/x']", "changes sys.path"),
            ("from sys import path\npath += ['/x']", "changes sys.path"),
            ("import sys\nsys.path = []", "changes sys.path"),
            ("import sys\nsys.path[:0] = []", "changes sys.path"),
            ("import sys\nsys.modules['x'] = sys", "changes sys.modules"),
            ("import sys\nsys.meta_path.append(None)", "changes sys.meta_path"),
            ("import site\nsite.addsitedir('/x')", "calls site.addsitedir"),
            ("import importlib, os\nimportlib.reload(os)", "calls importlib.reload"),
            ("import ctypes\nctypes.CDLL(None)", "calls ctypes.CDLL"),
            ("import os\nif os.fork():\n  pass", "calls os.fork"),
            ("import os\nos.execv('/bin/true', ['true'])", "calls os.execv"),
            ("import os\nos.chdir('/')", "calls os.chdir"),
            ("import json\njson.loads = None", "changes json.loads"),
            ("import json\nsetattr(json, 'loads', None)", "changes json"),
            ("import os\ndef f():\n  os.environ['A'] = '1'\nf()", "changes os.environ"),
            ("import os\ndef g():\n  f()\ndef f():\n  os.chdir('/')\nx = [g()]", "calls os.chdir"),
            ("import os\nclass A:\n  def f(self):\n    os.chdir('/')\nA().f()", "calls os.chdir"),
            ("import os\nclass A:\n  os.chdir('/')", "calls os.chdir"),
            ("import os\ntry:\n  1\nexcept KeyError:\n  os.chdir('/')", "calls os.chdir"),
            ("import os\nfor i in (1,):\n  os.chdir('/')", "calls os.chdir"),
            ("from own import f\nf()", "changes os.environ"),
            ("import own\nown.f()", "changes os.environ"),
        ):
            self.write("own.py", "import os\ndef f():\n  os.environ['A'] = '1'\n")
            self.write("train.py", f"import csv\n{text}\nimport wave\n")
            with self.subTest(text=text):
                imported = self.imports("train.py")
                self.assertEqual(imported[0], "csv")
                self.assertNotIn("wave", imported)
                self.assertRegex(self.hello["stopped"], rf"^(train|own).py:\d+ {what}$")

    def test_reading_decides_nothing(self) -> None:
        self.write(
            "train.py",
            """
            import os, sys, json
            rank = int(os.environ.get("RANK", os.environ["LOCKSTEP_JOB"] and "0"))
            path = sys.path[0] + os.sep
            environ = {}
            environ["a"] = 1
            def train():
                os.environ["A"] = "1"
            def update(values):
                values.update(a=1)
            update({})
            import wave
            """,
        )
        self.assertIn("wave", self.imports("train.py"))
        self.assertNotIn("stopped", self.hello)

    def test_main_is_followed_until_it_decides(self) -> None:
        self.write(
            "train.py",
            """
            import os
            import own

            def main():
                import csv
                import late
                os.environ["A"] = "1"
                import wave

            if __name__ == "__main__":
                main()
            """,
        )
        self.write("own.py", "def main():\n    import mailbox\n")
        self.write("late.py", "import sched\n")
        self.assertEqual(self.imports("train.py"), ["os", "csv", "sched"])
        self.assertEqual(self.hello["stopped"], "train.py:7 changes os.environ")

    def test_own_modules_are_read_and_not_run(self) -> None:
        own = "import {}\nopen('run', 'a').write(__name__ + ' ')\n"
        self.write("train.py", "import wave\nimport own.part\nfrom own import more\nimport bz2\n")
        self.write("own/__init__.py", own.format("csv") + "from . import first\n")
        self.write("own/first.py", own.format("sched") + "from .part import x\nfrom own import *\n")
        self.write("own/part.py", own.format("mailbox") + "x = 1\n")
        self.write("own/more/__init__.py", own.format("netrc"))
        warm = self.ready("train.py")
        expected = ["wave", "csv", "sched", "mailbox", "netrc", "bz2"]
        self.assertEqual(self.hello["imported"], expected)
        self.assertFalse((self.folder / "run").exists())
        warm.hand_over(self.folder, self.rank_environment)
        self.assertEqual(Result(warm.process).all(), (0, "", ""))
        self.assertEqual((self.folder / "run").read_text(), "own own.first own.part own.more ")

    def test_own_modules_that_hide_libraries(self) -> None:
        names = ("ast", "functools", "json", "socket", "struct", "warnings")
        for name in names:
            self.write(f"{name}.py", "")
        show = "".join(f"print({name})\n" for name in names)
        self.write("train.py", f"import {', '.join(names)}\n{show}")
        self.same("train.py")
        # A library would run the program's own: such a process is given up.
        self.write("calendar.py", "open('run', 'w')\n")
        self.write("train.py", "import mailbox\n")
        warm = Warm(["train.py"], self.folder, self.environment, self.python)
        self.addCleanup(warm.end)
        self.assertEqual(warm.socket.recv(1000), b"")
        result = Result(warm.process)
        self.assertEqual(result.code, 3)
        self.assertIn("a library imports", result.error)
        self.assertFalse((self.folder / "run").exists())

    def test_a_cycle_and_many_files(self) -> None:
        for number in range(250):
            text = f"import own{number + 1}\nimport own{number // 2}\n"
            self.write(f"own{number}.py", text + ("import csv\n" if number == 0 else ""))
        self.write("own250.py", "import wave\n")
        self.write("train.py", "import bz2\nimport own0\nimport json\n")
        self.assertEqual(self.imports("train.py"), ["bz2"])
        self.assertIn("stopped", self.hello)
        self.write("own100.py", "import own3\nimport wave\n")
        self.same("train.py")
        self.assertEqual(self.hello["imported"], ["bz2", "wave", "csv", "json"])

    def test_a_library_that_fails(self) -> None:
        text = "import it.part\nprint('once more')\n{}\n"
        for last in (
            "raise ValueError('bad')",
            "import sys; sys.exit(5)",
            "raise KeyboardInterrupt",
        ):
            self.python = self.with_library(text.format(last), "it/__init__.py")
            self.with_library("print('part')\n", "it/part.py")
            self.write(
                "train.py",
                """
                import csv
                try:
                    import it
                except BaseException as error:
                    print(repr(error))
                import wave, sys
                print("it" in sys.modules)
                """,
            )
            with self.subTest(last=last):
                cold, warm = self.cold("train.py"), self.warm("train.py")
                # What it writes is written twice.
                self.assertTrue(warm.out.endswith(cold.out), warm.out)
                self.assertEqual((warm.code, warm.error), (cold.code, cold.error))
                self.assertEqual(self.hello["imported"], ["csv", "wave", "sys"])

    def test_the_hook_of_a_library(self) -> None:
        hook = "def __lockstep_warm__():\n  import wave\n  raise ValueError\n"
        self.python = self.with_library(hook)
        show = "print('wave' in sys.modules)\n"
        self.write("train.py", "import it, sys\n" + show)
        self.assertEqual(self.warm("train.py").all(), (0, "True\n", ""))
        # It might read what the program changes.
        self.write("train.py", "import it, os, sys\nos.environ['A'] = '1'\n" + show)
        self.assertEqual(self.warm("train.py").all(), (0, "False\n", ""))

    def test_what_torch_imports_with_the_first_optimizer(self) -> None:
        self.python = self.with_library("", "torch/__init__.py")
        self.with_library("", "torch/_dynamo.py")
        show = "print('torch._dynamo' in sys.modules)\n"
        self.write("train.py", "import torch, sys\n" + show)
        self.assertEqual(self.warm("train.py").all(), (0, "False\n", ""))
        self.write("train.py", "import torch, sys\n" + show + "# optim\n")
        self.assertEqual(self.warm("train.py").all(), (0, "True\n", ""))

    def test_a_library_that_initializes_cuda(self) -> None:
        text = "class cuda:\n  is_initialized = staticmethod(lambda: True)\n"
        self.python = self.with_library(text, "torch.py")
        self.write("train.py", "import torch\n")
        warm = Warm(["train.py"], self.folder, self.environment, self.python)
        self.addCleanup(warm.end)
        self.assertEqual(warm.process.wait(LONG), 3)
        self.assertEqual(warm.socket.recv(1000), b"")

    def test_a_long_report_is_cut(self) -> None:
        names = [f"module_{number:04}" for number in range(1200)]
        self.python = self.with_library("")
        for name in names:
            next(self.folder.glob("environment/lib/*/site-packages/it.py")).with_name(
                name + ".py"
            ).write_text("")
        self.write("train.py", "".join(f"import {name}\n" for name in names) + "print('ü')\n")
        imported = self.imports("train.py")
        self.assertGreater(len(imported), 400)
        self.assertEqual(imported, names[: len(imported)])

    # --- the daemon's end ---

    def test_it_leaves_at_end_of_file(self) -> None:
        self.write("train.py", "import atexit\natexit.register(print, 'x')\nprint('run')\n")
        warm = self.ready("train.py")
        warm.socket.close()
        self.assertEqual(Result(warm.process).all(), (3, "", ""))

    def test_the_program_is_read_when_it_starts(self) -> None:
        self.write("train.py", "import csv\nprint('old')\n")
        warm = self.ready("train.py")
        self.write("train.py", "import fresh\nprint('new')\n")
        self.write("fresh.py", "print('fresh')\n")
        warm.hand_over(self.rank_folder, self.rank_environment)
        self.assertEqual(Result(warm.process).all(), (0, "fresh\nnew\n", ""))


@unittest.skipUnless(FRAMEWORKS, "run tests/frameworks/setup DIR and set LOCKSTEP_FRAMEWORKS=DIR")
class TorchTest(WarmStartTest):
    """Only its own tests: see load_tests."""

    def test_torch_is_ready(self) -> None:
        self.python = os.path.join(FRAMEWORKS, "torch", "bin", "python")
        if not os.path.exists(self.python):
            self.skipTest("there is no PyTorch")
        lockstep: Optional[str] = os.environ.get("PYTHONPATH")
        for module in ("torch", "torch, lockstep.torch"):
            if "lockstep" in module and not lockstep:
                continue
            self.write(
                "train.py",
                f"""
                import time
                first = time.time()
                import {module}
                torch.optim.SGD([torch.nn.Parameter(torch.zeros(3))], lr=0.1)
                print(first, time.time())
                """,
            )
            for start in ("cold", "warm"):
                warm = self.ready("train.py") if start == "warm" else None
                begin = time.time()
                if warm:
                    self.assertIn("torch", self.hello["imported"])
                    warm.hand_over(self.rank_folder, self.rank_environment)
                    result = Result(warm.process)
                else:
                    result = self.cold("train.py")
                self.assertEqual((result.code, result.error), (0, ""))
                first, made = (float(word) - begin for word in result.out.split())
                took = self.hello["seconds"] if warm else 0
                print(
                    f"import {module}, {start}: first line {first * 1e3:.1f} ms, optimizer made"
                    f" {made * 1e3:.1f} ms, prepared {took:.2f} s",
                    file=sys.stderr,
                )


def load_tests(
    loader: unittest.TestLoader, tests: unittest.TestSuite, pattern: Optional[str]
) -> unittest.TestSuite:
    plain = loader.loadTestsFromTestCase(WarmStartTest)
    return unittest.TestSuite([plain, TorchTest("test_torch_is_ready")])


if __name__ == "__main__":
    unittest.main()
