"""What a rank refuses at the doors of the library: one sentence there, nothing changed, and no other rank waits."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist

import nuq
from tests.nuq.exchange.test_saved_state import replaced, shown
from tests.nuq.small_training import backward, net, own_entry


def _loop(group: dist.ProcessGroup, **settings: Any) -> nuq.OuterLoop:
    model = net(0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return nuq.OuterLoop(model, optimizer, group=group, **{"min_size": 0, "timeout_s": 30.0} | settings)


def _train(loop: nuq.OuterLoop, group: dist.ProcessGroup, steps: range) -> None:
    for step in steps:
        loop.inner_optimizer.zero_grad()
        backward(loop.model, dist.get_rank(group), step)
        loop.step()


# --- a state of an outer loop ---

NAN = torch.full((40, 12), torch.nan)
ODD: list[tuple[list[Any], Any]] = [
    *(([key], None) for key in ("method", "rank", "settings", "count", "taken", "taken_at", "collective", "shards")),
    *(([key], None) for key in ("outer", "momentum", "pending", "coders", "ranks")),
    *(([key], 3) for key in ("method", "settings", "collective", "shards", "outer", "momentum", "pending", "coders")),
    *(([key], "x") for key in ("rank", "ranks", "count", "settings", "coders", "pending", "taken_at")),
    *(([key], []) for key in ("taken_at", "pending", "outer", "coders", "method", "settings")),
    *(([key], {}) for key in ("outer", "momentum", "coders")),
    (["method"], torch.zeros(2)),
    (["settings", "every"], torch.zeros(2)),
    (["ranks"], 0),
    (["rank"], -1),
    (["count"], True),
    (["taken"], 1 << 63),
    (["taken_at"], [0, 10**6]),
    (["taken_at"], [0.0, 0.0]),
    (["shards"], {"0.weight": 3}),
    (["outer", "0.weight"], 3.0),
    (["outer", "0.weight"], torch.zeros(3)),
    (["momentum", "0.weight"], NAN),
    (["momentum", "0.weight"], torch.zeros(40, 12, dtype=torch.float64)),
    (["outer", "of another model"], torch.zeros(3)),
    (["pending", 7], {}),
    (["pending", "0"], {}),
    (["pending", 0], None),
    (["pending", 0], {}),
    (["pending", 0, "due"], -1),
    (["pending", 0, "due"], 10**6),
    (["pending", 0, "due"], 9.0),
    (["pending", 0, "mean"], None),
    (["pending", 0, "mean"], torch.zeros(3)),
    (["pending", 0, "mean"], torch.full((1000,), torch.nan)),
    (["pending", 0, "before"], None),
    (["pending", 0, "before"], []),
    (["pending", 0, "before", 0], torch.zeros(3)),
    (["coders", "compressor"], None),
    (["coders", "layers"], [{}]),
    (["coders", "memories"], []),
    (["coders", "memories", 0, "workers"], {0: {}}),
    (["coders", "memories", 0, "workers", 0, "residuals", "0.weight"], torch.zeros(3)),
]


def odd_states(group: dist.ProcessGroup) -> list[str]:
    """The entries of ``ODD`` that are not refused as they should be."""
    loop = _loop(group, method="topk", ratio=0.1, every=4, fragments=2, overlap=3, collective="gather")
    _train(loop, group, range(7))  # a part is on its way
    saved, before, wrong = own_entry(loop), shown(loop.state_dict()), []
    assert list(saved["pending"]) == [0]
    for path, value in ODD:
        try:
            loop.load_state_dict(replaced(saved, path, value))
            wrong.append(f"{path} = {value!r} is taken")
        except Exception as error:  # noqa: BLE001 - returned
            if type(error) is not ValueError or not any(str(part)[:5] in str(error) for part in path):
                wrong.append(f"{path} = {value!r}: {error!r}")
        if shown(loop.state_dict()) != before:
            wrong.append(f"{path} = {value!r} has changed the loop")
            loop.load_state_dict(saved)
    loop.load_state_dict(saved)
    assert shown(loop.state_dict()) == before
    loop.close()
    return wrong


def test_odd_states_of_an_outer_loop_are_refused_and_nothing_is_taken(ranks: Any) -> None:
    assert ranks.run(odd_states, world=1) == [[]]
