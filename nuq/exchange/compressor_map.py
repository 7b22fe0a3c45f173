"""The compressors of an exchange, one for all parameters or for each group of layers, with what belongs to each."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor

from nuq.compressors.compressor import Compressor
from nuq.compressors.feedback import CompressedDifferences, ErrorFeedback, MomentumCorrection
from nuq.compressors.full_precision import FullPrecision
from nuq.compressors.quantized import AdaptiveQuantizer
from nuq.exchange.flat_layout import FlatLayout, Segment, arranged
from nuq.exchange.mean_error import second_settings
from nuq.exchange.payload import PayloadCodec
from nuq.registry import method
from nuq.settings import check, declared, unknown
from nuq.settings.feedback import Feedback
from nuq.settings.layers import Layer, matched


def sorted_settings(
    name: str, others: Sequence[type], given: Mapping[str, Any], defaults: Mapping[str, Any]
) -> list[Any]:
    """The settings of a method and those of ``others``, sorted from one list of keywords.

    defaults: where they are not the schemas' own.  ValueError for a keyword that none of them reads.
    """
    schemas = [method(name).settings, *others]
    known = {key for schema in schemas for key in declared(schema)}
    for key in given:
        if key not in known:
            raise unknown(f"setting of method={name}", key, sorted(known))
    return [schema(**check(schema, {**defaults, **given})) for schema in schemas]


Parts = Sequence[tuple[Segment, slice]]  # of vectors: segments, and places within them


class MethodState:
    """The two encoders of one method, for workers' gradients and for means; ``remember`` gives them a memory."""

    def __init__(self, name: str, settings: Any, second_bits: int) -> None:
        self.name, self.settings = name, settings
        self.compressor: Any = method(name).load()(settings)  # without a memory
        self.encoder: Compressor = self.compressor
        self.memories: list[ErrorFeedback] = []
        self.mean_encoder = self.encoder_of_means(second_bits)

    def encoder_of_means(self, second_bits: int) -> Compressor:
        """The encoder of means in so many bits, without a memory."""
        name, settings = second_settings(self.name, self.settings, second_bits)
        return method(name).load()(settings)

    def encode_means_by(self, encoder: Compressor) -> None:
        """Encode means by another encoder from now on; a memory of means stays around it."""
        if isinstance(self.mean_encoder, ErrorFeedback):
            self.mean_encoder.surround(encoder)
        else:
            self.mean_encoder = encoder

    def remember(
        self,
        feedback: Feedback,
        sizes: Mapping[str, int],
        num_workers: int,
        momentum: float = 0.0,
        nesterov: bool = False,
    ) -> None:
        """Put the memory of the settings around the encoders.  sizes: coordinates of its vectors."""
        kind = self.memory_kind(feedback)
        if kind == "none":
            return
        around = ErrorFeedback(self.encoder, sizes, decay=feedback.decay)
        if kind == "ef21":
            around = CompressedDifferences(self.encoder, sizes)
        elif kind == "momentum":
            how = {"masking": feedback.masking, "clip_norm": feedback.clip_norm, "clip_value": feedback.clip_value}
            how |= {"momentum": momentum, "nesterov": nesterov, "num_workers": num_workers}
            around = MomentumCorrection(self.encoder, sizes, **how)
        self.encoder, self.memories = around, [around]
        if feedback.both:
            around = ErrorFeedback(self.mean_encoder, {f"mean/{name}": size for name, size in sizes.items()})
            self.mean_encoder = around
            self.memories.append(around)

    def memory_kind(self, feedback: Feedback) -> str:
        """The kind of memory: none, error, momentum or ef21; auto is the method's."""
        return method(self.name).feedback if feedback.kind == "auto" else feedback.kind

    @property
    def remembers(self) -> bool:
        """Whether anything is kept of a vector from one message to the next."""
        return bool(self.memories) or method(self.name).collective == "power"

    @property
    def adaptive(self) -> list[AdaptiveQuantizer]:
        """The encoders whose levels follow the gradients."""
        both = (encoder.method for encoder in (self.encoder, self.mean_encoder))
        return [compressor for compressor in both if isinstance(compressor, AdaptiveQuantizer)]

    def state_dict(self) -> dict[str, Any]:
        """The encoders' own states, and the memories around them, as copies."""
        own = {"compressor": self.compressor.state_dict(), "second": self.mean_encoder.method.state_dict()}
        return {**own, "memories": [around.memory() for around in self.memories]} if self.memories else own

    def load_state_dict(self, state: dict[str, Any], device: torch.device | None = None) -> None:
        self.compressor.load_state_dict(state["compressor"])
        self.mean_encoder.method.load_state_dict(state["second"])
        for around, memory in zip(self.memories, state.get("memories", ()), strict=True):
            around.load_memory(memory, device)

    @property
    def scope(self) -> str:
        """The scope of the vectors: one per tensor, or (model) one for all; methods without the choice ignore it."""
        return getattr(self.settings, "scope", "model")


