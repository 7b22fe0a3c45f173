"""The benchmark of memory, small: processes of their own in turns, and what it says about them."""

import json

import pytest

from benchmarks import memory


@pytest.mark.slow
def test_packed_activations_take_less_and_both_train(capsys):
    memory.main(["--model", "resnet8", "--batch", "128", "--rounds", "2", "--threads", "1", "--formats", "fp32", "fp8"])
    told = json.loads(capsys.readouterr().out.splitlines()[-1])
    rows = told["formats"]
    assert rows["fp32"]["peak_ratio"] == rows["fp32"]["slowdown"] == rows["fp32"]["held"] == 1
    assert rows["fp8"]["peak_ratio"] < 0.8 and rows["fp8"]["held"] == pytest.approx(4, rel=0.01)
    assert rows["fp8"]["loss"] == pytest.approx(rows["fp32"]["loss"], rel=0.1)
    assert told["claims"] == {} and "peak_ratio" not in told  # smaq's alone


def test_options_that_compare_with_nothing_are_refused(capsys):
    for wrong in (["--formats", "smaq"], ["--rounds", "1"]):
        with pytest.raises(SystemExit):
            memory.main(wrong)
        assert "fp32" in capsys.readouterr().err
