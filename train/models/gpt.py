"""A small GPT, for texts of any vocabulary.

Radford and others, "Language models are unsupervised multitask learners" (2019).  Tokens and places are embedded and
added, pass through ``layers`` blocks of attention to what came before and of a two-layer network, each normalized on
its way in and added on its way out, and end as logits of the next token at every place.  Weights start as GPT-2's: from
N(0, .02^2), the two projections that a block adds from N(0, .02^2 / (2 * layers)), biases at zero.

Differences from GPT-2: the output has weights of its own unless ``tied`` (a small vocabulary saves little by sharing),
and dropout, if any, is in the same three places with one rate.  Dropout draws from torch's global generator of the
device, which the caller forks and seeds.
"""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

STD = 0.02


class Attention(nn.Module):
    """Causal attention of several heads; width is a multiple of heads."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads, self.rate = heads, dropout
        self.inputs = nn.Linear(width, 3 * width)
        self.project = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        query, key, value = (
            self.inputs(x).view(batch, length, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        )
        rate = self.rate if self.training else 0.0
        mixed = F.scaled_dot_product_attention(query, key, value, dropout_p=rate, is_causal=True)
        return F.dropout(self.project(mixed.transpose(1, 2).reshape(batch, length, width)), rate)


class Block(nn.Module):
    """The block x + attention(norm(x)), then x + network(norm(x)) with four times the width inside."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width)
        self.attention = Attention(width, heads, dropout)
        self.norm2 = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.project = nn.Linear(4 * width, width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm1(x))
        return x + self.dropout(self.project(F.gelu(self.up(self.norm2(x)), approximate="tanh")))


class GPT(nn.Module):
    """A map from int64 tokens (batch, up to ``length``) to logits (batch, length, vocabulary)."""

    def __init__(
        self, vocabulary: int, length: int, *, layers: int, heads: int, width: int, dropout: float, tied: bool
    ) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.places = nn.Embedding(length, width)
        self.dropout = nn.Dropout(dropout)
        self.blocks = nn.Sequential(*(Block(width, heads, dropout) for _ in range(layers)))
        self.norm = nn.LayerNorm(width)
        self.output = nn.Linear(width, vocabulary, bias=False)
        for name, module in self.named_modules():
            if isinstance(module, nn.Linear | nn.Embedding):
                nn.init.normal_(module.weight, std=STD / (2 * layers) ** 0.5 if name.endswith("project") else STD)
            if isinstance(module, nn.Linear) and module.bias is not None:
                nn.init.zeros_(module.bias)
        if tied:
            self.output.weight = self.tokens.weight

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.dropout(self.tokens(tokens) + self.places.weight[: tokens.shape[1]])
        return self.output(self.norm(self.blocks(x)))


def build(
    input_shape: tuple[int, ...], num_classes: int, layers: int, heads: int, width: int, dropout: float, tied: bool
) -> nn.Module:
    """The model of the settings of these names, for windows of such a shape over ``num_classes`` tokens."""
    return GPT(num_classes, *input_shape, layers=layers, heads=heads, width=width, dropout=dropout, tied=tied)
