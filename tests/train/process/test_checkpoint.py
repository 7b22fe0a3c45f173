"""The two generations of a checkpoint: any damage to the newest leaves one of them, or a clear error."""

from __future__ import annotations

import hashlib
import os
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from nuq.exchange.transport import Transport
from train.process import checkpoint
from train.process.checkpoint import DAMAGED, FILE, PREVIOUS, CheckpointError

CPU = torch.device("cpu")
OLD, NEW = (
    {"identity": "a", "step": step, "model": {"w": torch.full((3,), float(step))}, "note": "x" * 9} for step in (1, 2)
)


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, bytes]:
    """The files of OLD and NEW."""
    folder = tmp_path_factory.mktemp("both")
    checkpoint.save(folder, OLD)
    checkpoint.save(folder, NEW)
    return (folder / PREVIOUS).read_bytes(), (folder / FILE).read_bytes()


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("place")


def is_state(found: Any, state: dict[str, Any]) -> bool:
    same = {**found, "model": 0} == {**state, "model": 0}
    return same and list(found["model"]) == ["w"] and torch.equal(found["model"]["w"], state["model"]["w"])


def loaded(folder: Path) -> tuple[dict[str, Any] | None, list[str]]:
    found = checkpoint.find(folder, "a", CPU)
    if found is None:
        return None, []
    assert found.path == folder / (PREVIOUS if found.damage or not (folder / FILE).exists() else FILE)
    return found.state, [found.damage] if found.damage else []


def test_saving_twice_keeps_two_generations_and_nothing_else(tmp_path: Path) -> None:
    for state in (OLD, NEW):
        checkpoint.save(tmp_path, state)
    assert {path.name for path in tmp_path.iterdir()} == {FILE, PREVIOUS}
    for name, state in ((FILE, NEW), (PREVIOUS, OLD)):
        assert is_state(torch.load(tmp_path / name, weights_only=True), state)
    assert loaded(tmp_path)[1] == []


def judge(folder: Path, damaged: bytes, both: tuple[bytes, bytes]) -> None:
    """A newest that is not as it was written: used only where its state is exactly NEW, otherwise OLD and one line with
    both names.
    """
    (folder / FILE).write_bytes(damaged)
    (folder / PREVIOUS).write_bytes(both[0])
    state, told = loaded(folder)
    assert state is not None
    if told:
        assert is_state(state, OLD) and len(told) == 1
        assert f"{folder / FILE} is damaged (" in told[0]
    else:
        assert is_state(state, NEW)
    (folder / PREVIOUS).write_bytes(damaged)
    try:
        state, told = loaded(folder)
    except CheckpointError as error:
        assert f"{folder / FILE} is damaged (" in str(error) and f"{folder / PREVIOUS} is damaged (" in str(error)
        assert (folder / FILE).read_bytes() == (folder / PREVIOUS).read_bytes() == damaged
    else:
        assert is_state(state, NEW)


@given(st.integers(0, 10**6), st.integers(1, 255))
@settings(max_examples=300)
def test_any_flipped_byte_is_found(both: tuple[bytes, bytes], place: Path, at: int, with_: int) -> None:
    whole = bytearray(both[1])
    whole[at % len(whole)] ^= with_
    (place / FILE).write_bytes(whole)
    with open(place / FILE, "rb") as file, pytest.raises(CheckpointError):
        checkpoint.checked(file)
    judge(place, bytes(whole), both)


@given(st.integers(0, 10**6))
@example(0)
@example(1)
@settings(max_examples=200)
def test_any_truncation_gives_way_to_the_previous_or_leaves_the_state_whole(
    both: tuple[bytes, bytes], place: Path, length: int
) -> None:
    judge(place, both[1][: length % len(both[1])], both)


def test_every_truncation_near_the_end(both: tuple[bytes, bytes], place: Path) -> None:
    """Near the end the archive ends, and the line with the checksum begins."""
    for length in range(len(both[1]) - 130, len(both[1])):
        judge(place, both[1][:length], both)


@pytest.mark.slow
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["flip", "cut", "zero", "insert", "swap"]), st.integers(0, 10**6), st.binary(max_size=40)
        ),
        min_size=1,
    )
)
@settings(max_examples=200)
def test_any_mixture_of_damage(both: tuple[bytes, bytes], place: Path, what: list[tuple[str, int, bytes]]) -> None:
    whole = both[1]
    for kind, number, data in what:
        at = number % (len(whole) + 1)
        whole = {
            "flip": whole[:at] + bytes(byte ^ 16 for byte in whole[at : at + 1]) + whole[at + 1 :],
            "cut": whole[:at],
            "zero": whole[:at] + bytes(len(whole[at : at + 512])) + whole[at + 512 :],
            "insert": whole[:at] + data + whole[at:],
            "swap": whole[at:] + whole[:at],
        }[kind]
    judge(place, whole, both)


