"""The parts of a run: hosted workers' gradients, exchange, optimizer, measurements and the state that is saved."""

from __future__ import annotations

import copy
import functools
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

import args
from nuq.errors import NonFiniteError
from nuq.exchange import agreement
from nuq.exchange.driver import Memory
from nuq.exchange.exchanged import BadGradientError, Exchanged
from nuq.exchange.finite import first_not_finite
from nuq.exchange.level_updates import LevelUpdater
from nuq.exchange.parts import Part
from nuq.exchange.transport import Transport, apart
from nuq.simulation import Workers
from settings import run_identity, sections
from train import data, models
from train.data.dataset import DataSet, Split
from train.process import checkpoint
from train.process.checkpoint import Open
from train.process.status import Progress
from train.steps import estimator, optim, quantized_training
from train.steps.gradients import Gradients, evaluate
from train.steps.local_steps import LocalModels, Sent
from train.steps.loss_scale import skipped, skipped_steps
from train.steps.order import Order, generator
from train.steps.totals import Totals
from train.steps.update import check_finite, check_saved, check_state, update


class Interrupted(Exception):
    """The request, on all processes alike, to stop amid something that is done again from its beginning."""


class Trainer:
    """The trainer of a run.

    config: the full configuration; group: None for a single process; dataset: in place of the configured one (dry
    runs).
    """

    def __init__(
        self,
        config: dict[str, Any],
        *,
        device: torch.device,
        group: dist.ProcessGroup | None = None,
        dataset: DataSet | None = None,
    ) -> None:
        self.config, self.device, self.group = config, device, group
        self.rank = dist.get_rank(group) if group is not None else 0
        self.data = dataset or data.load(config, device)
        self.gradients = Gradients(config, self.data, device)
        self.model, self.parameters = self.gradients.model, self.gradients.parameters
        self.loss_scale = self.gradients.scale
        self.optimizer = optim.build(config, self.parameters, self.model)
        self.local_steps: int = config["exchange"]["local_steps"]
        self.tensors = quantized_training.attached(config, self.model, self.optimizer)
        if self.tensors is not None:
            self.gradients.begins = functools.partial(quantized_training.of_worker, self.tensors)
        self._check_ranks()
        self.workers = self._workers(
            config["method"]["name"], sections.named_method(config), args.Exchange(**config["exchange"])
        )
        self.fp32_workers = self._workers("supersgd", None)  # for measurements: all workers' gradients, uncompressed
        self.trains_on_method = config["trajectory"] == "method"
        self.trained = self.workers if self.trains_on_method else self._workers("sgd", None)
        # by which a step's losses are told: they do not wait behind messages that overlap with it
        self.words = self.fp32_workers if config["exchange"]["overlap"] else self.trained
        if self.words is not self.trained:  # a rank that is lost to one is lost to both
            one, other = self.words.transport, self.trained.transport
            one.siblings, other.siblings = [*one.siblings, other], [*other.siblings, one]
        self.local: LocalModels | None = None
        if self.local_steps > 1:
            outer, how = config["exchange"], (self.model, self.parameters, self.gradients.layout, self.optimizer)
            parts = self.trained.parts(outer["fragments"], self.local_steps)
            self.local = LocalModels(*how, self.trained.hosted, parts, outer)
        self.order = self._order(self.trained.num_workers, "train")
        self.measure_order = self._order(config["workers"], "measure")
        self.update_order = self._order(config["workers"], "update")
        self.step = 0
        self.evaluated = True  # whether the evaluation that is due at this step, if one is, has been logged
        self._unfinished: dict[str, Any] | None = None  # the state before ``finish``
        self.totals, self.progress = Totals(), Progress()
        self.stop_requested: Callable[[], bool] = lambda: False

    def _check_ranks(self) -> None:
        """Raise ValueError, on all ranks, where they were started with other settings or run other versions."""
        flat = sections.dotted(run_identity.result_settings(self.config))
        flat["fingerprint of the data"] = self.data.fingerprint
        transport = Transport(self.group, timeout_s=self.config["exchange"]["timeout_s"], device=self.device)
        agreement.check_settings(transport, flat)

    def _workers(self, name: str, settings: Any, exchange: args.Exchange | None = None) -> Workers:
        shapes = {name: p.shape for name, p in self.parameters.items()}
        memory, layers = None, ()
        if exchange is not None:
            values, acts = self.config["optim"], sections.momentum_acts_in_workers(self.config)
            own = (values["momentum"], values["nesterov"]) if acts else (0.0, False)
            memory, layers = Memory(args.Feedback(**self.config["feedback"]), *own), self.config["layers"]
        workers, seed, group = self.config["workers"], self.config["seed"], self.group
        if exchange is not None and exchange.overlap and group is not None:
            group = apart(group, exchange.timeout_s)
        more = {"timeout_s": self.config["exchange"]["timeout_s"], "memory": memory, "layers": layers}
        return Workers(name, settings, workers, shapes, seed, self.device, group, exchange, **more)

    def _order(self, workers: int, purpose: str) -> Order:
        config = self.config
        return Order(
            self.data.num_train, config["batch_size"], workers, config["seed"], purpose, config["compute"]["accumulate"]
        )

    # --- gradients ---

    def gradient(self, worker: int, step: int, order: Order, purpose: str) -> tuple[Tensor, Tensor]:
        """The gradient of one worker as one vector, and its loss (0-d)."""
        return self.gradients.one(worker, step, order, purpose)

    @property
    def num_exchanges(self) -> int:
        """The exchanges so far, by which methods follow their schedules: steps, or rounds of local steps."""
        return self.step // self.local_steps

    def sync_buffers(self) -> None:
        """Give every process worker 0's batch-norm buffers, for evaluation; NonFiniteError, on all, names a bad one.

        Where workers have models of their own the outer parameters go with them.
        """
        if self.local is not None:
            self.local.show()
        for name, buffer in self.model.named_buffers():
            self.fp32_workers.transport.broadcast(buffer, "buffers")
            check_finite(self.step, f"the buffer {name!r}", buffer)

    def part(self) -> None:
        """Wait at the end, on every process after the same step: nobody leaves while another still talks."""
        if self.local is not None:
            self.local.wait()
        self.trained.driver.settle()
        self.fp32_workers.transport.barrier()

    def _sampled_gradients(self, order: Order, count: int, purpose: str) -> Iterator[dict[int, Tensor]]:
        with self.progress.during(f"sampling gradients ({purpose})"):
            for gradients in self.gradients.samples(self.fp32_workers.hosted, self.step, order, count, purpose):
                yield gradients
                self.attend()

    def attend(self, more: bool = True) -> bool:
        """Exchange a word between all processes, at the same place of each: Interrupted where any was asked to stop.

        Returns the first process's ``more``, by which the others know that it is still at what they wait for.
        """
        self.progress.moved()
        rows = self.fp32_workers.transport.numbers([int(self.stop_requested()), int(more)], "control")
        if any(stop for stop, _ in rows):
            raise Interrupted
        return bool(rows[0][1])

    # --- one step ---

    def train_step(self, stop: bool = False) -> Exchanged:
        """Take one optimizer step; the result tells whether any process was asked to ``stop`` before the exchange.

        The result of a local step has the losses and no mean; where the moves of a part are sent, it has the part's,
        which may still be on its way.
        """
        before = self._network_bytes()
        if self.step % self.local_steps == 0:
            self.totals.begin_round()
        result = self._common_step(stop) if self.local is None else self._local_step(self.local, stop)
        self.step += 1
        self.totals.add(result, self._network_bytes() - before)
        return result

    def _network_bytes(self) -> int:
        return sum(one.driver.bytes_sent for one in {self.trained, self.words})

    def _local_step(self, local: LocalModels, stop: bool) -> Exchanged:
        trained, bad, losses = self.trained, {}, {}
        for worker in self.gradients.in_turn(trained.hosted, self.step, self.order):
            local.take(worker)
            gradient, loss = self.gradient(worker, self.step, self.order, "train")
            bad |= trained.first_bad({worker: gradient})
            losses[worker] = float(loss)
            if bad[worker] is None:
                update(self.config, self.optimizer, self.parameters, gradient, self.step, self.gradients.unused[worker])
        every_loss, stop = self.words.agree(bad, losses, self.step, stop=stop or self.stop_requested())
        taken = self.step + 1
        local.take_over(taken)
        if (part := local.sent_after(taken)) is None:
            return Exchanged(torch.empty(0, dtype=torch.float32, device="cpu"), every_loss, 0, stop)
        moves = local.moves(part)
        self._update_levels(moves, part)
        begun = trained.begin(moves, part, self.step, self.num_exchanges)
        local.expect(Sent(part, taken, begun.mean, begun.end))
        local.take_over(taken)
        return Exchanged(begun.mean, every_loss, begun.encoded.total(), stop, begun.encoded["means"])

    def _common_step(self, stop: bool) -> Exchanged:
        self._sample_for_levels()
        quantized_training.begin_step(self.tensors, self.step)
        gradients, losses = self.gradients.of_workers(self.trained.hosted, self.step, self.order, "train")
        quantized_training.see_gradients(self.tensors, gradients, self.gradients.layout)
        self._update_levels(gradients)
        try:
            words = {"stop": stop or self.stop_requested(), "unused": self.gradients.unused}
            result = self.trained.exchange(gradients, losses, self.step, **words)
        except BadGradientError as error:
            result = skipped(self.loss_scale, error)
        else:
            with self.trained.driver.stats.time("optimizer"):  # once in a process, whatever workers it hosts
                update(self.config, self.optimizer, self.parameters, result.mean, self.step, result.unused)
            if self.loss_scale is not None:
                self.loss_scale.taken()
        return result

    def _due(self, part: Part | None = None) -> list[LevelUpdater]:
        """The level updaters whose levels are updated at this step, before a part of the model is sent, if it is one.

        That is before the last part of a round, from the moves of all, and for first levels as soon as there are moves.
        """
        ends = part is None or self.local is None or part is self.local.last
        return [one for one in self.workers.levels.every if one.due(self.num_exchanges) and (ends or one.begins)]

    def _is_running(self, level_updater: LevelUpdater) -> bool:
        """Whether the updater learns from training gradients; on SGD's trajectory only the first worker has one."""
        return level_updater.settings.statistics == "running" and self.trains_on_method

    def _sample_for_levels(self) -> None:
        """Draw the extra samples for the updates of this step, before all else: it may take long or be interrupted."""
        started = time.perf_counter()
        fresh = [one for one in self._due() if not self._is_running(one)]
        try:
            for count in sorted({one.settings.num_samples for one in fresh}):
                for sample in self._sampled_gradients(self.update_order, count, "update"):
                    self.workers.observe(sample, self.step, [one for one in fresh if one.settings.num_samples == count])
        except Interrupted:
            for one in fresh:
                one.forget()
            raise
        finally:
            self.totals.update_s += time.perf_counter() - started

    def _update_levels(self, gradients: dict[int, Tensor], part: Part | None = None) -> None:
        """Update the levels that are due; part: of the model, whose moves they are."""
        workers = self.workers
        if not workers.levels.every:
            return
        started = time.perf_counter()
        if self.loss_scale is not None:  # gradients that overflow are skipped
            gradients = {
                worker: gradient for worker, gradient in gradients.items() if first_not_finite([gradient]) is None
            }
        collecting = [one for one in workers.levels.every if self._is_running(one) and one.collects(self.num_exchanges)]
        workers.observe(gradients, self.num_exchanges, collecting, part)
        due = self._due(part)
        if due and self.local is not None:
            self.local.wait()  # messages are decoded by the levels that they were encoded by
        for one in due:
            bad = workers.update_levels([one])
            if bad and not self._is_running(one):  # a running one is the step's own: its exchange names it
                what = f"the gradient of {bad}, sampled for the level update,"
                raise NonFiniteError(f"step {self.step}: {what} is not finite")
        self.totals.update_s += time.perf_counter() - started

    def begin(self) -> None:
        """Set the start of a run without a checkpoint: the weights of ``model.weights_file``, untrained if asked for.

        WeightsError for a file that does not fit, or that is another on another rank.
        """
        models.load_weights_file(self.config, self.model)
        models.check_weights_file(self.config["model"]["weights_file"], self.fp32_workers.transport)
        self.untrain()
        if self.local is not None:
            self.local.begin()

    def untrain(self) -> None:
        """Ascend the gradient with noise from worker 0's minibatches: the same on every process."""
        settings = self.config["untrain"]
        order = self._order(1, "untrain")
        for step in range(settings["steps"]):
            gradient, _ = self.gradient(0, step, order, "untrain")
            noise = generator(self.config["seed"], step, 0, "untrain/noise")
            with torch.no_grad():
                views = self.gradients.layout.views(gradient)
                for parameter, ascent in zip(self.parameters.values(), views, strict=True):
                    drawn = torch.randn(parameter.shape, generator=noise, dtype=torch.float32, device="cpu")
                    parameter += settings["lr"] * ascent + settings["std"] * drawn.to(self.device)
            self.attend()

    def finish(self) -> None:
        """End local steps after the last one: all workers have one model, which is evaluated.

        Every process calls it.  ``state_dict`` stays the state before it, from which a longer run goes on.
        """
        if self.local is None or self._unfinished is not None or not self.local.has_left(self.step):
            return
        self._unfinished, before = copy.deepcopy(self.state_dict()), self._network_bytes()
        self.totals.bytes += self.local.finish(self.trained, self.step, self.num_exchanges)
        self.totals.network_bytes += self._network_bytes() - before

    # --- measuring, evaluating, saving ---

    def measure(self) -> estimator.Measured:
        """The estimator's variance and the levels in use (see ``train.steps.estimator``); every process takes part."""
        started = time.perf_counter()
        count = self.config["measure"]["num_samples"]
        samples = (
            self.fp32_workers.driver.gather(gradients)
            for gradients in self._sampled_gradients(self.measure_order, count, "measure")
        )
        try:
            measured = estimator.measure(self.workers, samples, self.config["seed"], self.step)
        except NonFiniteError as error:
            raise NonFiniteError(f"step {self.step}: while measuring the estimator, {error}") from error
        seconds = time.perf_counter() - started
        self.totals.measure_s += seconds
        measured.scalars["time/measure_s"] = seconds
        return measured

    def evaluate(self, split: Split, between: Callable[[], object] = lambda: None) -> dict[str, float]:
        """The ``V`` (test) or ``T`` (training) scalars of a whole split; ``between`` is called after each batch."""
        quantized_training.at(self.tensors, self.step, 0, f"evaluate/{split}")
        return evaluate(self.model, self.data, split, self.config["eval_batch_size"], between)

    def state_dict(self) -> dict[str, Any]:
        """The state, the same in every split; every process must call it.  NonFiniteError if not worth keeping."""
        self.sync_buffers()
        if self._unfinished is not None:
            finished = {"finished": self.model.state_dict()} if self.evaluated else {}
            return {**self._unfinished, "evaluated": self.evaluated, **finished}
        if self.local is None:
            check_state(self.optimizer, self.parameters, self.step)
            own = {"optimizer": optim.saved(self.optimizer)}
        else:
            own = {"local": self.local.state_dict(self.trained.driver, self.step)}
        return {
            "identity": run_identity.identity(self.config),
            "step": self.step,
            "evaluated": self.evaluated,
            **models.state_of(self.model),
            **own,
            "workers": self.workers.state_dict(),
            "totals": vars(self.totals),
            "fingerprint": self.data.fingerprint,
            **({"loss_scale": vars(self.loss_scale)} if self.loss_scale is not None else {}),
            **({"tensors": self.tensors.state_dict()} if self.tensors is not None else {}),
        }

    def _outline(self, *, stepped: bool) -> dict[str, Any]:
        """The state that ``load_state_dict`` reads, as far as it is known; stepped: after the first update."""
        own = {"model": self.model.state_dict(), "workers": Open(), "totals": vars(Totals())}
        if self.local is None:
            own["optimizer"] = optim.outline(self.optimizer, stepped=stepped)
        else:
            own["local"] = self.local.outline(self.trained.num_workers, stepped=stepped)
        if self.loss_scale is not None:
            own["loss_scale"] = vars(self.loss_scale)
        if self.tensors is not None:
            own["tensors"] = self.tensors.state_dict() | {"masters": Open(self.parameters)}
        return own

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Load a state; CheckpointError for one of other data, else ValueError or ``checkpoint.UNREADABLE``."""
        if words := checkpoint.other_data(state, self.data.name, self.data.fingerprint):
            way_out = "go on with the files that it began with (data_dir, NUQ_DATA; of data=text: the Python)"
            raise checkpoint.CheckpointError(words, f"{way_out}, or choose another run_dir")
        # a fork may begin with less: its optimizer may remember what that of the other run does not
        stepped = state["step"] - skipped_steps(state) > self.config["fork"]["at"]
        checkpoint.check_values(state, self._outline(stepped=stepped), self.config["steps"])
        check_saved({name: state[name] for name in ("model", "optimizer", "local") if name in state})
        models.restore(self.model, state)
        if self.local is None:
            optim.restore(self.optimizer, state["optimizer"])
        else:
            self.local.load_state_dict(state["local"])
        self.workers.load_state_dict(state["workers"])
        self.totals = Totals(**state["totals"])
        if self.loss_scale is not None:
            self.loss_scale.restore(state["loss_scale"])
        if self.tensors is not None:
            self.tensors.load_state_dict(state["tensors"])
        self.step, self.evaluated = state["step"], state.get("evaluated", True)

    def fork(self, state: dict[str, Any], *, same_method: bool) -> None:
        """Load the state of another run, as ``load_state_dict``; every process must call it.

        Its totals go on.  What its method remembers is left there, unless the method is the same.
        """
        self.load_state_dict(state if same_method else state | {"workers": self.workers.state_dict()})
