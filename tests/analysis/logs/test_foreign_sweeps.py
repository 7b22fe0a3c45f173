"""Sweeps of runs that other systems left, read, drawn and put into tables like our own."""

from pathlib import Path

import pytest

from analysis.groups.seed_groups import seed_groups
from analysis.groups.selection import select
from analysis.logs.load import Logs, load
from analysis.tables import result_table
from tests.analysis.conftest import Rows, write_events
from tests.analysis.logs.test_foreign import original
from tests.analysis.logs.test_smaq_logs import HPARAMS


def left(folder: Path, rows: Rows) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    write_events(folder, rows)


def twice(runs: Path, sweep: str) -> Logs:
    """The second time from the cache: units must not be changed twice."""
    first, again = load(runs, sweep), load(runs, sweep)
    assert first.scalars.equals(again.scalars) and first.notes == again.notes
    return again


def test_dgcs_inputs_are_steps(tmp_path: Path) -> None:
    folder = tmp_path / "dgc" / "[cifar.resnet20+dgc.wm5].np8"
    steps = range(1, 101)
    left(folder, [*(("loss/train", 1024 * step, 2 / step) for step in steps), ("acc/test_top1", 50 * 1024, 71.5)])
    logs = twice(tmp_path, "dgc")
    assert logs.of_tag("loss").index.tolist() == list(steps)
    assert logs.of_tag("Vacc").to_dict("list") == {folder.name: [71.5]} and logs.of_tag("Vacc").index.tolist() == [50]
    assert [seed_group.method for seed_group in seed_groups(logs.settings)] == ["dgc"]


def test_a_dgc_run_that_does_not_show_its_inputs_keeps_them_and_says_so(tmp_path: Path) -> None:
    folder = tmp_path / "dgc" / "cifar.resnet20.np8"
    left(folder, [("acc/test_top1", 51200, 71.5)])
    logs = twice(tmp_path, "dgc")
    assert logs.of_tag("Vacc").index.tolist() == [51200]
    assert f"{folder.name}: nothing in its log tells the inputs of one step, so its steps are inputs seen" in logs.notes


def test_the_originals_runs_and_smaqs_stand_in_one_sweep(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ours = tmp_path / "mixed" / "runs_cifar10" / "exp_001"
    original(ours, nuq_method="amq_nb")
    left(ours, [("Vacc", step, 80.0 + step / 100) for step in (100, 200)])
    lightning = tmp_path / "mixed" / "lightning_logs" / "version_0"
    left(lightning, [("val_accuracy", 100, 0.75), ("compression_ratio", 100, 4.75)])
    (lightning / "hparams.yaml").write_text(HPARAMS.replace("{touched}", str(tmp_path / "touched")))
    logs = twice(tmp_path, "mixed")
    assert sorted(logs.of_tag("Vacc").loc[100]) == [75.0, 81.0]
    assert logs.of_tag("compression_ratio").to_numpy().tolist() == [[4.75]]
    assert list(select(logs, ["method=amq", "bits=3"]).settings.index) == ["runs_cifar10/exp_001"]
    assert {"AMQ", "SmaQ"} <= {seed_group.label for seed_group in seed_groups(logs.settings)}
    assert len(result_table.table(logs)) == 2
    assert not (tmp_path / "touched").exists()
