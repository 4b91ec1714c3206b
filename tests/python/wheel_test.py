"""The wheel, built by its one command and installed from its file.

It takes the name that pip needs, works in an environment with nothing else, and
brings the client's packages where they are asked for.
"""

import os
import pathlib
import subprocess
import sys
import tempfile
import unittest
import zipfile

BUILD = pathlib.Path(os.environ["LOCKSTEP_BINARY_DIR"]).parent


def run(*words: object) -> str:
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    done = subprocess.run(
        list(map(str, words)), capture_output=True, text=True, env=environment, check=False
    )
    if done.returncode:
        raise AssertionError(f"{words}: {done.stdout}{done.stderr}")
    return done.stdout


class WheelTest(unittest.TestCase):
    def test_is_built_and_installed(self) -> None:
        run("cmake", "--build", BUILD, "--target", "wheel")
        wheels = list((BUILD / "dist").glob("*.whl"))
        self.assertEqual(len(wheels), 1, wheels)
        self.assertRegex(
            wheels[0].name, r"^lockstep-\d+\.\d+\.\d+-py3-none-manylinux_2_35_x86_64\.whl$"
        )
        with zipfile.ZipFile(wheels[0]) as wheel:
            for library in ("liblockstep.so.0", "liblockstep_mpi.so"):
                self.assertIn("lockstep/lib/" + library, wheel.namelist())
        with tempfile.TemporaryDirectory() as folder:
            run(sys.executable, "-m", "venv", folder)
            python = folder + "/bin/python"
            run(python, "-m", "pip", "install", "--quiet", "--no-index", wheels[0])
            shown = run(
                python,
                "-c",
                "import lockstep\n"
                "session = lockstep.join()\n"
                "session.step(samples=1)\n"
                "print(session.rank, session.world_size, lockstep.__file__)\n"
                "try:\n    lockstep.Client\n"
                "except lockstep.Error as error:\n    print(error)",
            )
            self.assertTrue(shown.startswith("0 1 " + folder), shown)
            # Without its packages the client says what to install.
            self.assertIn("lockstep[client]", shown)
            run(python, "-m", "pip", "install", "--quiet", f"{wheels[0]}[client]")
            run(python, "-c", "import lockstep; lockstep.Client")


if __name__ == "__main__":
    unittest.main()
