"""The result table: numbers, text, CSV and LaTeX."""

import io
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from rich.console import Console
from scipy import stats

from analysis.logs.load import load
from analysis.tables import result_table
from nuq.registry import METHODS

STEPS = range(0, 80, 10)


def rows(final: float, relative: float) -> list[tuple[str, int, float]]:
    accuracy = [("Vacc", step, final - 1 + (step == 40) * 3 + (step == 70)) for step in STEPS]
    variance = [("est_var", step, 1e-5 * (relative if step >= 60 else 99)) for step in STEPS] + [
        ("super_var", step, 1e-5) for step in STEPS
    ]
    return [*accuracy, *variance, ("Vloss", 70, 0.5), ("comm/bits_per_coordinate", 70, 3.25), ("comm/bytes", 70, 2.5e6)]


def numbers(**columns: object) -> pd.DataFrame:
    """One row as ``table`` would give it."""
    interval = {"difference_percent": -3.0, "difference_percent_pm": 1.0, "difference_percent_n": 3, "p_value": 0.0004}
    return pd.DataFrame([{"method": "alq", "label": "ALQ", "complete": 3, "runs": 3, **interval, **columns}])


@pytest.fixture
def demo(write_run: Callable[..., Path], tmp_path: Path) -> Path:
    for seed, accuracy in enumerate((90.0, 92.0, 97.0), 1):
        write_run("demo", {"method": "alq", "seed": seed}, rows(accuracy, 2.0**seed), seconds=10 * seed)
    write_run("demo", {"method": "sgd", "seed": 1}, rows(80, 4))
    write_run("demo", {"method": "sgd", "seed": 2}, rows(0, 1), state="running")
    write_run("demo", {"method": "amq"}, rows(0, 1), state="diverged")
    return tmp_path / "runs"


def test_numbers_by_hand(demo: Path) -> None:
    found = result_table.table(load(demo, "demo")).set_index("method")
    assert list(found.index) == ["sgd", "alq", "amq"]
    alq = found.loc["alq"]
    low, high = stats.t.interval(0.95, 2, loc=93, scale=stats.sem([90, 92, 97]))
    assert alq["final_accuracy_percent"] == pytest.approx(93)
    assert alq["final_accuracy_percent_pm"] == pytest.approx((high - low) / 2)
    assert alq["best_accuracy_percent"] == pytest.approx(95)  # at step 40, two above the end
    assert alq["relative_variance"] == pytest.approx(
        4
    )  # geometric mean of 2, 4, 8, over the last two of eight measurements
    assert (alq["final_validation_loss"], alq["bits_per_coordinate"], alq["sent_per_worker_mb"]) == (0.5, 3.25, 2.5)
    assert (alq["seconds"], alq["complete"], alq["runs"]) == (20, 3, 3)
    assert found["diverged"].tolist() == [0, 0, 1]
    assert tuple(found.loc["sgd", ["final_accuracy_percent", "complete", "runs"]]) == (80, 1, 2)
    assert np.isnan(found.loc["sgd", "final_accuracy_percent_pm"])
    assert np.isnan(found.loc["amq", "final_accuracy_percent"])


def test_text_says_n_and_what_is_incomplete(demo: Path) -> None:
    lines = result_table.text(result_table.table(load(demo, "demo"))).splitlines()
    assert " ".join(lines[0].split()) == "method seeds final acc. % best acc. % val. loss bits MB sent variance seconds"
    assert lines[2].split()[:6] == ["SGD", "1", "of", "2", "80.00", "(n=1)"]
    assert lines[3].split()[:5] == ["ALQ", "3", "93.00", "+-", "8.96"]
    assert lines[4].split() == ["AMQ", "0", "of", "1", *"-------"]
    assert len({len(line) for line in lines[1:4]}) == 1


