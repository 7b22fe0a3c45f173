"""Event files: framing, checksums, protobuf, and what stays of a damaged file."""

import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tensorboardX.crc32c import _crc32c  # its plain Python loop
from tensorboardX.proto import types_pb2  # pyright: ignore[reportAttributeAccessIssue]
from tensorboardX.proto.event_pb2 import Event  # pyright: ignore[reportAttributeAccessIssue]
from tensorboardX.proto.summary_pb2 import Summary  # pyright: ignore[reportAttributeAccessIssue]
from tensorboardX.proto.tensor_pb2 import TensorProto  # pyright: ignore[reportAttributeAccessIssue]
from tensorboardX.proto.types_pb2 import DT_DOUBLE, DT_FLOAT  # pyright: ignore[reportAttributeAccessIssue]

from analysis.logs import events
from analysis.logs.crc32c import crc32c
from analysis.logs.events import Scalars, read
from analysis.logs.protobuf import event_scalars
from tests.analysis.conftest import write_events
from tests.analysis.logs.event_files import event_file, record, scalar


def checksum(data: bytes) -> int:
    return int(crc32c(np.frombuffer(data, np.uint8)[:, None])[0])


def test_crc32c_has_the_value_of_its_standard() -> None:
    assert checksum(b"123456789") == 0xE3069283
    assert checksum(bytes(32)) == 0x8A9136AA  # RFC 3720, B.4
    assert checksum(b"") == 0


@given(st.integers(0, 1600), st.integers(0, 2**32 - 1))
@settings(max_examples=40, deadline=None)
def test_crc32c_equals_the_loop_over_bytes(length: int, seed: int) -> None:
    """Lengths on both sides of the blocks that the vectorised form works in."""
    data = np.random.default_rng(seed).integers(0, 256, (length, 3), np.uint8)
    assert crc32c(data).tolist() == [_crc32c(data[:, k].tobytes()) for k in range(3)]


def in_order(found: Scalars) -> Scalars:
    order = np.argsort(found.record, kind="stable")
    return found._replace(**{name: getattr(found, name)[order] for name in found._fields[:6]})


def test_every_scalar_comes_back(tmp_path: Path) -> None:
    rows = [
        (tag, step, value)
        for step in (0, 1, 127, 128, 80_000, 2**40)
        for tag, value in (("Vacc", step / 3), ("levels/12", -0.0))
    ]
    rows += [("Vloss", 5, float("nan")), ("Vloss", 6, float("inf")), ("ÄΨ", 7, 1e-30), ("a" * 200, 8, 2.0)]
    found = in_order(read([write_events(tmp_path, rows)]))
    assert found.damage == {}
    assert [found.tags[k] for k in found.tag] == [tag for tag, _, _ in rows]
    assert found.step.tolist() == [step for _, step, _ in rows]
    np.testing.assert_array_equal(found.value, np.array([value for *_, value in rows], np.float32).astype(float))
    assert np.all((found.wall_time > 1.5e9) & (found.wall_time < 1e10))


def test_other_layouts_are_decoded() -> None:
    def tensor(**fields: object) -> Summary.Value:
        return Summary.Value(tag="t", tensor=TensorProto(**fields))

    values = [
        Summary.Value(tag="plain", simple_value=0.5),
        tensor(dtype=DT_FLOAT, float_val=[1.5]),
        tensor(dtype=DT_DOUBLE, tensor_content=struct.pack("<d", 2.5)),
        tensor(dtype=DT_FLOAT, float_val=[1.0, 2.0]),  # no scalar
        Summary.Value(tag="picture", image=Summary.Image(height=1)),
    ]
    event = Event(wall_time=9.0, step=-3, summary=Summary(value=values)).SerializeToString()
    assert list(event_scalars(event)) == [("plain", -3, 9.0, 0.5), ("t", -3, 9.0, 1.5), ("t", -3, 9.0, 2.5)]
    assert list(event_scalars(Event(file_version="brain.Event:2").SerializeToString())) == []


LAYOUTS = {"INT64": "<q", "INT32": "<i", "UINT8": "<B", "BOOL": "<?", "HALF": "<e", "DOUBLE": "<d", "FLOAT": "<f"}


@pytest.mark.parametrize("kind", LAYOUTS)
def test_numbers_of_every_type_are_read_from_bytes_and_from_fields(kind: str) -> None:
    field = {"INT64": "int64", "BOOL": "bool", "HALF": "half", "DOUBLE": "double", "FLOAT": "float"}.get(kind, "int")
    dtype = getattr(types_pb2, f"DT_{kind}")
    for number in (False, True) if kind == "BOOL" else (0, 1, 200) if kind == "UINT8" else (0, 1, 100, -3):
        data = struct.pack(LAYOUTS[kind], number)
        value = int.from_bytes(data, "little") if kind == "HALF" else number
        for fields in ({"tensor_content": data}, {f"{field}_val": [value]}):
            summary = Summary(value=[Summary.Value(tag="t", tensor=TensorProto(dtype=dtype, **fields))])
            event = Event(step=1, summary=summary).SerializeToString()
            assert list(event_scalars(event)) == [("t", 1, 0.0, float(number))], (number, fields)


