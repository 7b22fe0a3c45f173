"""Builds the C++ kernels beside the package where there is a compiler; everything else stands in pyproject.toml."""

import importlib.util
import sys
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext

spec = importlib.util.spec_from_file_location("build", Path(__file__).parent / "nuq" / "native" / "build.py")
assert spec is not None and spec.loader is not None
kernels = importlib.util.module_from_spec(spec)
spec.loader.exec_module(kernels)


class Kernels(build_ext):
    """One shared library with no Python in it; a machine without a compiler installs without it, after one line."""

    def get_ext_filename(self, fullname: str) -> str:
        return fullname.replace(".", "/") + ".so"

    def build_extension(self, ext: Extension) -> None:
        try:
            kernels.build(Path(self.get_ext_fullpath(ext.name)))
        except kernels.CompilerError as error:
            print(
                f"nuq is installed without its C++ kernels and will use NumPy and PyTorch, slower: {error}",
                file=sys.stderr,
            )

    def get_outputs(self) -> list[str]:
        return [path for path in super().get_outputs() if Path(path).exists()]

    def copy_extensions_to_source(self) -> None:
        """Copy the library, where there is one, beside the sources of an editable install."""
        for ext in self.extensions:
            built = Path(self.build_lib) / self.get_ext_filename(ext.name)
            if built.exists():
                self.copy_file(str(built), str(Path(__file__).parent / self.get_ext_filename(ext.name)))


class Wheel(bdist_wheel):
    """The library has no Python in it, so that one wheel serves every Python 3 of a platform."""

    def get_tag(self) -> tuple[str, str, str]:
        return "py3", "none", super().get_tag()[2]


setup(ext_modules=[Extension("nuq.native.libnuq", [])], cmdclass={"build_ext": Kernels, "bdist_wheel": Wheel})