def test_csv_and_latex_are_written(demo: Path, tmp_path: Path) -> None:
    found = result_table.table(load(demo, "demo"))
    csv, tex = result_table.write(found, tmp_path / "f")
    pd.testing.assert_frame_equal(pd.read_csv(csv), found, check_dtype=False)
    text = tex.read_text()
    body = [line for line in text.splitlines() if line.endswith(r"\\")]
    assert {line.count("&") for line in body} == {8}
    assert r"ALQ & 3 & $93.00 \pm 8.96$ & $95.00 \pm 8.96$ &" in text
    assert r"SGD & 1 of 2 & $80.00$ (n=1) & $82.00$ (n=1) &" in text
    assert r"final acc. \%" in text
    assert text.count(r"\begin{tabular}{lrrrrrrrr}") == text.count(r"\end{tabular}") == 1
    assert r"-3.00 \pm 1.00$" in result_table.latex(numbers().assign(label="a_b"), ["difference"])
    assert r"a\_b & 3 & $-3.00" in result_table.latex(numbers().assign(label="a_b"), ["difference"])


def test_latex_escapes_everything_it_would_act_on() -> None:
    assert result_table.latex_escaped(r"a_b 50% {x} #1 & $c$ ~^ \d") == (
        r"a\_b 50\% \{x\} \#1 \& \$c\$ \textasciitilde{}\textasciicircum{} \textbackslash{}d"
    )


def test_published_values_stand_beside_ours(write_run: Callable[..., Path], tmp_path: Path) -> None:
    write_run("cifar10_full_resnet32", {"method": "alq", "data": "cifar10", "model": "resnet32"}, rows(91, 2))
    write_run("cifar10_full_resnet32", {"method": "sgd", "data": "cifar10", "model": "resnet32"}, rows(91, 2))
    found = result_table.table(load(tmp_path / "runs", "cifar10_full_resnet32")).set_index("method")
    assert found.loc["alq", "published_accuracy_percent"] == 91.35
    assert np.isnan(found.loc["sgd", "published_accuracy_percent"])
    assert found.loc["alq", "difference_from_published_percent"] == pytest.approx(91 - 91.35)
    assert "paper acc. %" in result_table.text(found.reset_index())
    assert "paper: read from its curves" in result_table.legend(found.reset_index())
    settings = {"method": "amq", "data": "cifar10", "model": "resnet110", "trajectory": "sgd", "measure.every": 5}
    write_run("variance", settings, rows(91, 2))
    assert result_table.table(load(tmp_path / "runs", "variance")).loc[0, "published_relative_variance"] == 3.5


def test_published_values_stand_beside_their_own_task_only(write_run: Callable[..., Path], tmp_path: Path) -> None:
    task = {"data": "cifar10", "model": "resnet32", "steps": 80000}
    write_run("cifar10_full_resnet32", {**task, "method": "alq", "method.bits": 4}, rows(91, 2))
    write_run("cifar10_full_resnet32", {**task, "method": "trn"}, rows(91, 2))
    write_run("cifar10_full_resnet32", {**task, "method": "amq", "model": "resnet8", "steps": 600}, rows(91, 2))
    found = result_table.table(load(tmp_path / "runs", "cifar10_full_resnet32"))
    paper = dict(zip(found["method"], found["published_accuracy_percent"], strict=True))
    assert paper == {"trn": 89.61, "alq": pytest.approx(np.nan, nan_ok=True), "amq": pytest.approx(np.nan, nan_ok=True)}


def test_shortened_runs_of_the_paper_say_so(write_run: Callable[..., Path], tmp_path: Path) -> None:
    task = {"data": "cifar10", "model": "resnet32"}
    write_run("cifar10_full_resnet32", {**task, "method": "alq", "steps": 600}, rows(91, 2))
    found = result_table.table(load(tmp_path / "runs", "cifar10_full_resnet32"))
    assert "The paper trains for 80000 steps; these runs for 600." in " ".join(result_table.legend(found).split())


def test_published_methods_exist() -> None:
    from analysis import published

    named = {
        name for values in (*published.ACCURACY.values(), *published.RELATIVE_VARIANCE.values()) for name in values
    }
    assert named <= set(METHODS)


def test_columns_without_numbers_are_left_out(write_run: Callable[..., Path], tmp_path: Path) -> None:
    write_run("s", {"method": "alq"}, [("Vacc", 0, 50.0), ("Vacc", 5, float("nan"))])
    found = result_table.table(load(tmp_path / "runs", "s"))
    headings = result_table.text(found).splitlines()[0]
    assert "best acc. %" in headings
    assert "final acc. %" not in headings
    assert "bits" not in headings


