"""A few steps of an unchanged DDP script, in this process as the only rank: gradients, buckets and times."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import multiprocessing
import os
import runpy
import socket
import statistics
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist
from torch import Tensor
from torch._C._distributed_c10d import GradBucket
from torch.nn.parallel import DistributedDataParallel

from nuq.advice.processor_share import processor_share
from nuq.parameters import trained
from nuq.prediction.rates import Bucket, Model

WARM_UP = 3  # steps before anything is noted: DDP has built its buckets anew by then
TIMED = 6  # steps whose times are noted
_MOST_OTHERS = 50  # steps more, of gradients that are not finite, or zero
_MOST_BYTES = 2e9  # of the gradients that are kept
_ELSEWHERE = (
    "the script starts processes and waits for them without a DistributedDataParallel of its own, and advise follows "
    "none but the first of torch.multiprocessing.spawn: let torchrun start the ranks, one process each, with the "
    "process group from the environment"
)
_SINGLE_RANK = {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1"}


@dataclass(frozen=True)
class Observed:
    """What some steps of a script showed.

    shapes: of its parameters, by name.  gradients: float32[n] of several steps in the parameters' order, which stand
    for those of several workers.  buckets: DDP's, as the names of their parameters and the share of the computation
    after which each was ready.  tail: the share of a step behind the last one.  compute_s: of a step without an
    exchange.  plain: the numbers of DDP's own all-reduce.  num_modules: DDP modules, of which the first was looked at.
    spread: the upper quartile of the timed steps over the least of them.  processor_share: of each of PyTorch's
    threads, before the script ran.
    """

    shapes: dict[str, torch.Size]
    gradients: list[Tensor]
    buckets: list[tuple[tuple[str, ...], float]]
    tail: float
    compute_s: float
    plain: str = "fp32"
    num_modules: int = 1
    spread: float = 1.0
    processor_share: float = 1.0

    @property
    def num_parameters(self) -> int:
        return sum(shape.numel() for shape in self.shapes.values())

    def model(self, whole: Collection[str] = (), *, joined: bool = False) -> Model:
        """The buckets for the cost model, where these parameters travel whole; joined: as one vector at the end."""
        found = []
        for names, ready in self.buckets:
            coded = [self.shapes[name].numel() for name in names if name not in whole]
            rest = sum(self.shapes[name].numel() for name in names if name in whole)
            found.append(Bucket(sum(coded), ready, len(coded), rest))
        if joined:
            found = [Bucket(sum(own.coordinates for own in found), 1.0, 1, sum(own.whole for own in found))]
        return Model(tuple(found), forward=0.0, tail=self.tail)


def observed(script: Path, arguments: Sequence[str], num_gradients: int) -> Observed:
    """Run a script as ``torchrun`` would run a single rank of it, until enough steps were seen.

    One that spawns its ranks by ``torch.multiprocessing`` runs its first one, here and alone.

    CannotMeasure where it is no DDP training, trains in processes that it starts otherwise, registers a hook of its
    own, ends too early or fails.  Processes that it has started do not outlive it.
    """
    watch = _Watch(num_gradients)
    share = processor_share(torch.get_num_threads())
    others = multiprocessing.active_children()
    with _as_single_rank(script, arguments), _no_ranks_elsewhere(watch):
        why = "ended"
        try:
            watch.over(lambda: runpy.run_path(str(script), run_name="__main__"))
        except SystemExit as left:
            why = f"ended with exit code {left.code!r}"
        except Exception:
            if not watch.has_enough:  # else it did not expect to be left so early
                raise
        finally:
            if dist.is_initialized():
                dist.destroy_process_group()
            for process in set(multiprocessing.active_children()) - set(others):
                process.terminate()
    if watch.has_enough:
        return dataclasses.replace(watch.found(), processor_share=share)
    if not watch.num_modules:
        raise CannotMeasure(
            f"{script.name} {why} and made no DistributedDataParallel (FSDP is not covered): advise runs a script as "
            "torchrun starts its first rank, with RANK=0 and WORLD_SIZE=1, and does not follow ranks that the script "
            "starts by itself, as by subprocess"
        )
    raise CannotMeasure(
        f"{script.name} {why} after {watch.step} training steps: {watch.needed} are needed, the last "
        f"{watch.num_gradients} with gradients that are finite and not zero ({len(watch.gradients)} had)"
    )


def watched(train: Callable[[], object]) -> Observed:
    """What is seen of a training in this process, whose group is there; it may go on for ever."""
    watch = _Watch(num_gradients=2)
    watch.over(train)
    return watch.found()


class CannotMeasure(ValueError):
    """A script, or a way to start it, that cannot be measured; the text says why."""


class _Enough(BaseException):
    """Leaves the script; no ``except Exception`` of its own holds it up."""


@dataclass
class _Watch:
    """Notes what a DDP module does from step to step."""

    num_gradients: int
    step: int = 0
    num_modules: int = 0
    plain: str = "fp32"
    names: dict[int, str] = field(default_factory=dict)
    ready: list[tuple[tuple[str, ...], float]] = field(default_factory=list)  # whose, and when: of this step
    times: list[tuple[float, list[tuple[tuple[str, ...], float]]]] = field(default_factory=list)  # begin, buckets
    begun: float | None = None
    pieces: dict[str, Tensor] = field(default_factory=dict)
    gradients: list[Tensor] = field(default_factory=list)
    shapes: dict[str, torch.Size] = field(default_factory=dict)

    @property
    def needed(self) -> int:
        return WARM_UP + TIMED + self.num_gradients

    @property
    def has_enough(self) -> bool:
        """Whether all was seen that is needed."""
        return self.step >= self.needed and len(self.gradients) >= self.num_gradients

    def over(self, train: Callable[[], object]) -> None:
        """Let a training run until enough was seen, or it ends."""
        with self.installed(), suppress(_Enough):
            train()

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Let the first DDP module that is made be watched."""
        of = DistributedDataParallel
        make, run, register = of.__init__, of.forward, of.register_comm_hook
        watched: list[DistributedDataParallel] = []
        process = os.getpid()

        @functools.wraps(make)
        def made(module: DistributedDataParallel, *args: Any, **kwargs: Any) -> None:
            if os.getpid() != process:
                raise CannotMeasure(_ELSEWHERE)
            make(module, *args, **kwargs)
            self.num_modules += 1
            if not watched:
                watched.append(module)
                try:
                    parameters = trained(module)
                except ValueError as error:
                    raise CannotMeasure(str(error)) from error
                self.names = {id(p): name for name, p in parameters.items()}
                self.shapes = {name: p.shape for name, p in parameters.items()}
                most = int(_MOST_BYTES / (4 * sum(p.numel() for p in parameters.values())))
                self.num_gradients = max(min(self.num_gradients, most), 2)
                register(module, None, _annotated(self.note))

        @functools.wraps(run)
        def ran(module: DistributedDataParallel, *args: Any, **kwargs: Any) -> Any:
            if module in watched and torch.is_grad_enabled():
                self.begins()
            return run(module, *args, **kwargs)

        @functools.wraps(register)
        def registered(module: DistributedDataParallel, *args: Any, **kwargs: Any) -> None:
            if module in watched:
                raise CannotMeasure(
                    "the script registers a communication hook of its own: advise takes a script without one"
                )
            register(module, *args, **kwargs)

        with (
            mock.patch.object(of, "__init__", made),
            mock.patch.object(of, "forward", ran),
            mock.patch.object(of, "register_comm_hook", registered),
        ):
            yield

    def begins(self) -> None:
        """Note that a forward pass begins, the first one since the last exchange if it is."""
        if self.has_enough or self.step >= self.needed + _MOST_OTHERS:
            raise _Enough
        if self.begun is None:
            self.begun = time.perf_counter()

    def note(self, state: object, bucket: GradBucket) -> torch.futures.Future[Tensor]:
        """The hook: the bucket as it is, after a note of it."""
        del state
        buffer = bucket.buffer()
        if buffer.is_cuda:
            torch.cuda.current_stream(buffer.device).synchronize()
        self.ready.append((tuple(self.names[id(parameter)] for parameter in bucket.parameters()), time.perf_counter()))
        self.plain = "fp32" if buffer.element_size() == 4 else "bf16"
        if self.step >= WARM_UP + TIMED:
            for parameter, gradient in zip(bucket.parameters(), bucket.gradients(), strict=True):
                self.pieces[self.names[id(parameter)]] = gradient.detach().float().reshape(-1).clone()
        if bucket.is_last():
            self.ends()
        future: torch.futures.Future[Tensor] = torch.futures.Future()
        future.set_result(buffer)
        return future

    def ends(self) -> None:
        """Note that the last bucket of a step was there."""
        if self.begun is not None:
            self.times.append((self.begun, self.ready))
        if self.pieces:
            gradient = torch.cat([self.pieces[name] for name in self.shapes])
            if bool(torch.isfinite(gradient).all()) and bool(gradient.any()):  # else a loss scaler looks for its scale
                self.gradients.append(gradient)
            self.pieces = {}
        self.begun, self.ready = None, []
        self.step += 1

    def found(self) -> Observed:
        """What was noted: medians over the timed steps."""
        timed = self.times[WARM_UP : WARM_UP + TIMED + 1]
        steps = [after[0] - before[0] for before, after in itertools.pairwise(timed)]
        spread = statistics.quantiles(steps, method="inclusive")[2] / min(steps)
        tails = [after[0] - before[1][-1][1] for before, after in itertools.pairwise(timed)]
        same = [(begun, ready) for begun, ready in timed[:TIMED] if len(ready) == len(timed[0][1])]
        computation = statistics.median(ready[-1][1] - begun for begun, ready in same)
        shares = [[(at - begun) / (ready[-1][1] - begun) for _, at in ready] for begun, ready in same]
        ready_at = [statistics.median(column) for column in zip(*shares, strict=True)]
        buckets = [(names, share) for (names, _), share in zip(same[-1][1], ready_at, strict=True)]
        step_s = computation + statistics.median(tails)
        tail = 1 - computation / step_s
        kept = self.gradients[: self.num_gradients]
        return Observed(self.shapes, kept, buckets, tail, step_s, self.plain, self.num_modules, spread)


