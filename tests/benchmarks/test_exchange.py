"""The benchmark of the exchange: its models' shapes, the answers of a version's process, and two versions' figures."""

import io
import json
import math
from pathlib import Path

import pytest
import torch

from benchmarks import exchange, exchange_child

SHAPES = {"layer.weight": (40, 30), "layer.bias": (40,), "scale": (1,)}
# answers as a version would: the one of a checkout called "rival" is slow with small tensors and fast with others
STUB = """
import json, os, sys
rival = os.environ["PYTHONPATH"].endswith("rival")
for line in sys.stdin:
    command = json.loads(line)
    if command["do"] == "prepare":
        if command["method"] == "topk":
            sys.exit(3)
        answer = {"payload_bytes": 100, "checksum": rival * (command["method"] == "qsgdinf")}
    elif command["do"] == "measure":
        small = command["steps"] == 2
        seconds = (3 if small else 0.5) if rival else 1
        answer = {number: seconds * (1 + number) for number in command["peers"]}
    else:
        answer = {"encode": 107 * (150 if rival else 10), "decode": 54}
    print(json.dumps(answer), flush=True)
"""


@pytest.fixture
def rival(tmp_path, monkeypatch) -> Path:
    """A checkout to compare with; processes of both versions answer at once."""
    stub = tmp_path / "stub.py"
    stub.write_text(STUB)
    monkeypatch.setattr(exchange, "CHILD", stub)
    place = tmp_path / "rival"
    (place / "nuq" / "exchange").mkdir(parents=True)
    (place / "nuq" / "exchange" / "payload.py").touch()
    return place


def last_line(capsys):
    return json.loads(capsys.readouterr().out.splitlines()[-1])


# --- the models ---


def test_the_models_have_their_tensors():
    of_part = {part: exchange.shapes_of(part) for part in exchange.PARTS}
    assert {part: len(shapes) for part, shapes in of_part.items()} == {"small": 107, "large": 54, "resnet18": 62}
    sizes = {part: sum(map(math.prod, shapes.values())) for part, shapes in of_part.items()}
    assert sizes["small"] + sizes["large"] == 25_557_032 and sizes["resnet18"] == 11_173_962
    assert of_part["large"]["layer4.0.downsample.0.weight"] == (2048, 1024, 1, 1)


# --- one version ---


@pytest.mark.parametrize("method", exchange.METHODS)
def test_a_step_decodes_what_it_encodes(method):
    case = exchange_child.prepared(SHAPES, method, exchange.METHODS[method])
    assert exchange_child.described(case)["payload_bytes"] == case.payloads[0].numel()
    one = exchange_child.prepared(SHAPES, method, exchange.METHODS[method])
    assert exchange_child.described(one) == exchange_child.described(case)
    step_s = exchange_child.measure(case, [5, 0, 1], steps=2)
    assert 0 < step_s[0] <= step_s[1] <= step_s[5]
    error = (case.total / 5 - case.vector).square().sum() / case.vector.square().sum()
    assert error < {"supersgd": 1e-12, "topk": 1}.get(method, 0.5)
    assert not torch.equal(case.encode(), case.encode()) or method in ("supersgd", "topk")  # another step


def test_levels_are_fitted_first():
    case = exchange_child.prepared(SHAPES, "alq", {"bits": 3})
    assert case.codec.compressors[0].fitted


def test_calls_of_python_and_c_are_counted():
    def call():
        return len([call_within()])

    def call_within():
        return 7

    assert exchange_child.num_calls(call) == 3
    assert exchange_child.num_calls(call_within) == 1


def test_the_process_answers_line_by_line(monkeypatch, capsys):
    monkeypatch.setenv("PYTHONPATH", str(exchange.ROOT))
    commands = [
        {"do": "prepare", "shapes": SHAPES, "method": "alq", "settings": {"bits": 3}},
        {"do": "measure", "peers": [0, 2], "steps": 1},
        {"do": "calls"},
    ]
    monkeypatch.setattr("sys.stdin", io.StringIO("".join(json.dumps(command) + "\n" for command in commands)))
    exchange_child.main()
    prepared, step_s, calls = map(json.loads, capsys.readouterr().out.splitlines())
    assert set(prepared) == {"payload_bytes", "checksum"} and set(step_s) == {"0", "2"}
    assert calls["encode"] > 0 and calls["decode"] > 0


def test_the_library_of_another_checkout_is_refused(monkeypatch, tmp_path):
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with pytest.raises(SystemExit, match="was imported where that of"):
        exchange_child.check_checkout()


# --- two versions ---


def test_the_figures_of_two_versions(rival, tmp_path, capsys):
    rows = tmp_path / "rows"
    exchange.main(["--against", str(rival), "--methods", "alq", "qsgdinf", "--processes", "2", "--out", str(rows)])
    told = last_line(capsys)
    assert told["rounds"] == 6
    assert told["speedup_small_tensors"] == 3
    assert told["speedup_small_tensors_by_peers"] == {peers: [3, 3, 3] for peers in ("encode", "2", "8", "32")}
    assert told["slowdown_large"] == told["slowdown_large_by_case"]["resnet18 qsgdinf"] == 2
    assert told["different_bits"] == ["large qsgdinf", "resnet18 qsgdinf", "resnet50 qsgdinf", "small qsgdinf"]
    assert told["calls_per_tensor"]["small alq"] == {
        "rival": {"encode": 150, "decode": 0.5},
        "ours": {"encode": 10, "decode": 0.5},
    }
    whole = [row for row in map(json.loads, rows.read_text().splitlines()) if row["part"] == "resnet50"]
    assert [row["ours"]["step_s"] for row in whole if row["method"] == "alq"] == [2, 6, 18, 66]  # 1 + 1 a payload
    assert whole[0]["tensors"] == 161


def test_without_a_rival_there_are_no_ratios(rival, capsys):
    exchange.main(["--quick", "--parts", "small"])
    told = last_line(capsys)
    assert "speedup_small_tensors" not in told
    assert told["calls_per_tensor"] == {"small alq": {"ours": {"encode": 10, "decode": 0.5}}}


def test_a_process_that_ends_is_told(rival):
    with pytest.raises(SystemExit, match=rf"^benchmarks\.exchange: the process of {exchange.ROOT} ended with 3$"):
        exchange.main(["--against", str(rival), "--methods", "topk", "--parts", "small"])


@pytest.mark.parametrize(
    "wrong", [["--against", "/nowhere"], ["--rounds", "1"], ["--peers", "0"], ["--processes", "0"]], ids=" ".join
)
def test_options_that_measure_nothing_are_refused(wrong, capsys):
    with pytest.raises(SystemExit):
        exchange.main(wrong)
    assert wrong[0] in capsys.readouterr().err
