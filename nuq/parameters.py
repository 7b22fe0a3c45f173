"""The parameters of a model by their names, and how their numbers lie in memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

from nuq.kernels.spec import DTYPES


def dense(tensor: Tensor) -> bool:
    """Whether a tensor's numbers lie in one block of memory, in whatever order."""
    expected = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size != 1 and stride != expected:
            return False
        expected *= size
    return True


def is_sharded(tensor: Tensor) -> bool:
    """Whether a tensor is a DTensor, as FSDP2 makes them."""
    return hasattr(tensor, "placements")  # its class is slow to import


def shard(tensor: Tensor) -> Tensor:
    """This rank's own numbers of a tensor in their own memory, without its gradient: of a DTensor its local shard."""
    own: Any = tensor.detach()
    return own.to_local() if is_sharded(own) else own


def places_of(parameters: Mapping[str, Tensor]) -> dict[str, dict[str, Any]]:
    """Which shard this rank has of every sharded parameter, in the same words on ranks that have the same one."""
    sharded: dict[str, Any] = {name: p for name, p in parameters.items() if is_sharded(p)}
    return {
        name: {
            "shard": p.device_mesh.get_coordinate(),
            "of": list(p.device_mesh.mesh.shape),
            "cut": [str(placement) for placement in p.placements],
            "shape": list(p.shape),
        }
        for name, p in sharded.items()
    }


def reshard(model: nn.Module) -> None:
    """Have FSDP2 modules hold shards again, where an evaluation has left them with whole parameters."""
    check_model(model)
    modules: list[Any] = [module for module in model.modules() if hasattr(module, "set_requires_gradient_sync")]
    for module in modules:
        module.reshard()


def check_model(model: object) -> None:
    """ValueError for what is no model."""
    if not isinstance(model, nn.Module):
        raise ValueError(f"the model is of type {type(model).__name__}: must be a torch.nn.Module")


def trained(model: nn.Module) -> dict[str, nn.Parameter]:
    """The parameters to exchange, by name; ValueError for those of other types, or whose gradients are sparse."""
    check_model(model)
    parameters = named(model)
    for name, p in parameters.items():
        if p.dtype not in DTYPES:
            raise ValueError(f"parameter {name!r} is of {p.dtype}: must be one of {', '.join(map(str, DTYPES))}")
    embeddings = (module for module in model.modules() if isinstance(module, nn.Embedding | nn.EmbeddingBag))
    sparse = {id(module.weight) for module in embeddings if module.sparse}
    if found := [name for name, p in parameters.items() if id(p) in sparse]:
        raise _sparse(found[0])
    return parameters


def refuse_sparse_gradients(parameters: Mapping[str, nn.Parameter]) -> None:
    """Let the first backward pass raise the ValueError of ``trained`` where a gradient turns out to be sparse.

    No module may say so beforehand: ``functional.embedding(..., sparse=True)`` is of none, and DDP would end in words
    about storage.
    """

    def watch(name: str, parameter: nn.Parameter) -> None:
        def look(gradient: Tensor | None) -> None:
            if gradient is None:  # of an output that the loss does not use
                return
            handle.remove()
            if gradient.is_sparse:
                raise _sparse(name)

        handle = parameter.register_hook(look)

    for name, parameter in parameters.items():
        watch(name, parameter)


def _sparse(name: str) -> ValueError:
    return ValueError(
        f"sparse=True: the gradient of {name!r} is sparse, and dense ones are compressed; build its module with "
        "sparse=False, or freeze it"
    )


def named(model: nn.Module) -> dict[str, nn.Parameter]:
    """The trained parameters by name, without prefixes of DDP and torch.compile unless names would then coincide."""
    trained = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
    plain = {_plain(name): p for name, p in trained}
    return plain if len(plain) == len(trained) else dict(trained)


def _plain(name: str) -> str:
    return ".".join(word for word in name.split(".") if word not in ("module", "_orig_mod"))
