"""Train one experiment: ``python main.py method=alq method.bits=3 data=cifar10 model=resnet8 workers=4 seed=1``.

One process hosts all workers; under torchrun the workers are dealt to the processes.  ``--help`` shows every setting.
``python main.py mode=evaluate run=FOLDER`` evaluates the checkpoints of a run, beside it.
"""

from __future__ import annotations

import os
import sys
from typing import Any

import args
import command_line


def run(config: dict[str, Any]) -> int:
    """One experiment from its full configuration; the exit code (see ``python main.py --help``)."""
    os.environ.setdefault("OMP_NUM_THREADS", str(config["threads"]))  # before torch is imported
    from train.launch import launch

    return launch(config)


def evaluate(settings: command_line.Evaluation) -> int:
    """A run's checkpoints, by a process of its own; the exit code."""
    if settings.threads:
        os.environ.setdefault("OMP_NUM_THREADS", str(settings.threads))  # before torch is imported
    from train import evaluator

    return evaluator.run(settings)


def main() -> None:
    """The command line: check the overrides, let Hydra compose them, run."""
    import hydra
    from hydra._internal.utils import get_args_parser
    from omegaconf import DictConfig, OmegaConf

    words = get_args_parser().parse_args()
    try:
        mode, overrides = command_line.split_mode(words.overrides)
        if mode == "evaluate" and not words.help:
            if words.multirun or words.cfg:
                raise ValueError("mode=evaluate: -m and --cfg are for training")
            sys.exit(evaluate(command_line.evaluation(args.parse_overrides(overrides))))
        args.check_overrides([] if words.help else overrides, sweep=words.multirun)  # clearer, and sooner, than Hydra would refuse
    except ValueError as error:
        sys.exit(_refuse(error))
    sys.argv = [word for word in sys.argv if not word.startswith("mode=")]  # Hydra knows of none
    args.register()
    codes: list[int] = []

    @hydra.main(version_base="1.3", config_path=None, config_name="experiment")
    def experiment(config: DictConfig) -> None:
        try:
            settings = OmegaConf.to_container(config)
            args.validate(settings)  # type: ignore[arg-type]
        except ValueError as error:
            codes.append(_refuse(error))
            return
        codes.append(run(settings))  # type: ignore[arg-type]

    experiment()
    sys.exit(max(codes, default=0))


def _refuse(error: Exception) -> int:
    print(f"main.py: {error}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    main()
