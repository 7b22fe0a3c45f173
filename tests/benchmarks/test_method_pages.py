"""The pages of the methods: they are what the code says, and what they say is true."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from benchmarks import method_pages
from nuq.description import shown
from nuq.exchange.hook.settings import HookSettings
from nuq.fsdp import CompressedReduceScatter
from nuq.registry import METHODS
from nuq.settings import check, declared
from nuq.settings.layers import parsed, parsed_format

ROW = {"error": 0.48321, "error_low": 0.41, "error_high": 0.59, "bits_per_coordinate": 3.00049}
ROW |= {"encode_gb_per_s": 5.034, "decode_gb_per_s": 14.3, "ratio": 77.1, "ratio_low": 75.2, "ratio_high": 93.0}


def test_the_pages_are_as_the_code_has_them() -> None:
    wrong = method_pages.differing(method_pages.PAGES, method_pages.pages(method_pages.recorded()))
    assert not wrong, "run python -m benchmarks.method_pages"


def test_other_pages_are_named_and_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    wanted = {"alq.md": "ALQ\n", "qsgd.md": "QSGD\n", "trn.md": "TRN\n"}
    monkeypatch.setattr(method_pages, "ROOT", tmp_path)
    monkeypatch.setattr(method_pages, "PAGES", tmp_path / "pages")
    monkeypatch.setattr(method_pages, "pages", lambda measured: wanted)
    assert method_pages.main(["--check"]) == 1 and not (tmp_path / "pages").exists()
    assert method_pages.main([]) == 0 == method_pages.main(["--check"])
    (tmp_path / "pages" / "alq.md").write_text("by hand\n")
    (tmp_path / "pages" / "trn.md").unlink()
    (tmp_path / "pages" / "gone.md").write_text("a method that is no more\n")
    capsys.readouterr()
    assert method_pages.main(["--check"]) == 1
    told = capsys.readouterr().out.splitlines()
    assert told == [f"pages/{name}.md: is not as the code has it" for name in ("alq", "gone", "trn")]
    assert method_pages.main([]) == 0
    assert {path.name: path.read_text() for path in (tmp_path / "pages").iterdir()} == wanted


def test_what_was_measured_stands_there_with_its_circumstances() -> None:
    figures = {"gradient": "ResNet-18 on CIFAR-10", "num_coordinates": 11_173_962, "stand_in": False}
    measured: dict[str, Any] = {
        "command": "python -m benchmarks.methods --threads 1 --quick",
        "commit": "abcdef12",
        "date": "2026-11-26",
        "hardware": "Intel Xeon, 2 cores",
        "figures": {**figures, "methods": {"alq": {**ROW}}},
    }
    page = method_pages.page("alq", measured)
    assert "\n| 0.483 (0.41 to 0.59) | 3 | 5.03 | 14.3 | 77.1 (75.2 to 93) |\n" in page
    for word in ("11,173,962", "2026-11-26", "abcdef12", "Intel Xeon, 2 cores", "ResNet-18"):
        assert word in page
    assert "stand-in" not in page and "Not measured yet" not in page
    assert "Not measured yet" in method_pages.page("qsgd", measured)
    assert "Not measured yet" in method_pages.page("alq")
    measured["figures"]["stand_in"] = True
    measured["figures"]["methods"]["alq"] |= {"ratio": None}
    assert "stand-in" in method_pages.page("alq", measured) and "| none |" in method_pages.page("alq", measured)


def test_what_a_page_says_is_legal(subtests: pytest.Subtests) -> None:
    """Its lines, the legal values, the memories, the layers, FSDP2 and the formats that it names, and no others."""
    for name in METHODS:
        with subtests.test(method=name):
            page, entry = method_pages.page(name), METHODS[name]
            (words,) = re.findall(rf'CompressionState\(model, method="{name}"(.*)\)', page)
            given = {key: json.loads(value) for key, value in re.findall(r", (\w+)=([\d.]+)", words)}
            HookSettings.of(name, (), given)
            check(entry.settings, given)
            for word, of in declared(entry.settings).items():
                (row,) = re.findall(rf"^\| `{word}` \| `.*` \| (.*) \| .+ \|$", page, re.MULTILINE)
                choices = re.findall(r"`(\w+)`", row.partition("; read with")[0])
                assert not of.rule["choices"] or choices == [shown(choice) for choice in of.rule["choices"]]
            for kind in ("none", "error", "momentum"):
                if f"`{kind}`" in page.partition("[Memory]")[2].partition("\n")[0]:
                    HookSettings.of(name, (), {"feedback": kind})
            if entry.single_worker:
                with pytest.raises(ValueError, match="one worker's gradient alone"):
                    CompressedReduceScatter(name, "model")
                with pytest.raises(ValueError, match="one worker's gradient alone"):
                    parsed([f"* = {name}"])
            else:
                CompressedReduceScatter(name, "model")
                parsed([f"* = {name}"])
            if "in this format: yes" in page:
                parsed_format(name)
            else:
                with pytest.raises(ValueError, match=name):
                    parsed_format(name)


def test_the_first_sentences_tell_the_methods_apart() -> None:
    summaries = {name: method_pages.page(name).split("\n\n")[1] for name in METHODS}
    assert len(set(summaries.values())) == len(METHODS)
    assert all(40 < len(summary) < 260 for summary in summaries.values())


def test_docstrings_as_markdown() -> None:
    docstring = """First ``a*b`` of arXiv 1806.04090, ``x <
y``, 2*k < 3 and *this*.

Body::

    one ``uint8``

    two

After:
- an item
  that goes on
- another"""
    assert method_pages.markdown(docstring) == (
        "First `a*b` of [arXiv 1806.04090](https://arxiv.org/abs/1806.04090), `x < y`, 2\\*k &lt; 3 and *this*.\n\n"
        "Body:\n\n```text\none uint8\n\ntwo\n```\n\nAfter:\n\n- an item that goes on\n- another"
    )