def _annotated(hook: Callable[[object, GradBucket], object]) -> Callable[..., Any]:
    """A hook with the annotations that DDP compares, as objects."""

    def called(state: object, bucket: GradBucket) -> object:
        return hook(state, bucket)

    called.__annotations__ = {"bucket": GradBucket, "return": torch.futures.Future[Tensor]}
    return called


@contextmanager
def _no_ranks_elsewhere(watch: _Watch) -> Iterator[None]:
    """Raise CannotMeasure where a script that has made no DDP module waits for the end of a process.

    Workers of a data loader or a pool are daemons or have a thread that waits for them.
    """
    join = BaseProcess.join

    @functools.wraps(join)
    def joined(process: BaseProcess, timeout: float | None = None) -> None:
        here = threading.current_thread() is threading.main_thread()
        if here and not (watch.num_modules or process.daemon or timeout):
            raise CannotMeasure(_ELSEWHERE)
        join(process, timeout)

    with mock.patch.object(BaseProcess, "join", joined):
        yield


@contextmanager
def _as_single_rank(script: Path, arguments: Sequence[str]) -> Iterator[None]:
    """The environment, the arguments and the path of imports that a script has as the only rank of ``torchrun``."""
    if os.environ.get("WORLD_SIZE", "1") != "1":
        raise CannotMeasure(
            f"WORLD_SIZE={os.environ['WORLD_SIZE']}: advise runs the script as a single rank; start it without torchrun"
        )
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    path = [str(script.resolve().parent), *sys.path]

    def spawned(fn: Callable[..., object], args: Sequence[Any] = (), *_: Any, **__: Any) -> SimpleNamespace:
        fn(0, *args)
        return SimpleNamespace(join=lambda *_, **__: True)  # with join=False

    def initialized(backend: str | None = None, init_method: str | None = None, **kwargs: Any) -> None:
        del init_method  # of other ranks, too
        begin(backend, **{**kwargs, "rank": 0, "world_size": 1})

    begin = dist.init_process_group
    with (
        mock.patch.object(torch.multiprocessing, "spawn", spawned),
        mock.patch.object(torch.multiprocessing, "start_processes", spawned),
        mock.patch.object(sys.modules["torch.multiprocessing.spawn"], "spawn", spawned),
        mock.patch.object(dist, "init_process_group", initialized),
        mock.patch.dict(os.environ, {**_SINGLE_RANK, "MASTER_PORT": port}),
        mock.patch.object(sys, "argv", [str(script), *arguments]),
        mock.patch.object(sys, "path", path),
    ):
        yield
