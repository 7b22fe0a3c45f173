"""Short runs with default settings: as good as without compression.

With the paper's norm and schedule they are lost.
"""

from __future__ import annotations

import pytest

from benchmarks import short_runs


@pytest.mark.slow
def test_a_short_run_with_default_settings_stays_on_course() -> None:
    run = short_runs.run("alq", 1)
    assert not run.diverged and run.after < 0.3 < 2 < run.before


@pytest.mark.slow
def test_what_the_papers_settings_do_to_a_short_run_is_seen() -> None:
    assert short_runs.run(f"alq {short_runs.BEFORE}", 1).diverged


def test_a_method_that_does_not_exist_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        short_runs.main(["--methods", "alqq"])
    assert "unknown method 'alqq'" in capsys.readouterr().err