@pytest.fixture
def two_tasks(write_run: Callable[..., Path], tmp_path: Path) -> Path:
    """SuperSGD and ALQ with 2 and 4 workers; seed 3 of SuperSGD with 4 workers still runs."""
    accuracy = {
        ("supersgd", 2): (80, 81, 82),
        ("alq", 2): (79, 81, 80),
        ("supersgd", 4): (90, 91, 0),
        ("alq", 4): (91, 94, 99),
    }
    for (method, workers), values in accuracy.items():
        for seed, value in enumerate(values, 1):
            speed = [("time/step_s", 20, 0.3), ("time/step_s", 40, 0.1)]
            settings = {"method": method, "workers": workers, "seed": seed, "batch_size": 16}
            write_run("s", settings, [*rows(value, 1), *speed], state="done" if value else "running")
    return tmp_path / "runs"


def test_differences_are_paired_by_seed_within_a_task(two_tasks: Path) -> None:
    found = result_table.table(load(two_tasks, "s")).set_index("label")
    two, four = found.loc["ALQ (workers 2)"], found.loc["ALQ (workers 4)"]
    assert (two["difference_percent"], two["difference_percent_n"]) == (pytest.approx(-1), 3)  # -1, 0, -2
    p = [stats.ttest_rel([79, 81, 80], [80, 81, 82]).pvalue, stats.ttest_rel([91, 94], [90, 91]).pvalue]
    assert two["p_value"] == pytest.approx(2 * p[0])  # Holm: the smaller one of two
    assert (four["difference_percent"], four["difference_percent_n"]) == (
        pytest.approx(2),
        2,
    )  # 1 and 3; the third has no partner
    assert p[1] < four["p_value"] == two["p_value"]
    assert np.isnan(found.loc["SuperSGD (workers 2)", "difference_percent"])
    assert list(found["workers"]) == [2, 4, 2, 4]
    line = next(
        line for line in result_table.text(found.reset_index()).splitlines() if line.startswith("ALQ (workers 4)")
    )
    assert "2.00 +- 12.71 (n=2)  0.451" in line


def test_the_order_of_variances_is_held_against_the_papers(write_run: Callable[..., Path], tmp_path: Path) -> None:
    """Of the paper's methods as published: not of one that rounds together, remembers, or has another solver or fit."""
    ours = {"alq": 1.5, "amq": 2.0, "qsgdinf": 9.0, "trn": 7.0, "nuqsgd": 90.0}
    original = {"method.solver": "paper", "method.norm": "l2", "method.fit": "mixture"}

    def ran(method: str, variance: float, **others: object) -> None:
        paper = {"method.rounding": "stochastic", **(original if method in ("alq", "amq") else {})}
        settings = {"method": method, "data": "cifar10", **paper, **others}
        write_run("s", settings, [("est_var", 0, variance), ("super_var", 0, 1.0)])

    for method, variance in ours.items():
        ran(method, variance)
    changed = [("solver", "exact"), ("rounding", "correlated"), ("fit", "histogram"), ("bits", 2)]
    for name, value in changed:
        ran("alq", 1e6, **{f"method.{name}": value})
    ran("alq", 1e6, **{"feedback.kind": "error"})
    notes = result_table.table(load(tmp_path / "runs", "s")).attrs["notes"]
    assert notes == (
        "Order of the variances of 5 methods as published, against ResNet-110's in the paper: Kendall's tau 0.80 (p "
        "0.083).",
    )
    ran("alq", 1.5, workers=3)
    assert result_table.table(load(tmp_path / "runs", "s")).attrs["notes"] == ()


def test_partners_of_a_rate_sweep_are_those_of_their_rate_whatever_has_diverged(
    write_run: Callable[..., Path], tmp_path: Path
) -> None:
    for method, lr, state in (("supersgd", 0.1, "done"), ("supersgd", 0.2, "diverged"), ("alq", 0.1, "diverged")):
        write_run("s", {"method": method, "optim.lr": lr}, rows(80, 1), state=state)
    write_run("s", {"method": "alq", "optim.lr": 0.2}, rows(70, 1))
    assert result_table.table(load(tmp_path / "runs", "s"))["difference_percent"].isna().to_numpy().all()


