"""The notebook, figures and tables on logs of real training: a part of the sweep `demo`, shortened."""

import base64
import json
import math
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from matplotlib.figure import Figure

from analysis.figures import Named, named
from analysis.groups.selection import select
from analysis.logs.load import Logs, load
from analysis.notebook import chosen, drawn
from analysis.plots.style import WIDTHS
from analysis.tables import result_table
from tests.analysis import short_demo
from tests.conftest import ROOT

NOTEBOOK = ROOT / "analysis" / "figs_nuq.ipynb"
PNG = b"\x89PNG\r\n"
# As Jupyter would, with the Python of this environment; a fresh process, because a kernel needs an event loop and a
# home of its own.
EXECUTE = """
import sys
import nbformat
from nbclient import NotebookClient

notebook = nbformat.read(sys.argv[1], 4)
NotebookClient(notebook, timeout=300, kernel_name="python3", resources={"metadata": {"path": sys.argv[2]}}).execute()
nbformat.write(notebook, sys.argv[3])
"""


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The runs of ``short_demo``: 4 methods, 2 seeds, 48 steps; a few seconds each."""
    folder = tmp_path_factory.mktemp("trained")
    done = subprocess.run(
        [sys.executable, "-m", "tests.analysis.short_demo", str(folder)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return folder / "runs"


@pytest.fixture(scope="module")
def logs(runs: Path) -> Logs:
    return load(runs, "demo")


def execute(folder: Path, out: Path, **environment: str) -> dict[str, Any]:
    """The notebook after it has been run in ``folder``, at home in a folder of its own."""
    home = out / "home"
    home.mkdir()
    places = {
        name: str(home / name)
        for name in ("IPYTHONDIR", "MPLCONFIGDIR", "JUPYTER_DATA_DIR", "JUPYTER_CONFIG_DIR", "JUPYTER_RUNTIME_DIR")
    }
    done = subprocess.run(
        [sys.executable, "-c", EXECUTE, str(NOTEBOOK), str(folder), str(out / "run.ipynb")],
        env={**os.environ, **places, "HOME": str(home), **environment},
        cwd=out,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return json.loads((out / "run.ipynb").read_text())


def outputs(notebook: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [output for cell in notebook["cells"] if cell["cell_type"] == "code" for output in cell["outputs"]]


def printed(notebook: Mapping[str, Any]) -> str:
    return "".join("".join(output["text"]) for output in outputs(notebook) if output["output_type"] == "stream")


def pictures(notebook: Mapping[str, Any]) -> list[bytes]:
    return [
        base64.b64decode(output["data"]["image/png"])
        for output in outputs(notebook)
        if "image/png" in output.get("data", {})
    ]


@pytest.mark.slow
def test_the_notebook_draws_a_trained_sweep(runs: Path, tmp_path: Path) -> None:
    notebook = execute(ROOT / "analysis", tmp_path, NUQ_RUNS=str(runs), NUQ_SWEEP="demo")
    assert not [output for output in outputs(notebook) if output["output_type"] == "error"]
    text = printed(notebook)
    assert "8 runs, " in text
    assert "vs SuperSGD" in text
    found = pictures(notebook)
    assert len(found) >= 11  # four of the estimator, two losses, three of the accuracy, two of the levels
    assert all(picture.startswith(PNG) for picture in found)
    titles = [
        output["data"]["text/markdown"] for output in outputs(notebook) if "text/markdown" in output.get("data", {})
    ]
    assert len(titles) == len(found)


@pytest.mark.slow
def test_the_notebook_says_what_it_cannot_draw(tmp_path: Path, write_run: Any) -> None:
    write_run("one", {"method": "alq"}, [("Vacc", 0, 50.0), ("Vacc", 5, 60.0)])
    notebook = execute(ROOT, tmp_path, NUQ_RUNS=str(tmp_path / "runs"), NUQ_SWEEP="one")
    assert not [output for output in outputs(notebook) if output["output_type"] == "error"]
    assert "est_var: not drawn, no run has logged est_var" in printed(notebook)
    assert len(pictures(notebook)) >= 1


def test_the_notebook_in_git_has_no_outputs() -> None:
    notebook = json.loads(NOTEBOOK.read_text())
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert outputs(notebook) == []
    assert {cell["execution_count"] for cell in code} == {None}
    assert notebook["metadata"]["kernelspec"]["name"] == "python3"
    assert 6 <= len(code) <= 12


@pytest.mark.slow  # its runs take long
def test_every_name_in_the_notebook_is_a_figure(logs: Logs) -> None:
    figures = list(named(logs, WIDTHS["column"]))
    text = NOTEBOOK.read_text()
    for cell in json.loads(text)["cells"]:
        for line in cell["source"]:
            if line.startswith('show("'):
                names = line.removeprefix("show(").rstrip().removesuffix(")").split(", ")
                assert all(chosen(figures, json.loads(name)) for name in names), line


# --- real logs ----------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_all_runs_are_complete(logs: Logs) -> None:
    assert len(logs.settings) == len(short_demo.METHODS) * short_demo.SEEDS
    assert logs.status["complete"].to_numpy().all()
    assert set(logs.status["step"]) == {short_demo.STEPS}
    assert logs.notes == ()


@pytest.mark.slow
def test_figures_of_real_logs_are_drawn_or_explained(logs: Logs) -> None:
    made = {figure.name: figure.make() for figure in named(logs, WIDTHS["column"], axes=("step", "bytes"))}
    sentences = {name: words for name, words in made.items() if isinstance(words, str)}
    figures = {name: figure for name, figure in made.items() if isinstance(figure, Figure)}
    assert {*sentences, *figures} == {*made}
    assert all(len(words.split()) > 3 and "\n" not in words for words in sentences.values())
    curves = {
        "est_var",
        "relative_var",
        "nb_error",
        "norm_var",
        "validation_loss",
        "training_loss",
        "accuracy",
        "levels",
        "levels_steps",
    }
    assert {*curves, "overview", "overview-bytes", "accuracy-bytes"} <= {*figures}
    assert all(figure.axes for figure in figures.values())


@pytest.mark.slow
def test_the_table_of_real_logs(logs: Logs) -> None:
    found = result_table.table(logs).set_index("method")
    assert list(found.index) == list(short_demo.METHODS)
    assert set(found["complete"]) == {short_demo.SEEDS}
    alq, dense = found.loc["alq"], found.loc["supersgd"]
    assert alq["difference_percent"] == pytest.approx(alq["final_accuracy_percent"] - dense["final_accuracy_percent"])
    assert alq["difference_percent_n"] == short_demo.SEEDS
    assert 3 < alq["bits_per_coordinate"] < 3.2 < 32 <= dense["bits_per_coordinate"] < 32.1
    assert dense["sent_per_worker_mb"] / alq["sent_per_worker_mb"] == pytest.approx(
        dense["bits_per_coordinate"] / alq["bits_per_coordinate"], rel=1e-6
    )
    assert dense["relative_variance"] == pytest.approx(1, rel=1e-3)
    assert found.loc["qsgd", "relative_variance"] > alq["relative_variance"] > 1
    assert (found["images_per_s"] / found["steps_per_s"]).to_list() == pytest.approx([4 * 16] * 4)
    assert all(math.isfinite(value) for value in found["seconds"])
    for width in (80, 120):
        assert max(map(len, result_table.text(found.reset_index(), width=width).splitlines())) <= width


@pytest.mark.slow
def test_pictures_come_by_name_and_in_order(logs: Logs) -> None:
    figures = list(named(select(logs, ["method=alq"]), WIDTHS["column"]))
    (_, first), (_, second), (name, third) = drawn(figures, "accuracy-bytes", "accuracy", "acuracy")
    assert isinstance(first, bytes)
    assert isinstance(second, bytes)
    assert first != second
    assert isinstance(third, str)
    assert name == "acuracy"
    assert third.startswith("acuracy: no figure of this sweep has that name (they are called ")


def test_a_figure_is_found_in_every_group() -> None:
    names = ("accuracy", "accuracy-bytes", "accuracy-bits=3", "accuracy-bytes-bits=3", "accuracy_x")
    figures = [Named(name, "", "", lambda: "", "", lambda: "") for name in names]
    assert [figure.name for figure in chosen(figures, "accuracy")] == ["accuracy", "accuracy-bits=3"]
    assert [figure.name for figure in chosen(figures, "accuracy-bytes")] == ["accuracy-bytes", "accuracy-bytes-bits=3"]
