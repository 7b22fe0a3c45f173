"""The steps of ``benchmarks/gpu/run`` as data, most valuable first."""

from __future__ import annotations

from dataclasses import dataclass

TOTAL_MINUTES = 25.0  # of a half-hour: the rest is for starting and for what travels
LONGEST_S = 540.0  # of a step: where commands are stopped after ten minutes, each fits into one

Command = tuple[str, ...]  # the arguments of a Python


@dataclass(frozen=True)
class Step:
    """commands: on a GPU, one after another, also after one that failed; rehearsal: the same code in small, without a
    GPU.

    limit_s: of all its commands together, in seconds.
    """

    name: str
    told: str
    commands: tuple[Command, ...]
    rehearsal: tuple[Command, ...]
    limit_s: float


def _module(name: str, text: str = "") -> Command:
    return ("-m", f"benchmarks.{name}", *text.split())


_TESTS = ("-m", "pytest", "-q", "-p", "no:cacheprovider")
_IMAGENET = "--data imagenet --model resnet18 resnet50 --batch 256 --workers 1 --threads 16 --seconds 12"
STEPS = (
    Step(
        "bits",
        "The Triton kernels against the reference and the C++ kernels, bit for bit, and the GPU's half of the tests.",
        (
            (
                *_TESTS,
                "tests/nuq/test_cuda.py",
                "tests/nuq/test_cuda_smaq.py",
                "tests/nuq/test_cuda_checks.py",
                "-k",
                "not interpreter",
            ),
            _module("gpu.bits", "--device cuda --size 10000000 --seconds 150 --sanitize"),
        ),
        (
            (*_TESTS, "tests/nuq/test_cuda_checks.py", "tests/nuq/test_cuda.py", "-k", "fit or without"),
            _module("gpu.bits", "--device cpu --size 2500 --seconds 25 --sanitize"),
        ),
        360,
    ),
    Step(
        "quantize",
        "Encode, decode and rotation as fractions of the bandwidth of a copy, which is measured beside every call.",
        (
            _module("quantize", "--device cuda --size 33554432 --repeats 30"),
            _module("quantize", "--device cuda --size 268435456"),
        ),
        (_module("quantize", "--device cpu --size 65536 --repeats 2"),),
        90,
    ),
    Step(
        "methods",
        "Every method on the gradient of a ResNet-18: error, bits, GB/s, and its ratio to plain PyTorch on the same "
        "device.",
        (_module("methods", "--device cuda --quick --threads 16"),),
        (_module("methods", "--device cpu --quick --model lenet --pairs 1 --threads 1"),),
        300,
    ),
    Step(
        "ranks",
        "Two ranks on one device: hook, FSDP2, streams, overlap, a killed rank; the bits of the same exchange on the "
        "CPU.",
        (_module("gpu.ranks", "--device cuda"),),
        (_module("gpu.ranks", "--device cpu --small"),),
        180,
    ),
    Step(
        "train",
        "Images per second of the trainer in bf16 beside a bare loop, launched one by one and as CUDA graphs.",
        (
            _module("train", f"--device cuda {_IMAGENET} --settings compute.precision=bf16"),
            _module("train", f"--device cuda {_IMAGENET} --settings compute.precision=bf16 compute.cuda_graphs=true"),
        ),
        (
            _module(
                "train",
                "--device cpu --model resnet8 --batch 4 --workers 2 --seconds 0 --settings compute.precision=bf16",
            ),
        ),
        240,
    ),
    Step(
        "gradients",
        "Gradients of a ResNet-50 and of a GPT of 124 million parameters at three ages: error and bits of the main "
        "methods.",
        (_module("gpu.gradients", "--device cuda --seconds 180"),),
        (_module("gpu.gradients", "--device cpu --small --seconds 60"),),
        210,
    ),
    Step(
        "paper",
        "The paper's CIFAR-10 runs of a ResNet-32, in as many steps as fit, side by side on one device: accuracy and "
        "seconds.",
        (_module("gpu.paper", "--device cuda --steps 400 --seconds 105"),),
        (_module("gpu.paper", "--device cpu --steps 2 --model resnet8 --batch 4 --runs SuperSGD ALQ --at-once 2"),),
        120,
    ),
)


def chosen(names: list[str], steps: tuple[Step, ...] = STEPS) -> tuple[Step, ...]:
    """The steps of these names, in the table's order; all where none is named.

    ValueError for a name that is no step's.
    """
    legal = [step.name for step in steps]
    for name in names:
        if name not in legal:
            raise ValueError(f"{name!r} is no step; legal here: {', '.join(legal)}")
    return tuple(step for step in steps if not names or step.name in names)
