"""``python -m nuq advise``: a table and lines to add, JSON, and a sentence for what a user gets wrong."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from nuq import __main__ as nuq_command
from nuq.advice import command
from nuq.advice.answer import Advice, Row
from nuq.advice.script import Observed
from nuq.settings import plugins
from tests import own_package
from tests.nuq.advice import scripts


@pytest.mark.slow
def test_a_script_is_advised_on_and_left_alone(tmp_path: Path) -> None:
    noisy = "import atexit, os\natexit.register(print, 'bye')\nos.system('echo hello')\n" + scripts.TRAINING
    (path := tmp_path / "train.py").write_text(noisy)
    options = ["--link", "100M", "--ranks", "4", "--method", "alq:bits=2", "--method", "powersgd", "--json"]
    arguments = [sys.executable, "-m", "nuq", "advise", *options, str(path), "--steps", "500"]
    root = str(Path(command.__file__).parents[2])
    environment = os.environ | {"PYTHONPATH": root, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(arguments, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["parameters"] == 13_805 and told["ranks"] == 4 and told["link_bit_s"] == 1e8
    assert {row["name"] for row in told["rows"]} == {"fp32", "bf16", "alq bits=2", "powersgd"}
    assert "hello" in done.stderr and "bye" in done.stderr
    assert path.read_text() == noisy


def test_options_after_the_scripts_name_are_its_own() -> None:
    words = ["--method", "alq", "./train.py", "alq", "--rank", "8", "--link", "2G", "--rank=9"]
    options, of_script = command.read(words)
    assert (options.script, options.link, options.method) == (Path("train.py"), "2G", ["alq"])
    assert of_script == ["alq", "--rank", "8", "--rank=9"]


@pytest.mark.parametrize(
    ("raised", "said"), [("KeyError('lost')", "KeyError: 'lost'"), ("ValueError('x')", "ValueError: x")]
)
def test_a_script_that_fails_shows_where(
    raised: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (path := tmp_path / "train.py").write_text(scripts.BROKEN.replace("KeyError('lost')", raised))
    assert command.main([str(path)]) == 2
    told = capsys.readouterr().err
    assert "Traceback" in told and told.splitlines()[-1] == f"error: train.py ended with {said}"


def test_commands_are_listed(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["nuq", "advice"])
    assert nuq_command.main() == 2
    assert capsys.readouterr().err == "error: 'advice' is no command of nuq (legal: advise)\n"
    monkeypatch.setattr(sys, "argv", ["nuq", "--help"])
    assert nuq_command.main() == 0
    assert "usage: python -m nuq {advise} ..." in capsys.readouterr().out


def _row(method: str, step_s: float, error: float, *, remembers: bool = False, **asked: object) -> Row:
    even = None if method in ("bf16", "fp32") else 2.5e9
    return Row(method, asked, "gather", step_s, even, 10**6, error, remembers, 0.001, 0.0)


def test_the_lines_to_add_are_python() -> None:
    seen = Observed({"w": torch.Size((10,))}, [], [(("w",), 1.0)], 0.1, 0.05)
    rows = [_row("powersgd", 0.1, 0.894, remembers=True), _row("alq", 0.2, 0.1, bits=4, update_at=[0, 10], norm="linf")]
    rows += [_row("bf16", 0.4, 1e-6), _row("fp32", 0.8, 0.0)]
    told = command.text(replace(seen, gradients=[torch.ones(10)] * 4), Advice(rows, 0.2943), 1e9, 8)
    assert "error: of the mean of 4 gradients" in told and "own noise is 0.3. Estimates from so few are" in told
    assert "   0.9*" in told and "1e-06 " in told
    assert "state = nuq.CompressionState(ddp, method=\"alq\", bits=4, update_at=[0, 10], norm='linf')" in told
    assert "powersgd is quicker still" in told and "*: what a step leaves out is remembered" in told
    assert "alq bits=4 update_at=[0, 10] norm=linf   200 ms   2.00x      below 2.5G" in told
    assert 'nuq.CompressionState(ddp, collective="dense")' in command.text(seen, Advice(rows[-2:], 0.3), 1e9, 8)
    alone = command.text(replace(seen, num_modules=2), Advice([_row("fp32", 0.1, 0.0), rows[-2]], 0.3), 1e9, 8)
    assert "Leave the script as it is: nothing whose error is below the gradients' own noise is 5 % quicker." in alone
    assert "The script makes 2 DDP modules: this is of the first one alone." in alone and "still" not in alone


def test_disturbed_times_are_doubtful() -> None:
    seen = Observed({"w": torch.Size((10,))}, [], [(("w",), 1.0)], 0.1, 0.05, spread=2.04)
    found = Advice([_row("bf16", 0.2, 0.0), _row("fp32", 0.3, 0.0)], 0.3)
    said = "The times are doubtful: a quarter of the timed steps took 2.0 times as long as the quickest or longer"
    assert said in command.text(seen, found, 1e9, 8)
    assert "doubtful" not in command.text(replace(seen, spread=1.4), found, 1e9, 8)
    assert json.loads(command.document(seen, found, 1e9, 8))["spread"] == 2.04
    shared = replace(seen, spread=1.0, processor_share=0.52)
    told = command.text(shared, found, 1e9, 8)
    assert "The times are doubtful: before the script ran, a thread that only computed got 52% of a processor" in told
    assert "quiet machine, or with fewer threads (OMP_NUM_THREADS)." in told and told.count("doubtful") == 1
    assert "doubtful" not in command.text(replace(shared, processor_share=0.95), found, 1e9, 8)
    assert json.loads(command.document(shared, found, 1e9, 8))["processor_share"] == 0.52


def test_a_biased_way_without_a_memory_is_marked() -> None:
    seen = Observed({"w": torch.Size((10,))}, [], [(("w",), 1.0)], 0.1, 0.05)
    others = [_row("bf16", 0.2, 0.0), _row("fp32", 0.3, 0.0)]
    topk = replace(_row("topk", 0.1, 0.1, feedback="none"), biased=True)
    told = command.text(seen, Advice([topk, *others], 0.3), 1e9, 8)
    assert "0.1!" in told and "!: biased, without a memory: its errors add up" in told
    assert "Take bf16: of those whose error is below the gradients' own noise (not marked !), the quickest." in told
    assert "topk feedback=none is quicker still, but its errors add up" in told
    assert "!" not in command.text(seen, Advice(others, 0.3), 1e9, 8)
    whole = replace(_row("eden", 0.1, 4e-15), whole=True)
    told = command.text(seen, Advice([whole, others[1], others[0]], 0.3), 1e9, 8)
    assert "4e-15=" in told and "still" not in told
    assert "=: every parameter travels in full precision, as it is smaller than min_size or a vector, which the" in told


def test_columns_stand_apart_and_below_their_names() -> None:
    seen = Observed({"w": torch.Size((10,))}, [], [(("w",), 1.0)], 0.1, 0.05)
    row = _row("topk", 0.1, 0.1, remembers=True, feedback="momentum", momentum=0.9)
    rows = [replace(row, encode_s=1.56e-6, decode_s=7.01e-6), _row("bf16", 0.4, 1e-6), _row("fp32", 1, 0)]
    lines = command.text(seen, Advice(rows, 0.3), 1e9, 8).splitlines()
    (head,) = (line for line in lines if "break-even" in line and "collective" in line)
    topk, bf16 = (next(line for line in lines if line.startswith(name)) for name in ("topk", "bf16"))
    assert len(head) - len("collective") == topk.index("gather") == bf16.index("gather")
    assert "0.1* 0.00156 ms  0.00701 ms  gather" in topk


def test_a_method_of_ones_own_is_imported_by_the_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own_package.write(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    seen = Observed({"w": torch.Size((10,))}, [], [(("w",), 1.0)], 0.1, 0.05)
    found = Advice([_row("mine", 0.1, 0.1), _row("bf16", 0.4, 1e-6), _row("fp32", 0.8, 0.0)], 0.3)
    with own_package.restored():
        plugins.load("my_package")
        assert "    import nuq\n    import my_package\n    state = " in command.text(seen, found, 1e9, 8)


@pytest.mark.parametrize(
    ("row", "given"),
    [
        (_row("dgc", 0.1, 0.1, remembers=True), 'method="dgc", momentum=0.9)'),
        (_row("alq", 0.1, 0.1, feedback="momentum", momentum=0.5), "feedback='momentum', momentum=0.5)"),
    ],
)
def test_momentum_leaves_the_optimizer(row: Row, given: str) -> None:
    seen = Observed({"w": torch.Size((10,))}, [], [(("w",), 1.0)], 0.1, 0.05)
    others = [_row("bf16", 0.4, 1e-6), _row("fp32", 0.8, 0.0)]
    told = command.text(seen, Advice([row, *others], 0.3), 1e9, 8)
    assert given in told and "Take momentum out of your optimizer" in told
    assert 'with Adam and its like say feedback="error", and no momentum' in told
    plain = command.text(seen, Advice([_row("topk", 0.1, 0.1, remembers=True), *others], 0.3), 1e9, 8)
    assert "momentum" not in plain


def test_json_has_words_where_there_is_no_number() -> None:
    seen = Observed({"w": torch.Size((10,))}, [], [(("w",), 1.0)], 0.1, 0.05)
    rows = [replace(_row("alq", 0.1, 0.0), break_even_bit_s=even) for even in (math.inf, 0.0, 1e9)]
    told = json.loads(command.document(seen, Advice([*rows, _row("fp32", 0.3, 0.0)], 0.3), 1e9, 8))
    assert [row["break_even_bit_s"] for row in told["rows"]] == ["always", "never", 1e9, None]
    assert told["recommended"] == "alq"
