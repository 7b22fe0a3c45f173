"""The way from a configuration to a run and its exit code: device, processes, signals, status, and the end of all."""

from __future__ import annotations

import contextlib
import errno
import os
import platform
import pwd
import warnings
from pathlib import Path
from typing import Any

import torch
import yaml

from files.aligned import some
from files.plain import Unreadable, opened, read_text
from nuq.errors import NonFiniteError, RankLost
from nuq.settings.quantized_training import formats_of
from settings import run_identity
from settings.data import is_on_disk
from train.data.data_files import UNUSABLE, DataError
from train.logs.run_log import Log
from train.models import WeightsError
from train.process import machine, rendezvous
from train.process import status as statuses
from train.process.checkpoint import FILE, PREVIOUS, CheckpointError, checked
from train.process.config_file import read_config
from train.process.memory import keep_freed_memory, return_freed_memory
from train.process.run_folder import Held, await_silence, only_process_in
from train.process.signals import Preempted, StopSignal
from train.process.terminal import complain, say
from train.steps.train_loop import run
from train.steps.trainer import Trainer

BAD_SETTINGS = (CheckpointError, WeightsError, DataError)  # errors of a trainer that stands, which people can put right
OF_A_START = ("config.yaml", "status.json", "exit_code", "scalars.csv", "events.out.tfevents.*")  # before a first step
FEW = 6  # at most so many settings are named
BEFORE_A_RUN = (".nfs*", "*.log", "*.out", "*.err", "run.sh", "exit_code", "*.tmp")  # what scripts leave without a run
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EIO)  # errors that are nobody's setting


def choose_device(name: str, local_rank: int) -> torch.device:
    """The device of a run; ``auto`` means CUDA where there is one. ValueError where CUDA is asked for in vain."""
    if name == "cpu" or (name == "auto" and not torch.cuda.is_available()):
        return torch.device("cpu")
    if not torch.cuda.is_available():
        raise ValueError("device='cuda': this machine has no CUDA device that torch can use; legal here: auto, cpu")
    device = torch.device("cuda", local_rank % torch.cuda.device_count())
    torch.cuda.set_device(device)
    return device


def launch(config: dict[str, Any], stop: StopSignal | None = None) -> int:
    """Run (or go on with) the experiment in its run folder. Returns the exit code; a crash leaves its traceback.

    stop: who has been listening already; from here on where there is none.
    """
    stop = stop or StopSignal()
    torch.set_num_threads(config["threads"])
    (return_freed_memory if "activations" in formats_of(config["tensors"]) else keep_freed_memory)()
    if config["threads"] > 1:
        warnings.warn(
            f"threads={config['threads']}: results differ in the last bits from runs with threads=1", stacklevel=1
        )
    run_dir = Path(run_identity.default_run_dir(config))
    before = ""  # the settings that were here
    with contextlib.ExitStack() as held:
        try:
            rank = rendezvous.own_rank()
            _check_folder(run_dir, config)
            if statuses.read(run_dir).get("state") == "done":
                if rank == 0:
                    say(f"{run_dir}: done already{_elsewhere(run_dir, config)}")
                    _warn_of_damage(run_dir / FILE)
                return statuses.EXIT_DONE
            device = choose_device(config["device"], int(os.environ.get("LOCAL_RANK", "0")))
            if rank == 0:
                is_new = not run_dir.exists()
                run_dir.mkdir(parents=True, exist_ok=True)
                await_silence(run_dir, held.enter_context(only_process_in(run_dir)), lambda: stop.requested)
                if config["fork"]["run"] and is_new:
                    held.callback(_remove_if_refused, run_dir)
                statuses.tidy(run_dir, "config.yaml", "status.json", "exit_code")
                before = read_text(run_dir / "config.yaml") if (run_dir / "config.yaml").exists() else ""
                statuses.write_text(run_dir / "config.yaml", yaml.safe_dump(config, sort_keys=False))
            here = machine.describe(device, statuses.ROOT) if rank == 0 else {}
            status = statuses.Status(
                run_dir if rank == 0 else None, config["steps"], _describe(device), config["threads"], here
            )
        except (Preempted, ValueError, OSError) as error:
            return _refuse(error)
        try:
            log = Log(run_dir if rank == 0 else None, status.attempt, csv=config["log"]["csv"])
            held.callback(log.close)
            log.settings(config)
        except OSError as error:
            code = _leave(status, statuses.EXIT_CRASH, _unwritable(error, run_dir))
            rendezvous.refuse(code, error)
            return code
        code = _train(config, run_dir, device, status, log, stop)
        if code == statuses.EXIT_BAD_SETTINGS and before:  # what is refused makes no step, on no data_dir
            with contextlib.suppress(OSError):
                statuses.write_text(run_dir / "config.yaml", before)
        return code


