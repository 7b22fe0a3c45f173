"""A run from its last checkpoint to its last step: what is logged and saved, and when."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from pathlib import Path

from nuq.errors import NonFiniteError
from nuq.exchange.exchanged import Exchanged
from settings import run_identity
from settings.fork import check_alike, same_method
from train.data.objective import told
from train.logs.run_log import Log, keeps_histogram
from train.process import checkpoint
from train.process.config_file import read_config
from train.process.signals import Preempted
from train.process.status import Status
from train.steps import estimator, optim, quantized_training
from train.steps.trainer import Interrupted, Trainer
from train.steps.update import not_finite

ATTEND_S = 1.0  # between two words of the processes while one of them works alone


def run(
    trainer: Trainer, run_dir: Path, status: Status, log: Log, stop_requested: Callable[[], bool] = lambda: False
) -> None:
    """Run from the last checkpoint to the last step. Preempted after a saved stop; NonFiniteError where it diverges."""
    trainer.stop_requested, trainer.progress = stop_requested, status.progress
    _Attempt(trainer, run_dir, status, log).go()


class _Attempt:
    def __init__(self, trainer: Trainer, run_dir: Path, status: Status, log: Log) -> None:
        self.trainer, self.config = trainer, trainer.config
        self.run_dir, self.status, self.log = run_dir, status, log
        self.saved: tuple[int, bool] | None = None  # step and ``evaluated`` of the newest checkpoint
        self.stats = trainer.trained.driver.stats
        self._forget_times()

    def go(self) -> None:
        trainer, config, last = self.trainer, self.config, self.config["steps"]
        stop, trainer.progress.phase = self._begin(), "training"
        while not stop and not (trainer.step == last and trainer.evaluated):
            try:
                if trainer.evaluated:
                    if config["measure"]["every"] and trainer.step % config["measure"]["every"] == 0:
                        self._log_measurement()
                    stop = self._step()
                if trainer.step == last and (trainer.evaluated or not stop):
                    trainer.finish()
                if not (trainer.evaluated or stop):
                    self.log.progress(trainer.step, last, "evaluating")
                    with trainer.progress.during("evaluating"):
                        self.status.tell(self._log_evaluation())
                    trainer.evaluated = True
            except Interrupted:
                stop = True
            if (
                stop
                or trainer.step in config["checkpoint_at"]
                or trainer.step == last
                or trainer.step % config["checkpoint_every"] == 0
            ):
                with trainer.progress.during("saving"):
                    self._save()
                    self._keep()
        if not (trainer.step == last and trainer.evaluated):
            raise Preempted(f"stopped after step {trainer.step} of {last}; started again, it goes on from there")

        totals = trainer.totals
        cost = f"level updates {totals.update_s:.1f} s, measurements {totals.measure_s:.1f} s"
        sent = f", {totals.network_bytes / 1e6:.2f} MB sent by the first process" if totals.network_bytes else ""
        self.log.line(f"done: {trainer.step} steps, {totals.bytes / 1e6:.2f} MB encoded per worker{sent}; {cost}")

    def _begin(self) -> bool:
        """Go on from where the last attempt left off, or a fork from the run that it leaves.

        Returns whether any process was asked to stop meanwhile.
        """
        trainer = self.trainer
        transport = trainer.fp32_workers.transport
        found = checkpoint.restore(self.run_dir, run_identity.identity(self.config), trainer.device, transport)
        if found is not None:
            self._load(found.path, lambda: trainer.load_state_dict(found.state))
            self.saved = (trainer.step, trainer.evaluated)
            self.status.saved(trainer.step)
            if found.path.name == checkpoint.FILE:
                self._keep()  # a run that was killed after it had saved has not kept it yet
        elif self.config["fork"]["run"]:
            self._fork(Path(self.config["fork"]["run"]))
        data = trainer.data
        self.status.trains_on({"fingerprint": data.fingerprint, "num_train": data.num_train, "num_test": data.num_test})
        try:
            if found is None and not self.config["fork"]["run"]:
                trainer.begin()
            trainer.attend()
        except Interrupted:
            return True
        return False

    def _fork(self, parent_dir: Path) -> None:
        """Go on from the checkpoint of another run.  CheckpointError where it has none such, or is too different."""
        trainer, at = self.trainer, self.config["fork"]["at"]
        try:
            parent = read_config(parent_dir, "fork.run")
            check_alike(self.config, parent)
            optim.check_groups(self.config, parent, trainer.parameters, trainer.model)
        except ValueError as error:
            raise checkpoint.CheckpointError(str(error)) from error
        found = checkpoint.on_all_ranks(
            lambda: checkpoint.at_step(parent_dir, run_identity.identity(parent), at, trainer.device),
            trainer.device,
            trainer.fp32_workers.transport,
        )
        assert found is not None, "at_step finds one or raises"
        same = same_method(self.config, parent)
        self._load(found.path, lambda: trainer.fork(found.state, same_method=same))
        self.log.line(f"from step {at} of {parent_dir}{'' if same else ', with another method'}")

    def _load(self, path: Path, load: Callable[[], None]) -> None:
        """Load a state; CheckpointError with the path of its file where it does not fit."""
        try:
            load()
        except checkpoint.CheckpointError as error:
            raise checkpoint.CheckpointError(f"{path}: {error}") from error
        except checkpoint.UNREADABLE as error:
            what = f"{path} does not fit this run ({checkpoint.reason(error)})"
            raise checkpoint.CheckpointError(what, "move it away") from error

    def _save(self) -> None:
        """Flush the log, then save the checkpoint, then report that it is there: none is ahead of the one before."""
        trainer = self.trainer
        if self.saved == (trainer.step, trainer.evaluated):
            return
        state = trainer.state_dict()
        if trainer.rank == 0:
            self.status.check_own()
            self.log.flush()
            checkpoint.save(self.run_dir, state)
        self.saved = (trainer.step, trainer.evaluated)
        self.status.saved(trainer.step)

    def _keep(self) -> None:
        """Keep the newest checkpoint where it is of one of ``checkpoint_at``."""
        if self.trainer.rank == 0 and self.trainer.step in self.config["checkpoint_at"]:
            checkpoint.keep(self.run_dir, self.trainer.step)

    # --- one step ---

    def _step(self) -> bool:
        """Do one step and log its scalars; returns whether any process asked to stop."""
        trainer, config = self.trainer, self.config
        started = time.perf_counter()
        with quantized_training.histograms_logged(trainer.tensors, self.config, trainer.step, self.log):
            result = trainer.train_step()
        self._seconds, self._steps = self._seconds + time.perf_counter() - started, self._steps + 1
        last = trainer.step == config["steps"]
        trainer.evaluated = not config["eval_every"] or not (last or trainer.step % config["eval_every"] == 0)
        self.status.beat(trainer.step)
        self.log.progress(trainer.step, config["steps"])
        if last or trainer.step % config["log_every"] == 0:
            scalars = self._training_scalars(result)
            self.log.scalars(trainer.step, scalars)
            self.status.tell(scalars)
            self._forget_times()
        # who is alone asks nobody
        return result.stop or (trainer.fp32_workers.transport.world == 1 and trainer.stop_requested())

    def _forget_times(self) -> None:
        self._seconds, self._steps, self._spent = 0.0, 0, self.stats.seconds.copy()

    def _training_scalars(self, result: Exchanged) -> dict[str, float]:
        trainer, step = self.trainer, self.trainer.step - 1
        return {
            "epoch": trainer.order.epoch(step),
            "lr": optim.learning_rate(self.config, step),
            "niters": trainer.step,
            "batch_idx": step % trainer.order.steps_per_epoch,
            "loss": sum(result.losses) / len(result.losses),
            **(self._traffic() if trainer.trains_on_method else {}),
            **(trainer.loss_scale.scalars() if trainer.loss_scale is not None else {}),
            **quantized_training.scalars(trainer.tensors, result),
            "time/step_s": self._seconds / self._steps,
            "time/update_s": trainer.totals.update_s,
            **{
                f"time/{what}_s": (total - self._spent[what]) / self._steps
                for what, total in self.stats.seconds.items()
                if what != "levels"  # in time/update_s
            },
        }

    def _traffic(self) -> dict[str, float]:
        """The scalars of what was encoded, the same in every split; bits are of a step, also where a round has several.

        Where there are several processes, they include what the first one sent, with headers.
        """
        totals, every = self.trainer.totals, self.trainer.local_steps
        values: dict[str, float] = {"comm/bytes": totals.bytes}
        if self.trainer.step % every == 0:
            coordinates = self.trainer.trained.num_coordinates
            values["comm/bits_per_coordinate"] = 8 * totals.round_bytes / coordinates / every
            if totals.round_means:
                values["comm/means_bits_per_coordinate"] = 8 * totals.round_means / coordinates / every
        if self.trainer.trained.transport.world > 1:
            values["comm/network_bytes"] = totals.network_bytes
        return values

    # --- measuring and evaluating ---

    def _log_measurement(self) -> None:
        step, every = self.trainer.step, self.config["measure"]["every"]
        measured = self.trainer.measure()
        self.log.scalars(step, measured.scalars)
        if keeps_histogram(step, every, self.config["steps"]):
            for tag, masses in measured.histograms.items():
                self.log.histogram(step, tag, estimator.HISTOGRAM_EDGES, masses)

    def _log_evaluation(self) -> dict[str, float]:
        """The values of an evaluation on rank 0, which has a word with the others every ATTEND_S; on others none."""
        trainer = self.trainer
        trainer.sync_buffers()
        if trainer.rank:
            while trainer.attend():
                pass
            return {}
        attended = time.monotonic()

        def between() -> None:
            nonlocal attended
            if trainer.fp32_workers.transport.world == 1 or time.monotonic() - attended >= ATTEND_S:
                trainer.attend()
                attended = time.monotonic()

        values = trainer.evaluate("test", between)
        values |= trainer.evaluate("train", between) if self.config["eval_train"] else {}
        trainer.attend(more=False)
        if not math.isfinite(values["Vloss"]):
            raise NonFiniteError(not_finite(trainer.step, values["Vloss"], trainer.model))
        self.log.scalars(trainer.step, values)
        self.log.line(f"step {trainer.step}/{self.config['steps']}: {told(values)}")
        return values
