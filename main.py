"""Train one experiment: ``python main.py method=alq method.bits=3 data=cifar10 model=resnet8 workers=4 seed=1``.

One process hosts all workers; under torchrun the workers are dealt to the processes.  ``--help`` shows every setting.
``python main.py mode=evaluate run=FOLDER`` evaluates the checkpoints of a run, beside it;
``python main.py fork=FOLDER at=STEP method=qsgd`` goes on from one of them with other settings.

PYTHON_ARGCOMPLETE_OK: by this word a shell knows that it can ask for completions.
"""

from __future__ import annotations

import contextlib
import functools
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from files import completion
from train.process.signals import StopSignal
from train.process.terminal import complain, open_streams, say

if TYPE_CHECKING:
    from settings import command_line


def run(config: dict[str, Any], stop: StopSignal | None = None) -> int:
    """Run one experiment from its full configuration; returns the exit code (see ``python main.py --help``)."""
    os.environ.setdefault("OMP_NUM_THREADS", str(config["threads"]))  # before torch is imported
    from train.launch import launch

    return launch(config, stop)


def evaluate(settings: command_line.Evaluation) -> int:
    """Evaluate a run's checkpoints in a process of its own; returns the exit code."""
    if settings.threads:
        os.environ.setdefault("OMP_NUM_THREADS", str(settings.threads))  # before torch is imported
    from train import evaluator

    return evaluator.run(settings)


def main() -> None:
    """Run the command line: resolve the overrides, and run what they make at the turn that Hydra gives them."""
    if completion.is_asked():
        from settings.completion import answer

        answer()
    open_streams()
    stop = StopSignal()  # a signal may come while modules are imported, which takes seconds
    import hydra
    from hydra._internal.utils import get_args_parser
    from hydra.core.hydra_config import HydraConfig
    from hydra.errors import HydraException
    from omegaconf import DictConfig, OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    from settings import command_line, fork_words, resolving
    from train.process.config_file import read_config
    from train.process.status import EXIT_HELD

    try:
        sys.argv[1:] = command_line.with_plugins(sys.argv[1:])  # Hydra knows of no --import
    except ValueError as error:
        _end(_refuse(error))
    words, odd = get_args_parser().parse_known_args()
    try:
        if odd:
            raise command_line.unknown_option(odd[0], sys.argv[1:])
        if words.shell_completion:
            raise ValueError(
                "-sc: Hydra's completion knows none of these settings; docs/start.md has the line for ours"
            )
        mode, overrides = command_line.split_mode(words.overrides)
        overrides, parent = fork_words.named(overrides, functools.partial(read_config, name="fork"))
        complete = functools.partial(fork_words.with_inherited, parent)
        if mode == "evaluate" or words.help:
            stop.let_go()
        if mode == "evaluate" and not words.help:
            if words.multirun or words.cfg:
                raise ValueError("mode=evaluate: -m and --cfg are for training")
            sys.exit(evaluate(command_line.evaluation(command_line.parse_overrides(overrides))))
        if words.resolve and not (words.cfg or words.help):
            raise ValueError("--resolve: says how --cfg shows the settings; write --cfg job --resolve")
        if words.multirun and os.environ.get("WORLD_SIZE", "1") != "1":
            raise ValueError("-m: one run after another is for a single process; start each with a torchrun of its own")
        if words.multirun and parent and (words.config_name or words.config_dir):
            raise ValueError(
                "fork=: several forks at once take no --config-name or --config-dir; start each without -m"
            )
        # clearer, and sooner, than Hydra would refuse
        resolving.check_overrides([] if words.help else overrides, complete, sweep=words.multirun)
        overrides = complete(overrides)
    except ValueError as error:
        _end(_refuse(error, tell="mode=evaluate" not in words.overrides))
    # Hydra knows of no mode= and no fork=
    sys.argv = [*(word for word in sys.argv if word not in words.overrides), *overrides]
    command_line.register()
    codes: list[int] = []

    @hydra.main(version_base="1.3", config_path=None, config_name="experiment")
    def experiment(composed: DictConfig) -> None:
        try:
            if words.config_name or words.config_dir:  # files of the user's own, which Hydra alone has read
                config = resolving.of_composed(OmegaConf.to_container(composed))  # type: ignore[arg-type]
            else:
                given: Any = OmegaConf.to_container(HydraConfig.get().overrides, resolve=False)  # ${...} stays text
                config = resolving.of_words(*complete(given["task"]))
        except ValueError as error:
            codes.append(_refuse(error))
            return
        codes.append(run(config, stop))

    os.environ.setdefault("HYDRA_FULL_ERROR", "1")  # Hydra's errors come here, and a crash keeps its whole traceback
    try:
        experiment()
    except BrokenPipeError:  # the reader of Hydra's own words is gone; a run minds no reader
        pass
    except (HydraException, OmegaConfBaseException) as error:
        codes.append(_refuse(ValueError(_of_hydra(error))))
    say()
    # a run that others have has not failed
    _end(max(codes, key=lambda code: (code not in (0, EXIT_HELD), code), default=0))


def _of_hydra(error: Exception) -> str:
    """A sentence on what Hydra, or below it OmegaConf, says of its own settings."""
    lines = [str(found).splitlines()[0].rstrip(".") for found in (error, error.__cause__) if str(found or "")]
    hint = "settings of Hydra's own, hydra.*, are for who knows them; --help lists the experiment's"
    return f"{': '.join(lines)} ({hint})"


def _refuse(error: Exception, *, tell: bool = True) -> int:
    """Print the error and return exit code 2; ``tell``: also tell the other ranks, which wait for this one."""
    complain(str(error))
    if tell and os.environ.get("WORLD_SIZE", "1") != "1":
        from train.process import rendezvous

        rendezvous.refuse(2, error)
    return 2


def _end(code: int) -> NoReturn:
    """End the process; the first rank also leaves the code where run.sh asks for it: torchrun would swallow it."""
    if (path := os.environ.get("NUQ_EXIT_CODE")) and os.environ.get("RANK", "0") == "0":
        with contextlib.suppress(OSError):
            Path(path).write_text(str(code))
    if "train.process.rendezvous" in sys.modules:  # else no rank has waited for others
        sys.modules["train.process.rendezvous"].leave(code)
    sys.exit(code)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:  # while modules are imported; a run that has begun ends by itself
        complain("interrupted before the run began")
        _end(130)
