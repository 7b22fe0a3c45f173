"""What a SLURM does, as far as the product relies on it: each claim holds of the virtual one and of the real one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Protocol


class Port(Protocol):
    """A cluster with the nodes n1 and n2, each of at least four cores."""

    def ask(self, *words: str) -> tuple[int, str, str]:
        """A command: its exit code and what it says."""
        ...

    def submit(self, body: str, *options: str) -> str:
        """The id of a job of this script, which leaves its log somewhere."""
        ...

    def until(self, condition: Callable[[], object]) -> None:
        """Return once the condition holds."""
        ...

    def fail_node(self, node: str) -> None: ...

    def resume_node(self, node: str) -> None: ...

    def controller_down(self) -> None: ...

    def controller_up(self) -> None: ...


Claim = Callable[[Port], None]


def states(port: Port, job: str) -> dict[str, str]:
    """The state of each element, or of the job, by squeue."""
    rows = port.ask("squeue", "-h", "-a", "-r", "-t", "all", "-j", job, "-o", "%i %T")[1].splitlines()
    return dict(row.split() for row in rows)


def shown(port: Port, job: str, *names: str) -> list[str]:
    """Values of ``scontrol show job``."""
    words = port.ask("scontrol", "show", "job", "-o", job)[1].split()
    values = dict(word.split("=", 1) for word in words if "=" in word)
    return [values[name] for name in names]


def accounts(port: Port, job: str) -> list[str]:
    """What accounting says of a job and its elements."""
    return sorted(port.ask("sacct", "-X", "-P", "-n", "-j", job, "-o", "JobID,State,ExitCode")[1].splitlines())


def runs(port: Port, job: str) -> None:
    port.until(lambda: set(states(port, job).values()) == {"RUNNING"})


def sbatch_prints_the_id_of_the_job(port: Port) -> None:
    code, out, _ = port.ask("sbatch", "--output=/dev/null", "--wrap", "true")
    assert code == 0 and out.startswith("Submitted batch job ") and out.split()[-1].isdecimal()
    assert int(port.submit("true")) > int(out.split()[-1])


def an_array_ends_by_the_exit_codes_of_its_elements(port: Port) -> None:
    good, bad = port.submit("true", "--array=0-1"), port.submit("exit 3", "--array=5")
    port.until(lambda: {**states(port, good), **states(port, bad)} == {
        f"{good}_0": "COMPLETED", f"{good}_1": "COMPLETED", f"{bad}_5": "FAILED"})  # fmt: skip
    port.until(lambda: accounts(port, bad) == [f"{bad}_5|FAILED|3:0"])
    port.until(lambda: accounts(port, good) == [f"{good}_{index}|COMPLETED|0:0" for index in (0, 1)])


def what_waits_shares_a_line_unless_each_is_asked_for(port: Port) -> None:
    job = port.submit("true", "--array=0-3%2", "--hold")
    assert port.ask("squeue", "-h", "-j", job, "-o", "%i %T %r")[1] == f"{job}_[0-3%2] PENDING JobHeldUser\n"
    assert states(port, job) == {f"{job}_{index}": "PENDING" for index in range(4)}
    port.ask("scancel", job)


def no_more_elements_run_at_once_than_the_array_says(port: Port) -> None:
    job = port.submit("sleep 2", "--array=0-4%2")
    most = 0

    def is_over() -> bool:
        nonlocal most
        counts = Counter(states(port, job).values())
        most = max(most, counts["RUNNING"] + counts["COMPLETING"])
        return counts["COMPLETED"] == 5

    port.until(is_over)
    assert most == 2


def a_requeued_element_keeps_its_name_and_leaves_its_siblings_alone(port: Port) -> None:
    job = port.submit("sleep 600", "--array=0-1", "--requeue")
    runs(port, job)
    assert port.ask("scontrol", "requeue", f"{job}_0")[0] == 0
    port.until(lambda: states(port, job)[f"{job}_0"] == "PENDING")
    assert shown(port, f"{job}_0", "JobState", "Restarts") == ["PENDING", "1"]
    assert states(port, job)[f"{job}_1"] == "RUNNING"
    port.until(lambda: states(port, job)[f"{job}_0"] == "RUNNING")
    port.ask("scancel", job)
    port.until(lambda: set(states(port, job).values()) == {"CANCELLED"})


def an_ended_element_can_be_queued_again_and_held(port: Port) -> None:
    job = port.submit("true", "--array=0-1", "--requeue")
    port.until(lambda: set(states(port, job).values()) == {"COMPLETED"})
    assert port.ask("scontrol", "requeuehold", f"{job}_1")[0] == 0
    port.until(lambda: states(port, job)[f"{job}_1"] == "PENDING")
    (reason,) = shown(port, f"{job}_1", "Reason")
    assert "held" in reason.lower(), reason
    port.ask("scancel", job)


def what_is_cancelled_while_it_waits_beside_others_is_forgotten(port: Port) -> None:
    job = port.submit("true", "--array=0-2", "--hold")
    port.ask("scancel", f"{job}_1")
    assert set(states(port, job)) == {f"{job}_0", f"{job}_2"}
    port.ask("scancel", job)
    port.until(lambda: "PENDING" not in states(port, job).values())


def scancel_of_what_waits_spares_what_has_begun(port: Port) -> None:
    job = port.submit("sleep 600", "--array=0-1%1")
    port.until(lambda: sorted(states(port, job).values()) == ["PENDING", "RUNNING"])
    assert port.ask("scancel", "--state=PENDING", f"{job}_[0-1]")[0] == 0
    port.until(lambda: "PENDING" not in states(port, job).values())
    assert states(port, job)[f"{job}_0"] == "RUNNING"
    port.ask("scancel", job)


def a_cancelled_job_that_still_ends_can_be_requeued(port: Port) -> None:
    job = port.submit("trap '' TERM\nsleep 5\nsleep 600", "--array=0", "--requeue")
    runs(port, job)
    port.ask("scancel", f"{job}_0")
    port.until(lambda: states(port, job)[f"{job}_0"] in ("COMPLETING", "CANCELLED"))
    assert port.ask("scontrol", "requeue", f"{job}_0")[0] == 0
    port.until(lambda: states(port, job)[f"{job}_0"] == "PENDING")
    port.ask("scancel", job)


def what_is_held_starts_when_it_is_released(port: Port) -> None:
    job = port.submit("true", "--hold")
    assert shown(port, job, "JobState", "Reason") == ["PENDING", "JobHeldUser"]
    assert port.ask("scontrol", "release", job)[0] == 0
    port.until(lambda: states(port, job) == {job: "COMPLETED"})


def a_time_limit_is_warned_of_and_kept(port: Port) -> None:
    warned = port.submit("trap 'exit 9' USR2\nsleep 600 & wait", "--time=1", "--signal=B:USR2@30")
    ended = port.submit("sleep 600", "--time=1")
    port.until(lambda: states(port, warned)[warned] not in ("PENDING", "RUNNING"))
    port.until(lambda: accounts(port, warned) == [f"{warned}|FAILED|9:0"])
    port.until(lambda: states(port, ended) == {ended: "TIMEOUT"})
    assert shown(port, ended, "Reason") == ["TimeLimit"]


def indices_above_the_largest_are_refused(port: Port) -> None:
    code, _, said = port.ask("sbatch", "--array=0-90000", "--wrap", "true")
    assert code == 1 and "Invalid job array specification" in said


def a_trial_says_whether_a_job_is_taken_and_takes_none(port: Port) -> None:
    before = port.ask("squeue", "-h", "-a", "-t", "all", "-o", "%i")[1]
    code, _, said = port.ask("sbatch", "--test-only", "--wrap", "true")
    assert code == 0 and "to start at" in said
    code, _, said = port.ask("sbatch", "--test-only", "--partition=nowhere", "--wrap", "true")
    assert code == 1 and "nvalid partition" in said
    assert port.ask("squeue", "-h", "-a", "-t", "all", "-o", "%i")[1] == before


def one_unknown_id_is_an_error_and_one_among_others_is_not(port: Port) -> None:
    job = port.submit("true", "--hold")
    code, _, said = port.ask("squeue", "-h", "-j", "9999999")
    assert code == 1 and "Invalid job id specified" in said
    assert port.ask("squeue", "-h", "-j", f"9999999,{job}", "-o", "%i")[:2] == (0, f"{job}\n")
    assert port.ask("scancel", "9999999")[0] in (0, 1)
    assert port.ask("scontrol", "requeue", "9999999")[0] == 1
    port.ask("scancel", job)


def what_waits_for_a_success_ends_with_a_failure(port: Port) -> None:
    first = port.submit("exit 1", "--hold")
    never = port.submit("true", f"--dependency=afterok:{first}", "--kill-on-invalid-dep=yes")
    later = port.submit("true", f"--dependency=afterany:{first}")
    assert states(port, never) == {never: "PENDING"} and states(port, later) == {later: "PENDING"}
    port.ask("scontrol", "release", first)
    port.until(lambda: states(port, never) == {never: "CANCELLED"} and states(port, later) == {later: "COMPLETED"})


def a_lost_node_gives_its_jobs_back_to_the_queue(port: Port) -> None:
    job = port.submit("sleep 600", "--array=0", "--requeue", "--nodelist=n2")
    runs(port, job)
    port.fail_node("n2")
    port.until(lambda: shown(port, f"{job}_0", "JobState", "Restarts") == ["PENDING", "1"])
    port.resume_node("n2")
    port.ask("scancel", job)


def jobs_outlive_the_controller(port: Port) -> None:
    job = port.submit("sleep 2", "--array=0")
    runs(port, job)
    port.controller_down()
    code, _, said = port.ask("squeue", "-h")
    assert code == 1 and "Unable to contact slurm controller" in said
    port.controller_up()
    port.until(lambda: states(port, job) == {f"{job}_0": "COMPLETED"})


CLAIMS: list[Claim] = [
    sbatch_prints_the_id_of_the_job,
    an_array_ends_by_the_exit_codes_of_its_elements,
    what_waits_shares_a_line_unless_each_is_asked_for,
    no_more_elements_run_at_once_than_the_array_says,
    a_requeued_element_keeps_its_name_and_leaves_its_siblings_alone,
    an_ended_element_can_be_queued_again_and_held,
    what_is_cancelled_while_it_waits_beside_others_is_forgotten,
    scancel_of_what_waits_spares_what_has_begun,
    a_cancelled_job_that_still_ends_can_be_requeued,
    what_is_held_starts_when_it_is_released,
    a_time_limit_is_warned_of_and_kept,
    indices_above_the_largest_are_refused,
    a_trial_says_whether_a_job_is_taken_and_takes_none,
    one_unknown_id_is_an_error_and_one_among_others_is_not,
    what_waits_for_a_success_ends_with_a_failure,
    a_lost_node_gives_its_jobs_back_to_the_queue,
    jobs_outlive_the_controller,
]
