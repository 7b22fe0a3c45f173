"""WordPiece, BERT's tokens: whole words where they are frequent, else pieces of them.

The pieces past the first are marked with ##.  Text is cleaned and split at spaces and punctuation as BERT does it (by
the library ``tokenizers``), and a word becomes the longest pieces that the vocabulary has, from its left.  The
vocabulary is BERT's own ``vocab.txt``, or learned here from the training split.
"""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from .data_files import damaged, missing

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
BERTS_OWN = 30_522  # tokens of bert-base-uncased
LONGEST_WORD = 100  # characters; longer ones are [UNK], as BERT has it
CHUNK = 1000  # texts that are encoded at once: the library's records of them are large

Texts = Sequence[tuple[str, ...]]  # a sentence each, or two


def library() -> Any:
    """The package ``tokenizers``; ValueError says how to install it."""
    try:
        import tokenizers
    except ImportError as error:
        need = f"data=glue and data=imdb need the package tokenizers ({error})"
        raise ValueError(f"{need}: pip install '.[nlp]'") from error
    return tokenizers


def vocabulary(settings: Mapping[str, Any], training: Texts) -> list[str]:
    """The tokens of the folder ``data.tokenizer``; without one, ``data.vocabulary`` learned from ``training``."""
    if settings["tokenizer"]:
        return in_folder(Path(settings["tokenizer"]))
    return learned(words(text for texts in training for text in texts), settings["vocabulary"])


def num_tokens(settings: Mapping[str, Any]) -> int:
    """The number of tokens; for a missing folder that of BERT's own, since stand-ins need no folder."""
    if not settings["tokenizer"]:
        return settings["vocabulary"]
    try:
        return len(in_folder(Path(settings["tokenizer"])))
    except FileNotFoundError:
        return BERTS_OWN


def in_folder(folder: Path) -> list[str]:
    """The lines of ``vocab.txt``. FileNotFoundError, or ValueError where it is none of BERT's."""
    path = folder / "vocab.txt"
    if not path.is_file():
        remedy = f"set data.tokenizer (now {folder}), or leave it empty"
        raise missing("vocabulary", f"{path}, one token a line, as BERT has it", remedy)
    try:
        found = [line.removesuffix("\r") for line in path.read_bytes().decode().removesuffix("\n").split("\n")]
    except UnicodeDecodeError as error:
        raise damaged(path, "one token a line in UTF-8", error) from error
    absent = [token for token in SPECIAL[:4] if token not in found]
    if absent:
        raise damaged(path, f"{', '.join(SPECIAL[:4])} among its lines", f"no {absent[0]} in {len(found)} lines")
    if len(set(found)) < len(found):
        raise damaged(path, "a token once", f"{Counter(found).most_common(1)[0][0]!r} more than once")
    return found


# --- learning -----------------------------------------------------------------------------------------------------


def words(texts: Iterable[str]) -> Counter[str]:
    """The count of each word in the texts, in small letters without accents."""
    tokenizers = library()
    clean, split = tokenizers.normalizers.BertNormalizer(lowercase=True), tokenizers.pre_tokenizers.BertPreTokenizer()
    between_spaces = Counter(part for text in texts for part in clean.normalize_str(text).split())
    found: Counter[str] = Counter()
    for part, count in between_spaces.items():  # punctuation is cut off once from each
        for word, _ in split.pre_tokenize_str(part):
            found[word] += count
    return found


