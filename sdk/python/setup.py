"""The wheel's name: any Python 3, and no glibc before Ubuntu 22.04's."""

from setuptools import Distribution, setup
from wheel.bdist_wheel import bdist_wheel


class Wheel(bdist_wheel):
    def get_tag(self):
        return "py3", "none", "manylinux_2_35_x86_64"


class Native(Distribution):
    """It holds a shared library, though no module of Python's."""

    def has_ext_modules(self):
        return True


setup(cmdclass={"bdist_wheel": Wheel}, distclass=Native)