def _train(
    config: dict[str, Any], run_dir: Path, device: torch.device, status: statuses.Status, log: Log, stop: StopSignal
) -> int:
    """Run the training itself; whatever ends it is written to the status."""
    people_can_mend: tuple[type[Exception], ...] = ()

    def exit_code(error: BaseException) -> int:
        if isinstance(error, people_can_mend):
            return statuses.EXIT_BAD_SETTINGS
        return statuses.EXIT_DIVERGED if isinstance(error, NonFiniteError) else statuses.EXIT_CRASH

    try:
        with (
            status.beating(),
            rendezvous.process_group(device, config["exchange"]["timeout_s"], stop, exit_code) as group,
        ):
            people_can_mend = UNUSABLE  # as long as data, model and settings are put together
            with status.progress.during("loading data and model"), stop.at_once():
                trainer = Trainer(config, device=device, group=group)
            people_can_mend = BAD_SETTINGS
            method, model = config["method"]["name"], config["model"]["name"]
            on = f"{trainer.data.name} (fingerprint {trainer.data.fingerprint})"
            log.line(f"{run_dir}: {method}, {model} on {on}, {config['workers']} workers")
            try:
                run(trainer, run_dir, status, log, lambda: stop.requested)
            except Preempted:  # all processes together, their state saved
                with contextlib.suppress(RankLost):
                    trainer.part()
                raise
            trainer.part()
        log.finished()
        status.end(statuses.EXIT_DONE)
    except Preempted as why:
        return _leave(status, statuses.EXIT_REQUEUE, why)
    except statuses.Refused as other:
        return _leave(status, other.exit_code, other)
    except KeyboardInterrupt:
        why = Preempted("interrupted; started again, it goes on from its last checkpoint")
        return _leave(status, statuses.EXIT_INTERRUPTED, why)
    except BaseException as error:
        code = exit_code(error)
        if code != statuses.EXIT_CRASH or isinstance(error, RankLost):
            return _leave(status, code, error)
        if isinstance(error, OSError):
            return _leave(status, code, _unwritable(error, run_dir))
        with contextlib.suppress(OSError):
            status.end(code, error)
        raise
    return statuses.EXIT_DONE