def test_nothing_is_compared_on_the_sgd_trajectory(write_run: Callable[..., Path], tmp_path: Path) -> None:
    """All runs on that trajectory train with the same gradient, whatever they measure."""
    for method in ("supersgd", "alq"):
        for seed in (1, 2):
            write_run(
                "s", {"method": method, "trajectory": "sgd", "measure.every": 5, "seed": seed}, rows(80 + seed, 2)
            )
    found = result_table.table(load(tmp_path / "runs", "s"))
    assert found["difference_percent"].isna().to_numpy().all()
    assert "vs SuperSGD" not in result_table.text(found)


def test_speed_is_that_of_training(two_tasks: Path) -> None:
    found = result_table.table(load(two_tasks, "s"))
    assert list(found["steps_per_s"]) == pytest.approx([5] * 4)  # 0.2 s a step
    assert list(found["images_per_s"]) == pytest.approx([5 * 16 * 2, 5 * 16 * 4] * 2)


def test_one_worker_alone_gives_its_own_images(write_run: Callable[..., Path], tmp_path: Path) -> None:
    settings = {"batch_size": 16, "workers": 4}
    write_run("s", {**settings, "method": "sgd"}, [("time/step_s", 20, 0.5)])
    write_run("s", {**settings, "method": "alq", "trajectory": "sgd", "measure.every": 5}, [("time/step_s", 20, 0.5)])
    assert list(result_table.table(load(tmp_path / "runs", "s"))["images_per_s"]) == [32, 32]


def test_a_table_fits_its_width(demo: Path) -> None:
    found = result_table.table(load(demo, "demo"))
    whole = max(map(len, result_table.text(found, width=10**6).splitlines()))
    assert result_table.left_out(found, width=whole) == ()
    for width in (whole - 1, 80, 60, 45):
        lines = result_table.text(found, width=width).splitlines()
        assert max(map(len, lines)) <= width
        assert lines[0].split()[:2] == ["method", "seeds"]
        assert "final acc. %" in lines[0]
        assert result_table.left_out(found, width=width)
        legend = result_table.legend(found, width=width)
        assert f"No room for: {', '.join(result_table.left_out(found, width=width))}." in " ".join(legend.split())
        assert max(map(len, legend.splitlines())) <= width
    assert "final acc. %" in result_table.text(found, width=5)


@pytest.mark.parametrize("width", [60, 100, 160])
def test_rich_shows_the_same_and_fits(demo: Path, width: int) -> None:
    found = result_table.table(load(demo, "demo"))
    console = Console(width=width, file=io.StringIO(), color_system=None)
    console.print(result_table.rich_table(found, "demo", width=width))
    assert isinstance(console.file, io.StringIO)
    printed = [
        line.split()
        for line in console.file.getvalue().replace("\N{PLUS-MINUS SIGN}", "+-").splitlines()
        if line.strip()
    ]
    plain = [line.split() for line in result_table.text(found, width=width).splitlines()]
    assert printed[0] == ["demo"]
    assert [printed[1], *printed[3:]] == [plain[0], *plain[2:]]


def test_columns_are_chosen_and_sorted(demo: Path) -> None:
    found = result_table.table(load(demo, "demo"))
    assert result_table.text(found, ["bits", "final_accuracy_percent", "p"]).splitlines()[0].split() == [
        "method",
        "seeds",
        "bits",
        "final",
        "acc.",
        "%",
        "p",
    ]
    order = {
        name: list(result_table.arranged(found, name)["method"])
        for name in ("method", "final", "seconds", "relative_variance")
    }
    assert order["method"] == ["sgd", "alq", "amq"]
    assert order["final"] == ["sgd", "alq", "amq"]  # amq has no value
    assert order["seconds"] == ["sgd", "alq", "amq"]  # 12.5 and 20
    assert list(result_table.arranged(found, "final", descending=True)["method"]) == ["alq", "sgd", "amq"]
    assert list(result_table.arranged(found, "method", descending=True)["method"]) == ["amq", "alq", "sgd"]
    assert "p: two-sided" in result_table.legend(found, ["p"])
    assert "bits: per" not in result_table.legend(found, ["p"])