@given(st.integers(0, 10**6), st.integers(1, 255))
@settings(max_examples=200)
def test_files_from_before_the_checksum_are_read_and_their_numbers_are_safe(
    both: tuple[bytes, bytes], place: Path, at: int, with_: int
) -> None:
    """Their archive checks its records alone: a flipped name is an error, or leaves the numbers as they were."""
    older = both[1][: -checkpoint._LINE_BYTES]
    (place / FILE).write_bytes(older)
    (place / PREVIOUS).unlink(missing_ok=True)
    state, told = loaded(place)
    assert state is not None and is_state(state, NEW) and not told
    whole = bytearray(older)
    whole[at % len(whole)] ^= with_
    (place / FILE).write_bytes(whole)
    try:
        state, _ = loaded(place)
    except CheckpointError as error:
        assert f"{place / FILE} is damaged (" in str(error)
    else:
        assert state is not None and is_state(state, NEW)


class Stranger:
    """Writes a file where it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Callable[[str], None], tuple[str]]:
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize("form", ["archive", "archive without the checksum", "bare pickle"])
def test_a_strangers_checkpoint_runs_no_code(form: str, tmp_path: Path) -> None:
    proof = tmp_path / "it ran"
    state = {**NEW, "optimizer": Stranger(proof)}
    if form == "archive":
        checkpoint.save(tmp_path, state)
    elif form == "bare pickle":
        (tmp_path / FILE).write_bytes(pickle.dumps(state))
    else:
        torch.save(state, tmp_path / FILE)
    kind = "damaged" if form == "bare pickle" else "no checkpoint of a run"
    with pytest.raises(CheckpointError, match=rf"checkpoint\.pt is {kind} \([^\n\x1b]+\): move it away") as told:
        checkpoint.find(tmp_path, "a", CPU)
    assert "weights_only" not in str(told.value), "torch advises to trust it"
    assert not proof.exists()
    torch.load(tmp_path / FILE, weights_only=False) if form != "bare pickle" else pickle.loads(
        (tmp_path / FILE).read_bytes()
    )
    assert proof.exists()  # so it would have


def test_other_settings_are_refused_and_not_gone_round(tmp_path: Path) -> None:
    checkpoint.save(tmp_path, {**OLD, "identity": "a"})
    checkpoint.save(tmp_path, {**NEW, "identity": "b"})
    with pytest.raises(
        CheckpointError, match=r"checkpoint\.pt was written with other settings \(identity b, this run is a\)"
    ):
        checkpoint.find(tmp_path, "a", CPU)


def test_a_file_that_cannot_be_read_is_not_gone_round(tmp_path: Path, both: tuple[bytes, bytes]) -> None:
    (tmp_path / PREVIOUS).write_bytes(both[0])
    (tmp_path / FILE).mkdir()
    with pytest.raises(CheckpointError, match=r"checkpoint\.pt cannot be read \(Is a directory\)"):
        checkpoint.find(tmp_path, "a", CPU)


def test_a_whole_archive_that_holds_no_state_is_damaged(tmp_path: Path) -> None:
    for number, content in enumerate([[1, 2], {"identity": "a"}, {"identity": 3, "step": 4}, torch.zeros(3)]):
        checkpoint.save(tmp_path, content)  # type: ignore[arg-type]
        with pytest.raises(CheckpointError, match="is damaged"):
            checkpoint.find(tmp_path, "a", CPU)
        assert number == 0 or (tmp_path / PREVIOUS).exists()


# --- going on -----------------------------------------------------------------------------------------------------


def test_a_damaged_newest_never_takes_the_place_of_a_whole_previous(tmp_path: Path, both: tuple[bytes, bytes]) -> None:
    (tmp_path / FILE).write_bytes(both[1][:-1])
    (tmp_path / PREVIOUS).write_bytes(both[0])
    (tmp_path / f".{FILE}.123.tmp").write_bytes(b"of an attempt that was killed")
    words = rf"checkpoint\.pt is damaged \(.*\): going on from {tmp_path / PREVIOUS}, of step 1$"
    with pytest.warns(UserWarning, match=words) as told:
        found = checkpoint.restore(tmp_path, "a", CPU, Transport(None))
    assert found is not None and is_state(found.state, OLD) and len(told) == 1
    assert {path.name for path in tmp_path.iterdir()} == {DAMAGED, PREVIOUS}
    assert (tmp_path / DAMAGED).read_bytes() == both[1][:-1]
    again = checkpoint.restore(
        tmp_path, "a", CPU, Transport(None)
    )  # killed before the next checkpoint: no warning, the same state
    assert again is not None and is_state(again.state, OLD)
    checkpoint.save(tmp_path, NEW)
    assert (tmp_path / PREVIOUS).read_bytes() == both[0]
    assert is_state(loaded(tmp_path)[0], NEW)


def test_both_damaged_is_one_error_and_nothing_is_lost(tmp_path: Path, both: tuple[bytes, bytes]) -> None:
    (tmp_path / FILE).write_bytes(b"")
    (tmp_path / PREVIOUS).write_bytes(both[0][:500])
    with pytest.raises(CheckpointError) as told:
        checkpoint.restore(tmp_path, "a", CPU, Transport(None))
    assert str(told.value) == (
        f"{tmp_path / FILE} is damaged (it is empty) and {tmp_path / PREVIOUS} is damaged (it does not end as it "
        f"should): "
        "move them away to start this run anew"
    )
    assert (tmp_path / FILE).read_bytes() == b"" and (tmp_path / PREVIOUS).read_bytes() == both[0][:500]


class Wire:
    """A wire of two ranks that take turns: what the first says is kept, and read by the second."""

    world = 2

    def __init__(self) -> None:
        self.rank, self.said = 0, list[Any]()

    def texts(self, text: str, what: str) -> list[str]:
        self.said += [] if self.rank else [text]
        return [self.said.pop(0)] if self.rank else [text]

    def broadcast(self, chunk: torch.Tensor, what: str) -> None:
        self.said += [] if self.rank else [chunk.clone()]
        if self.rank:
            chunk.copy_(self.said.pop(0))


@pytest.mark.parametrize("name", [FILE, PREVIOUS])
def test_another_rank_knows_which_file_its_state_is_of(name: str, tmp_path: Path, both: tuple[bytes, bytes]) -> None:
    (tmp_path / name).write_bytes(both[1])
    wire: Any = Wire()
    for wire.rank in (0, 1):
        found = checkpoint.restore(tmp_path, "a", CPU, wire)
        assert found is not None and found.path == tmp_path / name and is_state(found.state, NEW)
    assert not wire.said


class Died(BaseException):
    """The process ends here."""


CALLS = ("fsync", "link", "replace", "unlink")


@pytest.mark.parametrize("links", [True, False], ids=["links", "no links"])
@pytest.mark.parametrize("before", ["nothing", "one", "two", "damaged"])
def test_killed_at_any_call_of_a_save_a_whole_generation_is_there(
    before: str, links: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, both: tuple[bytes, bytes]
) -> None:
    """The kill comes before and after every system call that changes names, and half-way through the writing."""
    oldest = {**OLD, "step": 0}
    calls = 0

    def watched(name: str, real: Callable[..., Any], ends_at: int) -> Callable[..., Any]:
        def call(*arguments: Any, **more: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls == ends_at:
                raise Died
            if name == "link" and not links:
                raise OSError("no links here")
            return real(*arguments, **more)

        return call

    ended = False
    for ends_at in range(1, 40):
        folder = tmp_path / str(ends_at)
        folder.mkdir()
        if before == "two":
            checkpoint.save(folder, oldest)
        if before in ("one", "two"):
            checkpoint.save(folder, OLD)
        if before == "damaged":  # and set aside, as ``restore`` does
            (folder / PREVIOUS).write_bytes(both[0])
        calls = 0
        with monkeypatch.context() as patched:
            for name in CALLS:
                patched.setattr(os, name, watched(name, getattr(os, name), ends_at))
            patched.setattr(Path, "unlink", lambda path, missing_ok=False: None)  # a killed process tidies nothing
            try:
                checkpoint.save(folder, NEW)
                ended = True
            except Died:
                pass
        state, told = loaded(folder)
        assert told == []
        if state is None:
            assert before == "nothing" and not ended
        else:
            assert is_state(state, NEW) or (is_state(state, OLD) and not ended)
            again = checkpoint.restore(folder, "a", CPU, Transport(None))
            assert again is not None and again.state["step"] == state["step"]
            assert not list(folder.glob(".*"))
            checkpoint.save(folder, {**NEW, "step": 3})
            assert torch.load(folder / PREVIOUS, weights_only=True)["step"] == state["step"]
        if ended:
            assert calls >= 2 and is_state(state, NEW)
            return
    raise AssertionError("a save that never ends")


def sources() -> Iterator[Path]:
    """Every module of this project."""
    root = Path(__file__).parents[3]
    for folder in ("train", "nuq", "grid", "analysis", "benchmarks"):
        yield from (root / folder).rglob("*.py")


def test_the_whole_project_loads_weights_only() -> None:
    for path in sources():
        text = path.read_text()
        assert text.count("torch.load(") == text.count("weights_only=True"), path
        assert "weights_only=False" not in text and "pickle.load(" not in text, path


def test_the_checksum_can_be_checked_by_hand(both: tuple[bytes, bytes]) -> None:
    whole = both[1]
    assert f"head -c -{checkpoint._LINE_BYTES} " in (checkpoint.__doc__ or "")
    assert hashlib.sha256(whole[: -checkpoint._LINE_BYTES]).hexdigest() == whole.decode(errors="replace").split()[-1]