class CompressorMap:
    """The encoders of a method, and of the layers that have a method of their own (``nuq.settings.layers``).

    every: all of them, by the number that ``Segment.encoder`` names, the method's own first.  codec, mean_codec, bare:
    their payloads together.
    """

    def __init__(self, name: str, settings: Any, second_bits: int, layers: Sequence[Layer] = ()) -> None:
        self.name, self.settings, self.layers = name, settings, list(layers)
        self.single_worker = method(name).single_worker
        self.every = [
            MethodState(name, settings, second_bits),
            *(MethodState(layer.method, layer.settings, second_bits) for layer in layers),
        ]
        self.second_bits = [second_bits] * len(self.every)  # of the means, by encoder
        self.num_coordinates = USUAL_SIZE  # until they are told
        self.shares = [1.0] + [0.0] * len(layers)  # of the coordinates
        self._encoders: dict[str, int] = {}  # by parameter
        self._join()

    def _join(self) -> None:
        self.bare = PayloadCodec(*(method_state.compressor for method_state in self.every))
        self.codec = PayloadCodec(*(method_state.encoder for method_state in self.every))
        self.mean_codec = PayloadCodec(*(method_state.mean_encoder for method_state in self.every))
        # the encoders whose levels follow the gradients
        self.adaptive = [compressor for method_state in self.every for compressor in method_state.adaptive]

    def encode_means_by(self, seconds: Sequence[Compressor], second_bits: Sequence[int]) -> None:
        """Encode means by other encoders, one for each of ``every``, in so many bits."""
        for method_state, encoder in zip(self.every, seconds, strict=True):
            method_state.encode_means_by(encoder)
        self.second_bits = list(second_bits)
        self._join()

    def assign(self, shapes: Mapping[str, Sequence[int]]) -> None:
        """Assign all parameters, in the model's order; ValueError for a line of the list that is left none of them."""
        self._encoders = matched(self.layers, shapes)
        sizes = {name: math.prod(shape) for name, shape in shapes.items()}
        of = [0] * len(self.every)
        for name, size in sizes.items():
            of[self._encoders[name]] += size
        self.num_coordinates = sum(of)
        self.shares = [size / max(self.num_coordinates, 1) for size in of]

    def corrects_momentum(self, parameter: str, feedback: Feedback) -> bool:
        """Whether a parameter's momentum acts in its encoder, which it may then not bypass."""
        return self.every[self._encoders[parameter]].memory_kind(feedback) == "momentum"

    def check_momentum(
        self, shapes: Mapping[str, Sequence[int]], feedback: Feedback, dense: str, *, skip_1d: bool
    ) -> None:
        """ValueError where a parameter would pass by the encoder in which its momentum acts.

        dense: the setting that sends all so, or empty.  skip_1d: vectors do, but for methods that send them whole.
        """
        corrected = [name for name in shapes if self.corrects_momentum(name, feedback)]
        if dense and corrected:
            lacks = "without the momentum that feedback='momentum' has taken from the optimizer"
            raise ValueError(f"{dense}: sends gradients {lacks}; leave it out")
        for name in (name for name in corrected if skip_1d and len(shapes[name]) < 2):
            method_state = self.every[self._encoders[name]]
            if method_state.scope == "model" or not getattr(method_state.settings, "dense_1d", False):
                kept = "" if feedback.kind == "momentum" else ", with feedback='momentum', which keeps theirs"
                why = f"acts in its method, {method_state.name}, which it may then not pass by"
                line = f"a line of layers, as in layers=['*bias = supersgd']{kept}"
                remedy = f"leave skip_1d out, and give such tensors {line}"
                raise ValueError(f"skip_1d=True: the momentum of {name!r} {why}; {remedy}")

    def casts(self, parameter: str, feedback: Feedback) -> bool:
        """Whether a parameter's method casts every number by itself, and has no memory, whose factors take bytes."""
        method_state = self.every[self._encoders[parameter]]
        return method(method_state.name).casts and method_state.memory_kind(feedback) == "none"

    def compresses_nothing(self, layout: FlatLayout) -> bool:
        """Whether all parameters of a layout travel in full precision, though a method would compress some."""
        of = (self.every[number].compressor for number in set(self._encoders.values()))
        would = any(not isinstance(compressor, FullPrecision) for compressor in of)
        return would and all(segment.exact for segment in layout.segments)

    def arrange(
        self,
        shapes: Mapping[str, Sequence[int]],
        exact: Callable[[str, bool], bool] = lambda name, whole: False,
        cast: Callable[[str, bool], bool] = lambda name, whole: False,
    ) -> FlatLayout:
        """The flat layout of the vector of some of these parameters, or all.

        exact(name, whole): whether one travels in full precision; whole: it would be part of one vector with others.
        cast(name, whole): whether it is cast in one segment with such neighbors.
        """
        names = ["model", *(layer.vector_name for layer in self.layers)]
        whole = [name if each.scope == "model" else None for name, each in zip(names, self.every, strict=True)]
        encoders = {name: self._encoders[name] for name in shapes}
        joined = {name: whole[encoder] is not None for name, encoder in encoders.items()}
        rules = (lambda name: exact(name, joined[name])), (lambda name: cast(name, joined[name]))
        return arranged(shapes, encoders, whole, *rules)

    def remember(
        self, feedback: Feedback, layout: FlatLayout, num_workers: int, momentum: float = 0.0, nesterov: bool = False
    ) -> None:
        """Put the memory of the settings around the encoders, not around ``bare``.  layout: of all their vectors."""
        for number, method_state in enumerate(self.every):
            sizes = {own.name: own.size for own in layout.segments if own.encoder == number and not own.exact}
            method_state.remember(feedback, sizes, num_workers, momentum, nesterov)
        self._join()

    def surround(self, memory: Callable[[Compressor], ErrorFeedback]) -> None:
        """Put a memory, which ``memory`` makes around an encoder, around those of gradients, not around ``bare``."""
        for method_state in self.every:
            around = memory(method_state.encoder)
            method_state.encoder, method_state.memories = around, [around]
        self._join()

    @property
    def sends_differences(self) -> bool:
        """Whether messages hold differences (EF21), whose mean ``complete`` turns into that of the gradients."""
        return any(isinstance(memory, CompressedDifferences) for memory in self.memories)

    def complete(self, mean: Tensor, layout: FlatLayout, unused: Parts = ()) -> None:
        """Turn the mean of differences, float32[n], into the mean of the workers' estimates, in place."""
        of: dict[Segment, list[slice]] = {}
        for segment, part in unused:
            of.setdefault(segment, []).append(part)
        for segment in layout.segments:
            around = self.every[segment.encoder].encoder
            if isinstance(around, CompressedDifferences) and not segment.exact:
                around.complete(segment.key_name, mean[segment.place], of.get(segment, ()))

    @contextmanager
    def aside(self, unused: Parts) -> Iterator[None]:
        """Keep what is remembered of these parts out of the next messages, and as it is."""
        with ExitStack() as stack:
            for segment, part in unused:
                each = self.every[segment.encoder]
                if not segment.exact:
                    stack.enter_context(each.encoder.aside(segment.key_name, part))
                    stack.enter_context(each.mean_encoder.aside(f"mean/{segment.key_name}", part))
            yield

    @property
    def compressor(self) -> Any:
        """The compressor of all other layers, without a memory."""
        return self.every[0].compressor

    @property
    def memories(self) -> list[ErrorFeedback]:
        return [memory for method_state in self.every for memory in method_state.memories]

    def state_dict(self) -> dict[str, Any]:
        """The method's own state (``MethodState.state_dict``), and under ``layers`` those of the list's methods."""
        first, *others = (method_state.state_dict() for method_state in self.every)
        return {**first, "layers": others} if others else first

    def load_state_dict(self, state: dict[str, Any], device: torch.device | None = None) -> None:
        for method_state, own in zip(self.every, by_encoder(state), strict=True):
            method_state.load_state_dict(own, device)


def by_encoder(state: dict[str, Any]) -> list[dict[str, Any]]:
    """The state of a ``CompressorMap`` as a list of the states of its encoders."""
    return [state, *state.get("layers", ())]


USUAL_SIZE = 1 << 20  # coordinates: what a message costs beside its codes is then small