def test_rows_are_sorted_by_a_setting(two_tasks: Path) -> None:
    found = result_table.table(load(two_tasks, "s"))
    kept = result_table.arranged(found, "workers", descending=True)
    assert list(kept["label"]) == ["SuperSGD (workers 4)", "ALQ (workers 4)", "SuperSGD (workers 2)", "ALQ (workers 2)"]
    assert result_table.legend(kept) == result_table.legend(found)


@pytest.mark.parametrize(
    "use", [lambda found: result_table.text(found, ["fnal"]), lambda found: result_table.arranged(found, "fnal")]
)
def test_an_unknown_column_is_one_sentence(demo: Path, use: Callable[[pd.DataFrame], object]) -> None:
    with pytest.raises(ValueError, match=r"^unknown column 'fnal'; did you mean 'final'\? \(legal: best, bits, .*\)$"):
        use(result_table.table(load(demo, "demo")))


def test_numbers_are_written_in_few_characters() -> None:
    def written(name: str, **columns: object) -> str:
        return result_table.text(numbers(**columns), [name]).splitlines()[2].split(maxsplit=2)[2]

    assert written("p") == "<0.001"
    assert written("difference") == "-3.00 +- 1.00"
    assert written("difference", difference_percent=-0.001) == "0.00 +- 1.00"
    assert written("difference", difference_percent_n=2) == "-3.00 +- 1.00 (n=2)"
    assert written("bits") == "-"
    assert written("seconds", seconds=123456.7) == "123457"
    assert written("speed", steps_per_s=0.01234) == "0.012"
    assert written("speed", steps_per_s=12.34) == "12.3"
    assert written("images", images_per_s=0.0) == "0"


def test_names_of_columns_are_unique() -> None:
    for names in ([column.name for column in result_table.COLUMNS], [column.short for column in result_table.COLUMNS]):
        assert len(set(names)) == len(names)


def test_a_sweep_without_runs_is_a_table_without_rows(tmp_path: Path) -> None:
    (tmp_path / "runs" / "s").mkdir(parents=True)
    found = result_table.table(load(tmp_path / "runs", "s"))
    assert len(found) == 0
    assert result_table.text(found).splitlines()[0].split() == ["method", "seeds"]
    assert result_table.legend(found)
    assert len(result_table.arranged(found, "final")) == 0
    for path in result_table.write(found, tmp_path):
        assert path.is_file()


def test_every_relative_variance_has_the_interval_of_its_measurements(
    write_run: Callable[..., Path], tmp_path: Path
) -> None:
    for seed in (1, 2):
        values = (("est_var", 8.0), ("super_var", 2.0), ("relative_var_se", 0.1 * seed))
        measurements = [(tag, step, value) for step in range(0, 80, 10) for tag, value in values]
        write_run("s", {"method": "sgd", "seed": seed}, [*measurements, ("Vacc", 70, 80.0)])
    write_run("s", {"method": "alq"}, [("est_var", 10, 3.0), ("super_var", 10, 2.0), ("Vacc", 70, 80.0)])
    logs = load(tmp_path / "runs", "s")
    found = result_table.table(logs).set_index("method")
    # two measurements of each seed: sqrt(2 * .1^2)/2 and sqrt(2 * .2^2)/2; of both seeds sqrt of the sum of their
    # squares, halved
    error = np.sqrt((0.1**2 + 0.2**2) / 2) / 2
    ends = tuple(found.loc["sgd", ["relative_variance", "relative_variance_low", "relative_variance_high"]])
    assert ends == pytest.approx((4, 4 * np.exp(-1.959964 * error), 4 * np.exp(1.959964 * error)))
    assert "4.00 (3.43-4.67)" in result_table.text(result_table.table(logs))
    assert np.isnan(found.loc["alq", "relative_variance_low"]), "logs of before say nothing of it"
    assert "1.50 " in result_table.text(result_table.table(logs))