def learned(counts: Mapping[str, int], size: int) -> list[str]:
    """The vocabulary of ``size`` tokens learned from words of these counts.

    It has the special tokens, then characters, then what joining the most frequent pair gives, again and again.

    counts: how often each word occurs.  At most half of the tokens are characters, the most frequent ones.  Pairs that
    are equally frequent come in alphabetical order, so that the same text gives the same tokens anywhere, whatever the
    order of its words.  Once no pair occurs twice, [unused0], [unused1] ... fill the rest, as in BERT's own.

    Joining the most frequent pair is what today's libraries do; Schuster and Nakajima ("Japanese and Korean voice
    search", 2012) join the one that makes the text most likely.
    """
    spelled = [
        ([word[0], *(f"##{letter}" for letter in word[1:])], count)
        for word, count in counts.items()
        if len(word) <= LONGEST_WORD
    ]
    letters: Counter[str] = Counter()
    for pieces, count in spelled:
        for piece in pieces:
            letters[piece] += count
    alphabet = sorted(letters, key=lambda piece: (-letters[piece], piece))[: (size - len(SPECIAL)) // 2]
    found = dict.fromkeys([*SPECIAL, *alphabet])
    _join([(pieces, count) for pieces, count in spelled if found.keys() >= set(pieces)], found, size)
    return [*found, *(f"[unused{number}]" for number in range(size - len(found)))]


def _join(spelled: list[tuple[list[str], int]], found: dict[str, None], size: int) -> None:
    """Add joined pieces to ``found`` until it has ``size``, or no pair is there twice; ``spelled`` changes."""
    pairs: Counter[tuple[str, str]] = Counter()
    where: defaultdict[tuple[str, str], set[int]] = defaultdict(set)
    for number, (pieces, count) in enumerate(spelled):
        for pair in pairwise(pieces):
            pairs[pair] += count
            where[pair].add(number)
    heap = [(-count, pair) for pair, count in pairs.items()]
    heapq.heapify(heap)
    while heap and len(found) < size:
        count, pair = heapq.heappop(heap)
        if pairs[pair] < 2:
            continue
        if pairs[pair] != -count:  # others were joined since: it is looked at again in its turn
            heapq.heappush(heap, (-pairs[pair], pair))
            continue
        joined = pair[0] + pair[1].removeprefix("##")
        found[joined] = None
        grown = set()
        for number in where.pop(pair):
            pieces, times = spelled[number]
            for old in pairwise(pieces):
                pairs[old] -= times
            pieces[:] = _joined(pieces, pair, joined)
            for new in pairwise(pieces):
                pairs[new] += times
                where[new].add(number)
                if joined in new:
                    grown.add(new)
        for new in grown:
            heapq.heappush(heap, (-pairs[new], new))


def _joined(pieces: list[str], pair: tuple[str, str], joined: str) -> list[str]:
    result: list[str] = []
    at = 0
    while at < len(pieces):
        here = tuple(pieces[at : at + 2]) == pair
        result.append(joined if here else pieces[at])
        at += 1 + here
    return result


# --- encoding -----------------------------------------------------------------------------------------------------


def encode(tokens: Sequence[str], texts: Texts, length: int) -> np.ndarray:
    """The tokens and their sentences of texts: int16 or int32 (text, 2, length).

    They are the numbers of [CLS], a sentence, [SEP], and [a second one, [SEP]]; and whose token each is.  In the second
    row 1 is the first sentence, 2 the second one, 0 padding.  What is longer loses the ends of its longer sentence.  A
    vocabulary without capital letters is one of small letters: the text is brought to those, and loses its accents.
    """
    tokenizer = _tokenizer(tokens)
    tokenizer.enable_truncation(length)
    result = np.zeros((len(texts), 2, length), dtype=np.int16 if len(tokens) <= 2**15 else np.int32)
    result[:, 0] = tokens.index("[PAD]")
    for start in range(0, len(texts), CHUNK):
        chunk = [text if len(text) == 2 else text[0] for text in texts[start : start + CHUNK]]
        for row, encoding in zip(result[start : start + CHUNK], tokenizer.encode_batch_fast(chunk), strict=True):
            row[0, : len(encoding.ids)] = encoding.ids
            row[1, : len(encoding.ids)] = np.add(encoding.type_ids, 1)
    return result


def _tokenizer(tokens: Sequence[str]) -> Any:
    tokenizers = library()
    numbers = {token: number for number, token in enumerate(tokens)}
    lowercase = all(token == token.lower() for token in tokens if not token.startswith("["))
    how = {"unk_token": "[UNK]", "max_input_chars_per_word": LONGEST_WORD}
    made = tokenizers.Tokenizer(tokenizers.models.WordPiece(numbers, **how))
    made.normalizer = tokenizers.normalizers.BertNormalizer(lowercase=lowercase)
    made.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    ends = ((token, numbers[token]) for token in ("[SEP]", "[CLS]"))
    made.post_processor = tokenizers.processors.BertProcessing(*ends)
    return made
