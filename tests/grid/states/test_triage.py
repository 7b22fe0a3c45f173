"""Real-looking ends of runs of every kind, what goes before what, and how failures make groups."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grid.engine.slurm.scheduler_cache import Job
from grid.engine.states.blame import Memory, culprits
from grid.engine.states.run_files import RunFolder
from grid.engine.states.state import State
from grid.engine.states.triage import KINDS, Failure, classify, groups, normal
from tests.grid.ends_of_logs import (
    ALLOCATOR,
    BEGUN,
    CLOSED,
    CUDA_OOM,
    EARLY,
    ELASTIC,
    FRAMES,
    GLOO_TIMEOUT,
    KEY_ERROR,
    LOADER,
    LOST,
    NO_PYTHON,
    NUMPY,
    SILENT,
    STEPD_LIMIT,
    STEPD_NODE,
    STEPD_OOM,
    STORE_TIMEOUT,
    WATCHDOG,
)

FAILED = State("failed", "job 123_4 ended")

OWN_LOST = {
    "state": "failed",
    "exit_code": 1,
    "failure": {"signature": "RankLost at links.py:68 in wait", "message": LOST.removeprefix("main.py: ").strip()},
}
OWN_WORD: dict[str, Any] = {
    "state": "failed",
    "exit_code": 1,
    "failure": {"signature": "ValueError at a.py:7 in f", "message": "shape (3, 4)"},
}
CONSEQUENCE: dict[str, Any] = {
    "state": "failed",
    "exit_code": 1,
    "failure": {"signature": "RuntimeError", "message": "Connection closed by peer"},
}
SETTINGS: dict[str, Any] = {
    "state": "failed",
    "exit_code": 2,
    "failure": {"signature": "ValueError", "message": "bits=9"},
}
NAN = State("diverged", "step 120: the loss of worker 3 is nan")
REFUSED = State("failed", "exit code 2")
KILLED = State("failed", "exit code 137")

Case = tuple[str, dict[str, Any], State, str, str, str]
# (log, status.json, state, the job's word) -> (kind, a part of the signature)
CASES: dict[str, Case] = {
    "cuda": (BEGUN + CUDA_OOM, {}, FAILED, "FAILED", "cuda_oom", "OutOfMemoryError at trainer.py in train_step: CUDA "
    "out of memory."),
    "cuda, then the time limit": (BEGUN + CUDA_OOM, {}, FAILED, "TIMEOUT", "cuda_oom", "OutOfMemoryError"),
    "cuda on one rank, the others lose it": (
        f"{CUDA_OOM}{CLOSED}{CLOSED}{ELASTIC}", {}, FAILED, "FAILED", "cuda_oom", "OutOfMemoryError",
    ),
    "cuda, from a rank": (
        "".join(f"[rank3]: {line}\n" for line in CUDA_OOM.splitlines()), {}, FAILED, "", "cuda_oom", "trainer.py in",
    ),
    "oom kill": (BEGUN + STEPD_OOM, {}, FAILED, "FAILED", "host_oom", "oom_kill event"),
    "oom kill, said by SLURM alone": (BEGUN, {}, FAILED, "OUT_OF_MEMORY", "host_oom", "OUT_OF_MEMORY"),
    "oom kill of one rank": (CLOSED + STEPD_OOM, {}, FAILED, "FAILED", "host_oom", "oom_kill"),
    "oom kill of one rank, in SLURM's word": (CLOSED, {}, FAILED, "OUT_OF_MEMORY", "host_oom", "OUT_OF_MEMORY"),
    "oom of a loader": (LOADER, {}, FAILED, "", "host_oom", ""),
    "numpy": (NUMPY, {}, FAILED, "", "host_oom", "_Arr"),
    "torch on the host": (ALLOCATOR, {}, FAILED, "", "host_oom", ""),
    "time limit": (BEGUN, {}, FAILED, "TIMEOUT", "time_limit", "TIMEOUT"),
    "time limit, by the log": (BEGUN + STEPD_LIMIT, {}, FAILED, "", "time_limit", "time_limit"),
    "time limit, which closed connections": (CLOSED + STEPD_LIMIT, {}, FAILED, "TIMEOUT", "time_limit", "TIMEOUT"),
    "node": (BEGUN, {}, FAILED, "NODE_FAIL", "node_failure", "NODE_FAIL"),
    "node, by the log": (BEGUN + STEPD_NODE, {}, FAILED, "", "node_failure", "NODE_FAIL"),
    "node of a peer": (CLOSED, {}, FAILED, "NODE_FAIL", "node_failure", "NODE_FAIL"),
    "not requeued": (BEGUN, {}, State("checkpointed", "not requeued: x"), "FAILED", "checkpointed", "FAILED"),
    "preempted": (BEGUN, {}, State("preempted", "checkpointed"), "PREEMPTED", "preempted", "PREEMPTED"),
    "watchdog": (BEGUN + WATCHDOG, {}, FAILED, "FAILED", "network_timeout", "Watchdog caught collective"),
    "rank lost": (BEGUN + LOST, OWN_LOST, FAILED, "FAILED", "network_timeout", "rank N of N is gone"),
    "rank lost of a bug": (BEGUN + KEY_ERROR + LOST, OWN_LOST, FAILED, "FAILED", "code", "'conv1.weight'"),
    "rank lost at the limit": (BEGUN + LOST + STEPD_LIMIT, OWN_LOST, FAILED, "TIMEOUT", "time_limit", ""),
    "first rank silent": (BEGUN + SILENT, {"state": "running"}, FAILED, "FAILED", "network_timeout", "did not answer "
    "in time"),
    "gloo closed": (BEGUN + CLOSED, {}, FAILED, "FAILED", "network_timeout", "Connection closed by peer"),
    "gloo timed out": (GLOO_TIMEOUT, {}, FAILED, "", "network_timeout", ""),
    "a store that never came": (STORE_TIMEOUT, {}, FAILED, "TIMEOUT", "network_timeout", ""),
    "disk": (
        FRAMES + "OSError: [Errno 28] No space left on device: 'checkpoint.pt'\n", {}, FAILED, "FAILED",
        "disk", "No space left",
    ),
    "quota": (
        "mkdir: cannot create directory 'x': Disk quota exceeded\n", {}, FAILED, "", "disk", "Disk quota exceeded",
    ),
    "device": (FRAMES + "OSError: [Errno 5] Input/output error\n", {}, FAILED, "", "disk", "Input/output error"),
    "a crash": (BEGUN + KEY_ERROR, {}, FAILED, "FAILED", "code", "KeyError at trainer.py in train_step: "
    "'conv1.weight'"),
    "a crash of one rank": (BEGUN + KEY_ERROR + CLOSED + ELASTIC, {}, FAILED, "FAILED", "code", "KeyError"),
    "a crash, then the next run met the limit": (BEGUN + KEY_ERROR, {}, FAILED, "TIMEOUT", "code", "KeyError"),
    "a crash, not that of the last attempt": (BEGUN + CUDA_OOM + BEGUN + KEY_ERROR, {}, FAILED, "", "code", "KeyError"),
    "before torch": (EARLY, {}, FAILED, "", "code", "main.py in <module>"),
    "by its own word": (
        "", OWN_WORD, FAILED, "",
        "code", "ValueError at a.py in f: shape (N, N)",
    ),
    "its own word is a consequence": (
        KEY_ERROR, CONSEQUENCE, FAILED, "",
        "code", "KeyError",
    ),
    "settings": (
        "main.py: method.bits=9: ...\n", SETTINGS, FAILED, "",
        "settings", "ValueError: bits=N",
    ),
    "settings, by the script's code": (
        "main.py: bits=9: legal are 1..8\n", {}, REFUSED, "", "settings", "bad settings",
    ),
    "not finite": ("", {"state": "diverged"}, NAN, "", "non_finite", "step N: the loss of worker N"),
    "cancelled": (BEGUN, {}, State("cancelled", "job 1_2 ended: CANCELLED"), "CANCELLED", "cancelled", "CANCELLED"),
    "no word at all": ("", {}, State("lost", "job 1_2 ended: COMPLETED"), "COMPLETED", "lost", "job N_N ended: "
    "COMPLETED"),
    "killed": (BEGUN, {"state": "running"}, KILLED, "", "killed", "exit code 137"),
    "killed by the time limit": (BEGUN, {"state": "running"}, KILLED, "TIMEOUT", "time_limit", "TIMEOUT"),
    "no such program": (NO_PYTHON, {}, State("failed", "exit code 127"), "", "settings", "exit code 127: PATH: line "
    "N: python: comm"),
    "no such program, after a crash": (
        BEGUN + CUDA_OOM + NO_PYTHON, {}, State("failed", "exit code 127"), "", "settings", "exit code 127: ",
    ),
    "a program that may not run": ("", {}, State("failed", "exit code 126"), "", "settings", "exit code 126"),
    "a crash that ends with 127": (BEGUN + KEY_ERROR, {}, State("failed", "exit code 127"), "", "code", "KeyError"),
    "an end of an earlier attempt": (
        BEGUN, {"state": "running", "failure": {"signature": "ValueError", "message": "old"}}, FAILED, "TIMEOUT",
        "time_limit", "TIMEOUT",
    ),
}  # fmt: skip


def _folder(root: Path, log: str, record: dict[str, Any], name: str = "alq-3-0f1e2d3c4b5a") -> RunFolder:
    folder = RunFolder(root / "runs" / "nuq-mnist" / name)
    folder.path.mkdir(parents=True)
    folder.log.write_text(log)
    if record:
        folder.status.write_text(json.dumps(record))
    return folder


@pytest.mark.parametrize("name", CASES)
def test_every_kind(tmp_path: Path, name: str) -> None:
    log, record, state, word, kind, signature = CASES[name]
    found = classify(_folder(tmp_path, log, record), state, Job(word) if word else None)
    assert found.kind == kind, found
    assert signature in found.signature
    assert found.example == "runs/nuq-mnist/alq-3-0f1e2d3c4b5a"
    assert "\n" not in found.line + found.signature and len(found.line) <= 200


def test_the_table_has_every_kind() -> None:
    assert {case[4] for case in CASES.values()} == set(KINDS)


def test_what_slurm_wrote_into_the_log_of_the_job_counts(tmp_path: Path) -> None:
    job_log = tmp_path / "chunk_123_4.log"
    job_log.write_text("2026-11-21 16:00:00 start runs/a\n" + STEPD_OOM)
    folder = _folder(tmp_path, BEGUN, {})
    assert classify(folder, FAILED, None, [job_log]).kind == "host_oom"
    assert classify(folder, FAILED, None, [tmp_path / "none.log"]).kind == "lost"


MB = 1 << 20
FULL, ROOM = Memory(950.0 * MB, 1000.0 * MB), Memory(400.0 * MB, 1000.0 * MB)


def test_what_was_killed_is_out_of_memory_where_its_memory_was_full(tmp_path: Path) -> None:
    folder = _folder(tmp_path, BEGUN, {"state": "running"})
    found = classify(folder, KILLED, memory=FULL)
    assert (found.kind, found.signature, found.line) == (
        "host_oom",
        "exit code 137 with its memory full",
        "950 of 1000 MB; exit code 137",
    )
    found = classify(folder, KILLED, memory=ROOM)
    assert (found.kind, found.line[:15]) == ("killed", "400 of 1000 MB;")
    assert classify(folder, KILLED, memory=Memory(9e9, 0.0)).kind == "killed", "its share is not known"
    assert classify(folder, State("failed", "exit code 1"), memory=FULL).kind == "lost"


def test_of_the_runs_of_a_script_the_one_that_ran_out_of_memory_is_blamed(tmp_path: Path) -> None:
    job_log = tmp_path / "chunk_123_4.log"
    job_log.write_text(STEPD_OOM)
    ids = {"SLURM_ARRAY_JOB_ID": "123", "SLURM_ARRAY_TASK_ID": "4"}
    own = {"state": "running", "slurm": ids}
    blamed = replace(ROOM, culprits={"eater"})
    state, job = State("failed", "job 123_4 ended: OUT_OF_MEMORY", element="123_4"), Job("OUT_OF_MEMORY")
    found = classify(_folder(tmp_path, BEGUN, own, "eater"), state, job, [job_log], blamed)
    assert found.kind == "host_oom" and found.line.startswith("400 of 1000 MB; ")
    cases = {
        "killed": (BEGUN, own, "killed", "killed when another run of its script ran out of memory"),
        "its rank": (BEGUN + LOST, {**own, **OWN_LOST}, "killed", "killed when another run"),
        "late": ("", {}, "killed", "its turn had not come when another run"),
        "bug": (BEGUN + KEY_ERROR, own, "code", "KeyError"),
        "full": (BEGUN + NUMPY, own, "host_oom", "_Arr"),
        "own notice": (BEGUN + STEPD_OOM, own, "host_oom", "oom_kill"),
    }
    for name, (log, record, kind, signature) in cases.items():
        found = classify(_folder(tmp_path, log, record, name), state, job, [job_log], blamed)
        assert found.kind == kind and signature in found.signature, (name, found)
        if kind == "killed":
            assert found.line == "out of memory: eater"


def test_culprits() -> None:
    killed = {"a": Memory(100, 200), "b": Memory(250, 200), "c": Memory(180, 200), "d": Memory(0, 200)}
    assert culprits(killed) == {"b"}
    assert culprits({**killed, "d": Memory(201, 200)}) == {"b", "d"}
    assert culprits({**killed, "b": Memory(150, 200)}) == {"c"}, "what it told last is a moment older than its end"
    assert culprits({"a": Memory(300), "b": Memory(400)}) == {"b"}, "where nobody knows what they asked for"
    assert culprits({"a": Memory(0, 200), "b": Memory(0, 200)}) == {"a", "b"}, "nothing tells them apart"
    assert culprits({}) == set()


SITE = "site profile lab on gpu-12.cluster: "
START = "2026-11-21 16:00:00 start "
RUN = "runs/nuq-mnist/alq-3-0f1e2d3c4b5a"


@pytest.mark.parametrize(
    ("log", "kind", "signature"),
    [
        (
            f"{SITE}activation failed: source ~/env 3/bin/activate\n",
            "settings",
            "lab: activation failed: source ~/env 3/bin/activate",
        ),
        (
            f"Lmod has detected an error\n{SITE}module load cuda/12.4 failed\n",
            "settings",
            "lab: module load cuda/12.4 failed",
        ),
        (
            f"{SITE}stage: copying /data/x to /tmp/job12/x failed; is the disk full?\n",
            "settings",
            "lab: stage: copying PATH to PATH failed",
        ),
        (
            f"{START}runs/nuq-mnist/other in slot 0\n{SITE}activation failed: x\n",
            "settings",
            "lab: activation failed: x",
        ),
        (
            f"{SITE}activation failed: x\n{START}runs/nuq-mnist/other\n",
            "cuda_oom",
            "OutOfMemoryError",
        ),  # of a life before
        (
            f"{START}{RUN} in slot 1\n{SITE}activation failed: x\n",
            "cuda_oom",
            "OutOfMemoryError",
        ),  # it had begun before that
    ],
)
def test_a_site_profile_that_fails_is_a_setting(tmp_path: Path, log: str, kind: str, signature: str) -> None:
    job_log = tmp_path / "chunk_123_4.log"
    job_log.write_text(log)
    found = classify(_folder(tmp_path, BEGUN + CUDA_OOM, {}), FAILED, Job("FAILED"), [job_log])
    assert found.kind == kind, found
    assert signature in found.signature and "gpu-12" not in found.signature


def test_a_job_whose_program_was_not_found(tmp_path: Path) -> None:
    job_log = tmp_path / "chunk_123_4.log"
    job_log.write_text("/var/spool/slurmd/job7/slurm_script: line 9: conda: command not found\n")
    found = classify(_folder(tmp_path, "", {}), FAILED, Job("FAILED", exit_code=127), [job_log])
    assert (found.kind, found.signature) == ("settings", "exit code 127: PATH: line N: conda: command not found")


def test_a_bug_is_one_line_wherever_its_file_was_edited_since(tmp_path: Path) -> None:
    texts = [KEY_ERROR.replace("line 130", f"line {line}") for line in (130, 131)]
    one, other = [
        classify(_folder(tmp_path, BEGUN + text, {}, f"run-{number}"), FAILED) for number, text in enumerate(texts)
    ]
    assert one.line != other.line
    assert [row.count for row in groups([one, other])] == [2]


def test_the_same_bug_of_two_thousand_runs_is_one_line(tmp_path: Path) -> None:
    failures = []
    for number in range(200):
        where = f"/scratch/job{number}/runs/x-{number:012x}/events"
        log = (
            "x" * 20000
            + BEGUN
            + FRAMES
            + f"ValueError: worker {number} at 0x7f{number:06x} read {number / 7} from {where}\n"
        )
        failures.append(classify(_folder(tmp_path, log, {}, f"run-{number}"), FAILED, Job("FAILED")))
    failures.append(classify(_folder(tmp_path, BEGUN + KEY_ERROR, {}, "other"), FAILED))
    rows = groups(failures)
    assert [(row.kind, row.count, row.example) for row in rows] == [
        ("code", 200, "runs/nuq-mnist/run-0"),
        ("code", 1, "runs/nuq-mnist/other"),
    ]
    assert rows[0].signature == "ValueError at trainer.py in train_step: worker N at * read N from PATH"
    assert rows[0].line.endswith("(trainer.py:130)")
    assert rows[0].line.startswith("ValueError: worker 0 at 0x7f000000 read 0.0 from /scratch/job0/")
    assert groups([]) == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("GPU 3: tried to allocate 2.50 GiB", "GPU N: tried to allocate N GiB"),
        ("at 0x7ffdeadBEEF of /a/b-c.d/e.py", "at * of PATH"),
        ("runs/nuq-mnist/alq-3-0f1e2d3c4b5a: gone", "PATH: gone"),
        ("id 0f1e2d3c4b5a is bad", "id * is bad"),
        ("a  b\n c", "a b c"),
        ("loss is -1.5e-07", "loss is N"),
        ("Input/output error on gpu-12", "Input/output error on gpu-N"),
        ("deadline passed", "deadline passed"),
        ("exit code 137 of rank 12", "exit code 137 of rank N"),
        ("overflows float16 at 65504.0", "overflows float16 at N"),
        ("resnet8 needs 32x32 pixels, not 28x28", "resnet8 needs 32x32 pixels, not 28x28"),
        ("step=304 of [3,32] took 18s and 2.5GiB on cuda:1", "step=N of [N,N] took Ns and NGiB on cuda:N"),
        ("versions 1.2.3 and v4", "versions N and v4"),
        ("CIFAR-10 not found after 10 s", "CIFAR-10 not found after N s"),
    ],
)
def test_normal(text: str, expected: str) -> None:
    assert normal(text) == expected


PIECES = st.sampled_from(
    [
        BEGUN,
        CUDA_OOM,
        CLOSED,
        KEY_ERROR,
        ELASTIC,
        WATCHDOG,
        STEPD_OOM,
        "\x00\n",
        "Traceback (most recent call last):\n",
        FRAMES[:50],
    ]
)


@given(
    st.lists(PIECES | st.text(max_size=20), max_size=5),
    st.dictionaries(st.sampled_from(["state", "failure", "exit_code"]), st.none() | st.integers()),
)
def test_any_log_and_record_get_a_kind(
    tmp_path_factory: pytest.TempPathFactory, pieces: list[str], record: dict[str, Any]
) -> None:
    folder = RunFolder(tmp_path_factory.mktemp("run"))
    folder.log.write_bytes("".join(pieces).encode(errors="replace"))
    folder.status.write_text(json.dumps(record))
    found = classify(folder, FAILED, Job("FAILED"))
    assert isinstance(found, Failure) and found.kind in KINDS
    assert "\n" not in found.signature
