"""The options ``--method`` and ``--import`` of pytest, which exist where ``nuq.testing`` is asked for and nowhere else.

pytest loads this module by an entry point of the distribution ``nuq``, with every run of whoever has it installed.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest

PACKAGE = "nuq.testing"


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config, parser: pytest.Parser, args: Sequence[str]) -> None:
    """Add the options to a run of the contract."""
    del early_config
    if any(word.startswith(PACKAGE) for word in args):
        add = parser.getgroup(PACKAGE, "the contract of a method").addoption
        add(
            "--method",
            action="append",
            metavar="NAME",
            dest="methods",
            help="a method, alone or with settings: 'mine bits=3'",
        )
        add("--import", action="append", metavar="PACKAGE", dest="imported", help="the package that adds it")


def pytest_configure(config: pytest.Config) -> None:
    """Import the packages, and hold the names of the methods against the table."""
    if not hasattr(config.option, "methods") or config.option.help:
        return
    from nuq.settings import plugins
    from nuq.testing import cases

    try:
        plugins.start([f"{plugins.OPTION}={name}" for name in config.option.imported or ()])
        names = [name for name in config.option.methods or () if name.strip()]
        if not names:
            raise ValueError(f"{PACKAGE}: say which method, as in --method mine or --method 'mine bits=3'")
        for name in names:
            cases.build(name)
    except ValueError as error:
        raise pytest.UsageError(str(error)) from error


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Let the tests of the contract run for the methods that are named."""
    if getattr(metafunc.module, "__name__", "").startswith(f"{PACKAGE}."):
        from nuq.testing import cases

        cases.parametrize(metafunc, metafunc.config.option.methods)
