"""Work on several cores: the same answers, errors that arrive, and no process that is waited for in vain."""

import os
import signal

import pytest

from analysis.plots.forked import each


def test_answers_come_in_the_order_of_the_items() -> None:
    parent = os.getpid()
    found = each(lambda item: (item * item, os.getpid()), list(range(50)), 2)
    assert [square for square, _ in found] == [item * item for item in range(50)]
    assert parent not in {process for _, process in found}


def test_an_error_arrives_also_where_sigterm_is_handled() -> None:
    """Forked processes inherit the caller's handlers; asking them to end with SIGTERM once hung for ever."""

    def fails(item: int) -> int:
        if item == 3:
            raise NotADirectoryError(20, "Not a directory", "file")
        return item

    before = signal.signal(signal.SIGTERM, lambda *_: None)
    try:
        with pytest.raises(NotADirectoryError, match="Not a directory: 'file'"):
            each(fails, list(range(20)), 3)
    finally:
        signal.signal(signal.SIGTERM, before)


def test_what_a_process_that_dies_left_undone_is_done_here() -> None:
    parent = os.getpid()

    def dies(item: int) -> int:
        if item == 5 and os.getpid() != parent:
            os.kill(os.getpid(), signal.SIGKILL)
        return -item

    assert each(dies, list(range(12)), 2) == [-item for item in range(12)]


@pytest.mark.parametrize(("count", "processes"), [(0, 2), (3, 2), (20, 1), (20000, 2)])
def test_few_and_very_many_items_need_no_process(count: int, processes: int) -> None:
    assert each(lambda _: os.getpid(), list(range(count)), processes) == [os.getpid()] * count