def test_bfloat16_is_the_upper_half_of_a_float() -> None:
    brain = 14  # DT_BFLOAT16
    upper = struct.pack("<f", -1.5)[2:]
    field = int.from_bytes(upper, "little")
    for tensor in (
        TensorProto(dtype=brain, tensor_content=upper),
        TensorProto(dtype=brain, half_val=[field]),
    ):
        event = Event(step=1, summary=Summary(value=[Summary.Value(tag="t", tensor=tensor)])).SerializeToString()
        assert list(event_scalars(event)) == [("t", 1, 0.0, -1.5)]


@given(st.binary(max_size=60))
@settings(deadline=None)
def test_senseless_events_with_right_checksums_raise_nothing(
    tmp_path_factory: pytest.TempPathFactory, data: bytes
) -> None:
    path = tmp_path_factory.mktemp("e") / "events.out.tfevents.1"
    event = Event(wall_time=1.0, step=4, summary=Summary(value=[Summary.Value(tag="a", simple_value=3)]))
    path.write_bytes(record(data) + record(event.SerializeToString()))
    found = in_order(read([path]))
    assert found.damage == {}
    assert (found.step[-1], found.value[-1]) == (4, 3.0)


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, Path]:
    folder = tmp_path_factory.mktemp("sound")
    path = write_events(folder, [(tag, step, step * 1.5) for step in range(8) for tag in ("Vacc", "est_var")])
    return path.read_bytes(), folder


@given(data=st.data(), kind=st.sampled_from(["flip", "cut", "append", "zeros"]))
@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_damaged_file_keeps_what_stands_before_the_damage(
    sound: tuple[bytes, Path], data: st.DataObject, kind: str
) -> None:
    content, folder = sound
    position = data.draw(st.integers(0, len(content) - 1))
    if kind == "flip":
        bit = data.draw(st.integers(0, 7))
        bad = content[:position] + bytes([content[position] ^ (1 << bit)]) + content[position + 1 :]
    elif kind == "cut":
        bad = content[:position]
    elif kind == "zeros":
        bad = content[:position] + bytes(len(content) - position)
    else:
        bad, position = content + data.draw(st.binary(min_size=1, max_size=40)), len(content)
    neighbour, path = folder / "other", folder / "bad"
    path.write_bytes(bad)
    neighbour.write_bytes(content)
    whole, found = in_order(read([neighbour])), in_order(read([path, neighbour]))
    ends, at = [], 0
    while at < len(content):
        at += 16 + struct.unpack_from("<Q", content, at)[0]
        ends.append(at)
    intact = sum(end <= position for end in ends)
    kept = int((found.file == 0).sum())
    assert kept == max(0, intact - 1)  # the first record is the file's version
    assert found.value[:kept].tolist() == whole.value[:kept].tolist()
    assert found.value[kept:].tolist() == whole.value.tolist()  # the other file does not suffer
    clean = bad == content or (kind == "cut" and position in (0, *ends))
    assert (0 in found.damage) == (not clean)


def test_no_files_is_an_empty_answer() -> None:
    found = read([])
    assert len(found.value) == 0
    assert found.tags == []


def test_tags_of_one_length_are_told_apart_whatever_their_bytes(tmp_path: Path) -> None:
    tags = [f"levels/{k}" for k in range(100, 300)] + [f"{k:>10}" for k in range(50)]
    rows = [(tag, step, float(k)) for step in (0, 3, 200) for k, tag in enumerate(tags)]
    path = tmp_path / "events.out.tfevents.1"
    path.write_bytes(event_file(rows))
    found = in_order(read([path]))
    assert [
        (found.tags[tag], step, value) for tag, step, value in zip(found.tag, found.step, found.value, strict=True)
    ] == rows


def test_tags_with_one_key_are_told_apart_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "_ODD", np.uint64(0))  # every tag has the same key
    test_tags_of_one_length_are_told_apart_whatever_their_bytes(tmp_path)


def test_files_that_cannot_be_read_are_told_and_the_others_read(tmp_path: Path) -> None:
    paths = [tmp_path / name for name in ("gone", "folder", "empty", "sound")]
    paths[1].mkdir()
    paths[2].touch()
    paths[3].write_bytes(event_file([("a", 1, 2.0)]))
    found = read(paths)
    assert (found.file.tolist(), found.value.tolist()) == ([3], [2.0])
    assert found.damage == {0: "cannot be read (FileNotFoundError)", 1: "cannot be read (IsADirectoryError)"}


def test_many_records_are_read_in_several_portions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "_AT_ONCE", 7)
    path, bad = tmp_path / "a", tmp_path / "b"
    rows = [(tag, step, step / 7) for step in range(140) for tag in ("x", "yy")]
    path.write_bytes(event_file(rows))
    bad.write_bytes(event_file(rows[:20])[:-1] + b"?" + scalar("x", 5, 1.0) * 30)
    found = in_order(read([path, bad]))
    assert found.step[found.file == 0].tolist() == [step for _, step, _ in rows]
    assert found.step[found.file == 1].tolist() == [step for _, step, _ in rows[:19]]
    assert "wrong checksum after record 20" in found.damage[1]
