"""The wheel's name: any Python 3, and no glibc before Ubuntu 22.04's."""

from setuptools import setup
from wheel.bdist_wheel import bdist_wheel


class Wheel(bdist_wheel):
    def finalize_options(self):
        super().finalize_options()
        # It holds a shared library, though no module of Python's.
        self.root_is_pure = False

    def get_tag(self):
        return "py3", "none", "manylinux_2_35_x86_64"


setup(cmdclass={"bdist_wheel": Wheel})
