"""The steps of ``benchmarks/gpu/run`` as data, most valuable first."""

from __future__ import annotations

from dataclasses import dataclass

TOTAL_MINUTES = 27.0  # part of a half-hour: the rest is for starting and for transfers
REHEARSAL_MINUTES = 6.0  # on 2 cores; a rehearsal that takes longer has failed
LONGEST_S = 540.0  # limit of a step: where commands are stopped after ten minutes, each fits into one
# The share of a command's limit that ``{seconds}`` in its words stands for; the rest is for starting and the last case.
OWN_SHARE = 0.8


@dataclass(frozen=True)
class Command:
    """A command of a step.

    words: a Python's arguments; limit_s: in seconds, and what the commands before it in its step left of theirs.
    """

    words: tuple[str, ...]
    limit_s: float

    def within(self, limit_s: float) -> list[str]:
        """The words of the command, told how much time it has."""
        return [word.replace("{seconds}", str(round(OWN_SHARE * limit_s))) for word in self.words]


@dataclass(frozen=True)
class Step:
    """A step.

    commands: on a GPU, one after another, also after one that failed; rehearsal: the same code in small, without a
    GPU; pictures: whether it wants CIFAR-10.
    """

    name: str
    told: str
    commands: tuple[Command, ...]
    rehearsal: tuple[Command, ...]
    pictures: bool = False

    @property
    def limit_s(self) -> float:
        """The limit of all its commands together, in seconds."""
        return sum(command.limit_s for command in self.commands)


def _module(limit_s: float, name: str, text: str = "") -> Command:
    return Command(("-m", f"benchmarks.{name}", *text.split()), limit_s)


def _tests(limit_s: float, device: str, files: str, names: str) -> Command:
    """A command that runs tests, from these files of tests/nuq.

    names: of the tests, as pytest's ``-k``.
    """
    paths = [f"tests/nuq/{name}.py" for name in files.split()]
    return Command(("-m", "benchmarks.gpu.unit_tests", "--device", device, *paths, "--names", names), limit_s)


_IMAGENET = "--device cuda --data imagenet --batch 256 --workers 1 --threads 16 --seconds 9"
_BF16 = "--settings compute.precision=bf16"
_GRAPHS = f"{_BF16} compute.cuda_graphs=true"
STEPS = (
    Step(
        "bits",
        "The Triton kernels against the reference and the C++ kernels, bit for bit, and the GPU's half of the tests.",
        (
            # 862 kernels, about .8 s of a core each: 45 s on 16 cores, the list included
            _module(120, "gpu.compile_kernels", "--size 10000000 10000 --seconds {seconds}"),
            _module(110, "gpu.bits", "--device cuda --size 10000000 --seconds {seconds}"),  # 100 s of one core
            # 40 s of one core
            _tests(
                80,
                "cuda",
                "kernels/test_cuda kernels/test_cuda_smaq kernels/test_cuda_checksum kernels/test_cuda_checks "
                "kernels/test_cuda_rans coding/test_index_coding_device",
                "not interpreter",
            ),
            _module(50, "gpu.bits", "--device cuda --sanitize --seconds {seconds}"),
        ),
        (
            _module(60, "gpu.compile_kernels", "--architecture 90 --size 2500 --every 200 --processes 2"),
            _module(120, "gpu.bits", "--device cpu --size 2500 --seconds 20"),
            _tests(120, "cpu", "kernels/test_cuda_checks kernels/test_cuda", "fit or without"),
            _module(30, "gpu.bits", "--device cpu --sanitize --seconds {seconds}"),
        ),
    ),
    Step(
        "quantize",
        "Encode, decode and rotation as fractions of the bandwidth of a copy, measured beside each call (goal: .85).",
        (
            _module(50, "speed", "quantize --device cuda --size 33554432 --repeats 30"),
            _module(40, "speed", "quantize --device cuda --size 268435456"),
        ),
        (_module(60, "speed", "quantize --device cpu --size 65536 --repeats 2"),),
    ),
    Step(
        "entropy",
        "rANS and index coding on the device: their bytes, and GB/s beside the way through the host.",
        (_module(100, "gpu.entropy", "--device cuda --seconds {seconds}"),),
        (_module(60, "gpu.entropy", "--device cpu --size 200 --repeats 1 --seconds 20"),),
    ),
    Step(
        "methods",
        "Every method on the gradient of a ResNet-18: error, bits, GB/s, and its ratio to plain PyTorch on the same "
        "device.",
        tuple(
            _module(100, "errors", f"methods --device cuda --quick --threads 16 --part {part}/3 --seconds {{seconds}}")
            for part in (1, 2, 3)
        ),
        (
            _module(
                150,
                "errors",
                "methods --device cpu --quick --model lenet --pairs 1 --threads 1 --part 1/1 --seconds {seconds}",
            ),
        ),
        pictures=True,
    ),
    Step(
        "ranks",
        "Two ranks on one device: hook, FSDP2, streams, overlap, a killed rank; the bits of the same exchange on the "
        "CPU; NCCL.",
        (_module(180, "gpu.ranks", "--device cuda --seconds {seconds}"),),  # holds each check to a limit of its own
        (_module(150, "gpu.ranks", "--device cpu --small --seconds {seconds}"),),
    ),
    Step(
        "train",
        "Images per second of the trainer in bf16 beside a bare loop, launched one by one and as CUDA graphs "
        "(torchvision's models).",
        tuple(
            _module(60, "speed", f"train {_IMAGENET} --model {model} {settings}")
            for settings in (_BF16, _GRAPHS)
            for model in ("resnet18", "resnet50")
        ),
        (
            _module(
                60,
                "speed",
                f"train --device cpu --model resnet8 --batch 4 --workers 2 --seconds 0 {_BF16}",
            ),
            _module(120, "gpu.train_in_small", "--model resnet18 resnet50"),
        ),
    ),
    Step(
        "gradients",
        "Gradients of a ResNet-50 and of a GPT of 124 million parameters at three ages: error and bits of the main "
        "methods.",
        tuple(
            _module(105, "gpu.gradients", f"--device cuda --model {model} --seconds {{seconds}}")
            for model in ("resnet", "gpt")
        ),
        tuple(
            _module(90, "gpu.gradients", f"--device cpu --small --model {model} --seconds 30")
            for model in ("resnet", "gpt")
        ),
        pictures=True,
    ),
    Step(
        "paper",
        "The paper's CIFAR-10 runs of a ResNet-32, in as many steps as fit, side by side on one device: accuracy and "
        "seconds.",
        (_module(120, "gpu.paper", "--device cuda --steps 400 --seconds {seconds}"),),
        (
            _module(
                90,
                "gpu.paper",
                "--device cpu --steps 2 --model resnet8 --batch 4 --runs SuperSGD ALQ --at-once 2 --seconds {seconds}",
            ),
        ),
        pictures=True,
    ),
)


def chosen(names: list[str], steps: tuple[Step, ...] = STEPS) -> tuple[Step, ...]:
    """The steps of these names, in the table's order; all steps where none is named.

    Raises ValueError for a name that is no step's.
    """
    legal = [step.name for step in steps]
    for name in names:
        if name not in legal:
            raise ValueError(f"{name!r} is no step; legal here: {', '.join(legal)}")
    return tuple(step for step in steps if not names or step.name in names)
