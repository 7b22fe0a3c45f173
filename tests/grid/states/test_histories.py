"""Random histories of a run, seen late and by clocks that differ: its state never claims what is not so."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from grid.engine.states import state as states
from grid.engine.states.judge import judge
from grid.engine.states.record_values import own_element
from tests.grid.histories import T0, World


@settings(max_examples=200)
@given(st.integers(0, 2**40))
def test_states_never_lie(seed: int) -> None:
    """No state is done without a finished run, or failed without a failure, whatever happens to a run and whatever of
    it is seen; and none may start once it has finished, or while a process of it, or a job that will start one, can
    exist.
    """
    random = Random(seed)
    world = World(random, by_hand=random.random() < 0.3)
    at = T0
    world.submit(at)
    for _ in range(30):
        at = world.later(at)
        record, claim = world.seen_record(at), world.seen_claim(at)
        element = claim.element if claim else own_element(record) if isinstance(record, dict) else None
        answer, job = world.seen_answer(at, element)
        if answer is not None and answer.cluster == "elsewhere" and claim is not None:
            claim = replace(claim, cluster="here")
        elif answer is not None and answer.cluster == "elsewhere":
            answer = None
        found = judge(record, claim, job, answer, at + world.observer_s, alive=lambda host, pid: None)
        context = (seed, at, found, record, claim, job, answer, world.alive, world.failed)
        assert found.word in states.WORDS
        assert found.word != "pending" or not (claim and claim.recalled), context
        if found.word == "done":
            assert any(end <= at for end in world.finished), context
        if isinstance(record, dict) and record.get("state") == "done":
            assert found.word == "done", context
        if found.word in ("failed", "diverged"):
            assert world.failures(at), context
        if found.may_start and not (
            world.by_hand and (record is None or answer is None)
        ):  # nobody wrote down what was done by hand
            assert not world.can_be_alive(at), context
            assert not any(end <= at for end in world.finished), context
            all_over = at > max(item.over_at for item in world.elements)
            if not world.by_hand and random.random() < 0.5 and len(world.elements) < 3 and all_over:
                world.submit(at)
