"""The keywords that a type checker knows are the settings that there are: ``python -m tests.nuq.test_typed_settings``
writes them anew.
"""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from nuq.registry import METHODS
from nuq.settings import Declared, declared
from nuq.settings.exchange import Exchange, Hook, HookExchange
from nuq.settings.feedback import HookFeedback
from nuq.settings.fsdp import Fsdp, FsdpWeights
from nuq.settings.outer import Outer, OuterExchange

FILE = Path(__file__).parents[2] / "nuq" / "settings" / "typed.py"
HEAD = '''"""Settings as keywords, for type checkers and editors: which there are, their types, and their choices.

A keyword that only some methods have is among them: which method takes it is checked when it is given.
``python -m tests.nuq.test_typed_settings`` writes this file from the settings themselves.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypedDict
'''


def text() -> str:
    """The file as the settings have it."""
    methods: dict[str, list[Declared]] = {}
    for entry in METHODS.values():
        for name, of in declared(entry.settings).items():
            methods.setdefault(name, []).append(of)
    parts = [HEAD, _typed("OfMethod", "TypedDict, total=False", "Settings of all methods.", methods)]
    for name, schemas, what in (
        ("OfExchange", [Exchange], "Those, and of the exchange of one tensor."),
        ("OfFsdp", [Fsdp], "Those of methods, and of FSDP2's reduce-scatter."),
        ("OfFsdpWeights", [FsdpWeights], "Those of methods, and of FSDP2's gather of parameters."),
        ("OfOuter", [OuterExchange, Outer], "Those of methods, and of an outer loop."),
        ("OfHook", [HookExchange, Hook, HookFeedback], "Those of methods, and of the DDP hook."),
    ):
        own = {key: [of] for schema in schemas for key, of in declared(schema).items()}
        parts.append(_typed(name, "OfMethod, total=False", what, own))
    return "\n\n".join(part.strip("\n") + "\n" for part in parts)


def _typed(name: str, bases: str, what: str, fields: dict[str, list[Declared]]) -> str:
    lines = [f"    {key}: {_kind(ofs)}" for key, ofs in sorted(fields.items())]
    return "\n".join([f"class {name}({bases}):", f'    """{what}"""', "", *lines])


def _kind(ofs: list[Declared]) -> str:
    """The type of a setting over all that have it, and its choices where all have some."""
    if all(of.rule["choices"] for of in ofs):
        choices = dict.fromkeys(json.dumps(choice) for of in ofs for choice in of.rule["choices"])
        return f"Literal[{', '.join(choices)}] | str"  # a variable's text will do; editors offer the choices
    kinds = {of.type.__name__ if type(of.type) is type else str(of.type).replace("list[", "Sequence[") for of in ofs}
    return "float" if kinds == {"int", "float"} else " | ".join(sorted(kinds))


def test_the_file_is_what_the_settings_give() -> None:
    assert FILE.read_text() == text(), "python -m tests.nuq.test_typed_settings writes it"


PLANTED = """
import nuq
from torch import nn

model = nn.Linear(2, 2)
nuq.CompressionState(model, method="alq", bits=3, norm="linf", update_at=[0, 10], feedback="error", min_size=10)
nuq.CompressionState(model, bitz=4)
nuq.CompressionState(model, bits="4")
nuq.CompressionState(model, norm=3)
nuq.compress_fsdp(model, "alq", ratio="all")
nuq.describe(3)
nuq.MessageErrors
"""


@pytest.mark.slow
def test_a_type_checker_finds_planted_mistakes(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(PLANTED)
    command = [
        sys.executable,
        "-m",
        "pyright",
        "--outputjson",
        "--pythonpath",
        sys.executable,
        str(tmp_path / "mine.py"),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=FILE.parents[2])
    found = {each["range"]["start"]["line"] + 1 for each in json.loads(done.stdout)["generalDiagnostics"]}
    assert found == {7, 8, 9, 10, 11, 12}, textwrap.indent(done.stdout, "  ")


if __name__ == "__main__":
    FILE.write_text(text())