def _check_folder(run_dir: Path, config: dict[str, Any]) -> None:
    """Raise ValueError where the folder holds a run of other settings, or one whose settings cannot be read."""
    path, remedy = run_dir / "config.yaml", "put it back or choose another run_dir"
    try:
        before = yaml.safe_load(read_text(path))
        its_identity = run_identity.identity(before)
    except FileNotFoundError:
        if any((run_dir / name).exists() for name in ("status.json", FILE, PREVIOUS)):
            if path.exists():  # the first rank has written both meanwhile
                return _check_folder(run_dir, config)
            raise ValueError(f"{path} is missing from a folder that holds a run: {remedy}") from None
        return _check_place(run_dir, config)
    except Unreadable as error:
        raise ValueError(f"{path} {error}: {remedy}") from error
    except (yaml.YAMLError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{path} is damaged ({type(error).__name__}): {remedy}") from error
    if its_identity != run_identity.identity(config):
        which = run_identity.differing(before, config)
        more = f"; {len(which) - FEW} more in its config.yaml" if len(which) > FEW else ""
        what = f"holds a run of other settings ({'; '.join(which[:FEW])}{more})"
        raise ValueError(f"run_dir={str(run_dir)!r} {what}: choose another folder")
    if config["fork"]["run"] and _are_other_runs(before["fork"]["run"], config["fork"]["run"]):
        what = f"holds a fork of another run ({before['fork']['run']})"
        raise ValueError(f"run_dir={str(run_dir)!r} {what}: choose another folder")


def _check_place(run_dir: Path, config: dict[str, Any]) -> None:
    """Raise ValueError where a folder without a run is no place for one: it is somebody's, or holds other files."""
    homes = {os.path.expanduser("~")}
    with contextlib.suppress(KeyError):  # in a container, the user's number may have no name
        homes.add(pwd.getpwuid(os.getuid()).pw_dir)  # a job's HOME may be another folder
    places = {**{Path(home).resolve(): "your home" for home in homes}, statuses.ROOT.resolve(): "the checkout"}
    if what := {**places, Path("/"): "the root"}.get(run_dir.resolve()):
        raise ValueError(f"run_dir={str(run_dir)!r}: is {what}, and a run has a folder of its own: name one inside it")
    try:
        found = sorted(path.name for path in run_dir.iterdir() if not any(map(path.match, BEFORE_A_RUN)))
    except FileNotFoundError:
        return
    if found and (run_dir / "config.yaml").exists():  # the first rank has written it meanwhile
        return _check_folder(run_dir, config)
    if found:
        raise ValueError(
            f"run_dir={str(run_dir)!r}: holds {some(found)} and no run: choose a folder that is empty or not there yet"
        )


def _are_other_runs(one: str, other: str) -> bool:
    """Whether two folders, of which the ends are alike, hold runs of different settings."""
    try:
        own, others = (run_identity.identity(read_config(Path(folder))) for folder in (one, other))
    except ValueError:  # of a folder that was moved, or is gone, nothing is known
        return False
    return own != others


def _remove_if_refused(run_dir: Path) -> None:
    """Remove the folder of a fork that was refused before its first step, of which nothing is to be kept."""
    with contextlib.suppress(OSError, ValueError):
        status = statuses.read(run_dir)
        if status.get("exit_code") == statuses.EXIT_BAD_SETTINGS and not status["step"]:
            for name in OF_A_START:
                for path in run_dir.glob(name):
                    path.unlink()
            run_dir.rmdir()  # fails where anything else lies there


def _elsewhere(run_dir: Path, config: dict[str, Any]) -> str:
    """The end of a sentence on a finished run that names its data; empty where this folder of data sets was its."""
    its, data_dir = yaml.safe_load(read_text(run_dir / "config.yaml")).get("data_dir"), config["data_dir"]
    data = statuses.read(run_dir).get("data")
    if its == data_dir or not is_on_disk(config) or not isinstance(data, dict):
        return ""
    return (
        f" on the data of data_dir={its} (fingerprint {data.get('fingerprint')}), whatever lies in {data_dir}: with "
        "another run_dir it is run anew"
    )


def _warn_of_damage(path: Path) -> None:
    """Warn that the checkpoint of a finished run is damaged: its results stand, but its parameters may be wanted."""
    try:
        with opened(path) as file:
            checked(file)
    except FileNotFoundError:  # somebody did not
        pass
    except (CheckpointError, OSError, Unreadable) as error:
        complain(f"{path}, the last checkpoint of this run, is damaged ({statuses.describe(error)})")


def _describe(device: torch.device) -> str:
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"cpu ({platform.machine()}, {torch.backends.cpu.get_cpu_capability()})"


def _leave(status: statuses.Status, code: int, why: BaseException) -> int:
    complain(str(why))
    try:
        status.end(code, why)
    except statuses.FolderTaken:  # the status there is another process's
        return statuses.EXIT_HELD
    except OSError as error:
        complain(f"nor can the end of the run be noted: {statuses.describe(error)}")
    return code


def _unwritable(error: OSError, run_dir: Path) -> OSError:
    """The error that people see when a file system ended a run; it counts as raised where ``error`` was."""
    if isinstance(error, statuses.FolderTaken):
        words = statuses.describe(error)
    elif isinstance(error, statuses.FolderGone) or not run_dir.is_dir():
        what = "the run folder was removed, moved or replaced while the run was in it"
        words = f"{run_dir}: {what}; what it held is where it is now"
    else:
        where = "" if error.filename else f"{run_dir}: "
        saved = "what was saved before is whole, and started again the run goes on from it"
        words = f"{where}{statuses.describe(error)}; {saved}"
    return type(error)(words).with_traceback(error.__traceback__)


def _refuse(error: Exception) -> int:
    """Say why this process does not start, here and to the other ranks; returns the exit code."""
    if isinstance(error, Preempted):
        code = statuses.EXIT_REQUEUE
    elif isinstance(error, OSError) and error.errno in FULL:
        code = statuses.EXIT_CRASH
    else:
        code = statuses.EXIT_HELD if isinstance(error, Held) else statuses.EXIT_BAD_SETTINGS
    complain(statuses.describe(error))
    rendezvous.refuse(code, error)
    return code
