"""One run: the hosted workers' gradients, the exchange, the optimizer's step, and what is logged, saved and measured."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

import args
from nuq import agreement
from nuq.links import Links
from nuq.message import VERSION
from nuq.ops import NonFiniteError
from nuq.workers import Exchanged, Memory, Workers
from train import checkpoint, data, estimator, optim
from train.data.dataset import DataSet, Split
from train.gradients import Gradient, Gradients, evaluate
from train.log import Log
from train.order import Order, generator
from train.status import Status

MOST_HISTOGRAMS = 200  # of one tag in a run: at 3 kB each they would outgrow everything else in the log


class Preempted(Exception):
    """Asked to stop; the state is saved."""


@dataclass
class Totals:
    """What a run adds up over its attempts."""

    bytes: int = 0  # that the first worker encoded, the same in every split
    network_bytes: int = 0  # that the first process handed to the network in its steps
    update_s: float = 0.0
    measure_s: float = 0.0


class Trainer:
    """config: the full configuration; group: None for a single process; dataset: in place of the configured one (dry runs)."""

    def __init__(
        self, config: dict[str, Any], *, device: torch.device, group: dist.ProcessGroup | None = None, dataset: DataSet | None = None
    ) -> None:
        self.config = config
        self.device = device
        self.group = group
        self.rank = dist.get_rank(group) if group is not None else 0
        self.data = dataset or data.load(config, device)
        self.gradients = Gradients(config, self.data, device)
        self.model, self.parameters = self.gradients.model, self.gradients.parameters
        self.optimizer = optim.build(config, self.parameters, self.model)
        self._check_ranks()
        self.workers = self._workers(config["method"]["name"], args.named_method(config), args.named_exchange(config))
        self.every_worker = self._workers("supersgd", None)  # for measurements: all workers' gradients, in full precision
        self.trains_on_method = config["trajectory"] == "method"
        self.trained = self.workers if self.trains_on_method else self._workers("sgd", None)
        self.order = self._order(self.trained.num_workers, "train")
        self.measure_order = self._order(config["workers"], "measure")
        self.update_order = self._order(config["workers"], "update")
        self.step = 0
        self.totals = Totals()

    def _check_ranks(self) -> None:
        """ValueError, on all ranks, where they were started with other settings or run other versions."""
        flat: dict[str, Any] = {"torch": torch.__version__, "message version": VERSION}
        for name, value in args.result_settings(self.config).items():
            flat |= {f"{name}.{key}": item for key, item in value.items()} if isinstance(value, dict) else {name: value}
        links = Links(self.group, timeout_s=self.config["exchange"]["timeout_s"], device=self.device)
        agreement.check_settings(links, flat)

    def _workers(self, name: str, settings: Any, exchange: args.Exchange | None = None) -> Workers:
        shapes = {name: p.shape for name, p in self.parameters.items()}
        timeout_s = self.config["exchange"]["timeout_s"]
        workers, seed = self.config["workers"], self.config["seed"]
        memory = None
        if exchange is not None:
            values, acts = self.config["optim"], args.momentum_acts_in_workers(self.config)
            own = (values["momentum"], values["nesterov"]) if acts else (0.0, False)
            memory = Memory(args.named_feedback(self.config), *own)
        more = {"timeout_s": timeout_s, "memory": memory, "layers": self.config["layers"] if exchange is not None else ()}
        return Workers(name, settings, workers, shapes, seed, self.device, self.group, exchange, **more)

    def _order(self, workers: int, purpose: str) -> Order:
        return Order(self.data.num_train, self.config["batch_size"], workers, self.config["seed"], purpose)

    # --- gradients ---

    def gradient(self, worker: int, step: int, order: Order, purpose: str) -> tuple[Gradient, Tensor]:
        """One worker's gradient, one tensor per parameter, and its loss (0-d)."""
        return self.gradients.one(worker, step, order, purpose)

    def sync_buffers(self) -> None:
        """Worker 0's batch-norm buffers on every process (they are read in evaluation only)."""
        for buffer in self.model.buffers():
            self.every_worker.links.broadcast(buffer, "buffers")

    def part(self) -> None:
        """At the end, on every process after the same step: nobody leaves while another still talks."""
        self.trained.settle()
        self.every_worker.links.barrier()

    def _gather_gradients(self, gradients: dict[int, Gradient]) -> list[Gradient]:
        """All workers' full-precision gradients, in worker order."""
        flat = {worker: torch.cat([part.reshape(-1) for part in gradient]) for worker, gradient in gradients.items()}
        sizes = [p.numel() for p in self.parameters.values()]
        shapes = [p.shape for p in self.parameters.values()]
        return [
            [part.view(shape) for part, shape in zip(row.split(sizes), shapes, strict=True)]
            for row in self.every_worker.gather_tensors(flat)
        ]

    def _sampled_gradients(self, order: Order, count: int, purpose: str) -> Iterator[dict[int, Gradient]]:
        return self.gradients.samples(self.every_worker.hosted, self.step, order, count, purpose)

    # --- one step ---

    def train_step(self, stop: bool = False) -> Exchanged:
        """One optimizer step.  ``stop`` asks all processes to stop after it; the answer's ``stop`` says whether any asked."""
        before = self.trained.network_bytes
        gradients, losses = self.gradients.of_workers(self.trained.hosted, self.step, self.order, "train")
        self._update_levels(gradients)
        result = self.trained.exchange(gradients, losses, self.step, stop=stop)
        rate = optim.learning_rate(self.config, self.step)
        mean, offset = optim.clipped(self.config["optim"], result.mean), 0
        for parameter in self.parameters.values():
            parameter.grad = mean[offset : offset + parameter.numel()].view_as(parameter)
            offset += parameter.numel()
        for settings in self.optimizer.param_groups:
            settings["lr"] = rate
        self.optimizer.step()
        for name, parameter in self.parameters.items():
            if not bool(torch.isfinite(parameter).all()):
                raise NonFiniteError(f"step {self.step}: the parameter {name!r} is not finite after the update")
        self.step += 1
        self.totals.bytes += result.bytes_per_worker
        self.totals.network_bytes += self.trained.network_bytes - before
        return result

    def _update_levels(self, gradients: dict[int, Gradient]) -> None:
        workers = self.workers
        if not workers.adaptive:
            return
        started = time.perf_counter()
        running = [one for one in workers.learners if one.settings.statistics == "running" and self.trains_on_method]
        workers.observe(gradients, self.step, [one for one in running if one.collects(self.step)])
        due = [one for one in workers.learners if one.next_update(self.step) == self.step]
        fresh = [one for one in due if one not in running]  # all on the SGD trajectory, where only the first worker has a training gradient
        for count in sorted({one.settings.num_samples for one in fresh}):
            for sample in self._sampled_gradients(self.update_order, count, "update"):
                workers.observe(sample, self.step, [one for one in fresh if one.settings.num_samples == count])
        for one in due:
            bad = workers.update_levels([one])
            if bad and one in fresh:  # a running one is the step's own: its exchange names it
                raise NonFiniteError(f"step {self.step}: the gradient of {bad}, sampled for the level update, is not finite")
        self.totals.update_s += time.perf_counter() - started

    def untrain(self) -> None:
        """Gradient ascent with noise from worker 0's minibatches: the same on every process."""
        settings = self.config["untrain"]
        order = self._order(1, "untrain")
        for step in range(settings["steps"]):
            gradient, _ = self.gradient(0, step, order, "untrain")
            noise = generator(self.config["seed"], step, 0, "untrain/noise")
            with torch.no_grad():
                for parameter, ascent in zip(self.parameters.values(), gradient, strict=True):
                    parameter += settings["lr"] * ascent + settings["std"] * torch.randn(parameter.shape, generator=noise).to(self.device)

    # --- measuring, evaluating, saving ---

    def measure(self) -> estimator.Measured:
        """The estimator's variance and the levels in use (see ``train.estimator``); every process takes part."""
        started = time.perf_counter()
        count = self.config["measure"]["num_samples"]
        samples = (self._gather_gradients(gradients) for gradients in self._sampled_gradients(self.measure_order, count, "measure"))
        try:
            measured = estimator.measure(self.workers, samples, self.config["seed"], self.step)
        except NonFiniteError as error:
            raise NonFiniteError(f"step {self.step}: while measuring the estimator, {error}") from error
        seconds = time.perf_counter() - started
        self.totals.measure_s += seconds
        measured.scalars["time/measure_s"] = seconds
        return measured

    def evaluate(self, split: Split) -> dict[str, float]:
        """``V`` (test) or ``T`` (training) scalars over the whole split, without augmentation."""
        return evaluate(self.model, self.data, split, self.config["eval_batch_size"])

    def state_dict(self) -> dict[str, Any]:
        """The same in every split; every process must call it."""
        self.sync_buffers()
        return {
            "identity": args.identity(self.config),
            "step": self.step,
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "workers": self.workers.state_dict(),
            "totals": vars(self.totals),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.workers.load_state_dict(state["workers"])
        self.totals = Totals(**state["totals"])
        self.step = state["step"]

    # --- the run ---

    def run(self, run_dir: Path, status: Status, log: Log, stop_requested: Callable[[], bool] = lambda: False) -> None:
        """From the last checkpoint to the last step.  Preempted after a saved stop; NonFiniteError where it diverges."""
        saved = checkpoint.load(run_dir, args.identity(self.config), self.device)
        if saved is not None:
            self.load_state_dict(saved)
        config = self.config
        if self.step == 0:
            self.untrain()
        seconds, timed_steps = 0.0, 0
        spent = self.trained.account.seconds.copy()
        while self.step < config["steps"]:
            if config["measure"]["every"] and self.step % config["measure"]["every"] == 0:
                self._log_measurement(log)
            started = time.perf_counter()
            result = self.train_step(stop_requested())
            seconds, timed_steps = seconds + time.perf_counter() - started, timed_steps + 1
            stop = result.stop
            status.beat(self.step)
            last = self.step == config["steps"]
            if last or self.step % config["log_every"] == 0:
                scalars = self._training_scalars(result, seconds / timed_steps)
                scalars |= {f"time/{what}_s": (total - spent[what]) / timed_steps for what, total in self.trained.account.seconds.items()}
                log.scalars(self.step, scalars)
                status.tell(scalars)
                seconds, timed_steps, spent = 0.0, 0, self.trained.account.seconds.copy()
            if last or self.step % config["eval_every"] == 0:
                status.tell(self._log_evaluation(log))
            if last or stop or self.step % config["checkpoint_every"] == 0:
                state = self.state_dict()
                if self.rank == 0:
                    log.flush()
                    checkpoint.save(run_dir, state)
            if stop and not last:
                raise Preempted(f"stopped after step {self.step} of {config['steps']}; started again, it goes on from there")

        cost = f"level updates {self.totals.update_s:.1f} s, measurements {self.totals.measure_s:.1f} s"
        sent = f", {self.totals.network_bytes / 1e6:.2f} MB sent by the first process" if self.totals.network_bytes else ""
        log.line(f"done: {self.step} steps, {self.totals.bytes / 1e6:.2f} MB encoded per worker{sent}; {cost}")

    def _training_scalars(self, result: Exchanged, step_s: float) -> dict[str, float]:
        batch = (self.step - 1) % self.order.steps_per_epoch
        return {
            "epoch": self.order.epoch(self.step - 1),
            "lr": optim.learning_rate(self.config, self.step - 1),
            "niters": self.step,
            "batch_idx": batch,
            "loss": sum(result.losses) / len(result.losses),
            **(self._traffic(result) if self.trains_on_method else {}),
            "time/step_s": step_s,
            "time/update_s": self.totals.update_s,
        }

    def _traffic(self, result: Exchanged) -> dict[str, float]:
        """What was encoded, the same in every split; where there are several processes, also what the first one sent, headers included."""
        values: dict[str, float] = {"comm/bits_per_coordinate": result.bits_per_coordinate, "comm/bytes": self.totals.bytes}
        if result.means_bytes:
            values["comm/means_bits_per_coordinate"] = result.means_bits_per_coordinate
        if self.trained.links.world > 1:
            values["comm/network_bytes"] = self.totals.network_bytes
        return values

    def _log_measurement(self, log: Log) -> None:
        measured = self.measure()
        log.scalars(self.step, measured.scalars)
        every = self.config["measure"]["every"]
        if self.step // every % math.ceil(self.config["steps"] / every / MOST_HISTOGRAMS) == 0:
            for tag, masses in measured.histograms.items():
                log.histogram(self.step, tag, estimator.HISTOGRAM_EDGES, masses)

    def _log_evaluation(self, log: Log) -> dict[str, float]:
        """The values, on rank 0; empty on the others."""
        self.sync_buffers()
        values: dict[str, float] = {}
        if self.rank == 0:
            values = self.evaluate("test") | (self.evaluate("train") if self.config["eval_train"] else {})
            if not math.isfinite(values["Vloss"]):
                raise NonFiniteError(f"step {self.step}: the loss on the test set is {values['Vloss']}")
            log.scalars(self.step, values)
            log.line(f"step {self.step}/{self.config['steps']}: test accuracy {values['Vacc']:.2f} %, test loss {values['Vloss']:.4f}")
        return values
