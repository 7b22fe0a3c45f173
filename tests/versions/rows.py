"""The matrix as data: which versions are tried together, and which tests tell something about a version."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Row:
    """One environment.  Versions are exact; an empty one is the newest that fits the others."""

    name: str
    python: str  # "3.11"
    torch: str
    numpy: str = ""
    scipy: str = ""
    jaxtyping: str = ""
    installer: str = "pip"  # or uv
    rehearsed_with: str = ""  # the torchvision of a machine with a GPU: `benchmarks/gpu/run --rehearse` runs on it too

    def requirements(self) -> list[str]:
        """The requirements for an installer.  Triton is not among them: torch asks for its own."""
        pins = {"torch": self.torch, "numpy": self.numpy, "scipy": self.scipy, "jaxtyping": self.jaxtyping}
        return [f"{package}=={version}" for package, version in pins.items() if version]


ROWS = (
    Row("lowest", "3.11", "2.11.0", numpy="2.0.0", scipy="1.13.0", jaxtyping="0.3.0", installer="uv"),
    Row("gpu-machine", "3.12", "2.11.0", rehearsed_with="0.26.0"),
    Row("pinned", "3.11", "2.13.0", numpy="2.4.6", scipy="1.17.1", jaxtyping="0.3.11"),
    Row("pinned-torch-old-numpy", "3.11", "2.13.0", numpy="2.0.2", installer="uv"),
    Row("newest", "3.11", "2.15.0", installer="uv"),
    Row("newest-3.12", "3.12", "2.15.0", installer="uv"),
    Row("newest-3.13", "3.13", "2.15.0"),
)

# The rule: a file of tests is run where it touches an interface that versions change (DDP's and FSDP2's hooks, those of
# autograd and of the optimizers, saved state, the operators' schemas, Triton's language and compiler, SciPy's
# functions), and so is the contract of all methods.  Left out: long comparisons of averages and of many processes,
# which are about the methods, and what needs the packages of the experiments.
FILES = (
    "tests/test_contract.py",
    "tests/nuq/kernels/test_cuda.py",
    "tests/nuq/kernels/test_cuda_smaq.py",
    "tests/nuq/levels/test_distributions.py",
    "tests/nuq/test_fsdp.py",
    "tests/nuq/test_fsdp_gather.py",
    "tests/nuq/test_fsdp_overlap.py",
    "tests/nuq/test_fsdp_state.py",
    "tests/nuq/test_ddp.py",
    "tests/nuq/quantized_training/test_interrupted_passes.py",
    "tests/nuq/native/test_library.py",
    "tests/nuq/compressors/test_message.py",
    "tests/nuq/kernels/test_reference.py",
    "tests/nuq/exchange/test_saved_state.py",
    "tests/nuq/quantized_training/test_saved_tensors.py",
    "tests/nuq/quantized_training/test_training.py",
)
# What every submission can afford, without kernels; with kernels the contract too (slow without).
SHORT = (
    "tests/nuq/compressors/test_floats.py",
    "tests/nuq/native/test_library.py",
    "tests/nuq/compressors/test_message.py",
    "tests/nuq/kernels/test_reference.py",
)
SHORT_WITH_KERNELS = (*SHORT, "tests/test_contract.py")
