"""Texts to token ids as Levanter makes them, without importing it: so that many processes can share the work.

Equal to Levanter's own preprocessor, and checked against it on the first documents of each run. Ids alone are asked of
the tokenizer, not the offsets that nobody reads.
"""

from __future__ import annotations

import json
import os
import re
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

from marin_cas.tools.documents import Piece
from marin_cas.worker.context import ToolError

# Levanter's: longer runs of one kind of character would cost the tokenizer quadratic time.
_LONGEST_RUN = 25_000
_LONG_RUN = re.compile(rf"\s{{{_LONGEST_RUN},}}|\S{{{_LONGEST_RUN},}}")
# What one call of the tokenizer gets.
_BATCH_DOCUMENTS, _BATCH_CHARACTERS = 256, 1_000_000


@dataclass(frozen=True, slots=True)
class Encoded:
    """The ids of some documents, one after another; `lengths` says how many each has."""

    ids: np.ndarray
    lengths: np.ndarray

    def rows(self) -> list[np.ndarray]:
        return np.split(self.ids, np.cumsum(self.lengths)[:-1])


def load(folder: Path) -> tuple[Any, int | None, int | None]:
    """The tokenizer of a folder, and the ids of its bos and eos, where it has them. ToolError when it is none."""
    from tokenizers import Tokenizer

    try:
        tokenizer: Any = Tokenizer.from_file(str(folder / "tokenizer.json"))
        config = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))
    except Exception as error:  # the library raises bare ones for a file that does not parse
        raise ToolError(f"the input `tokenizer` is not a tokenizer folder: {error}") from None
    bos, eos = (_special(config, name) for name in ("bos_token", "eos_token"))
    return (
        tokenizer,
        None if bos is None else tokenizer.token_to_id(bos),
        None if eos is None else tokenizer.token_to_id(eos),
    )


class Encoder:
    """A tokenizer folder, loaded. A document gets the folder's bos before it and its eos behind it."""

    def __init__(self, folder: Path) -> None:
        self._tokenizer, self._bos, eos = load(folder)
        # As text, so that it is encoded in the context of what stands before it.
        self._end = "" if eos is None else f" {self._tokenizer.id_to_token(eos)}"

    def encode(self, texts: Iterable[str]) -> Encoded:
        ids: list[int] = []
        lengths: list[int] = []
        batch: list[str] = []
        size = 0
        for text in texts:
            if batch and (len(batch) == _BATCH_DOCUMENTS or size + len(text) > _BATCH_CHARACTERS):
                self._add(batch, ids, lengths)
                batch, size = [], 0
            batch.append(text + self._end)
            size += len(text)
        if batch:
            self._add(batch, ids, lengths)
        return Encoded(np.asarray(ids, dtype=np.int32), np.asarray(lengths, dtype=np.int64))

    def _add(self, batch: list[str], ids: list[int], lengths: list[int]) -> None:
        parts: list[str] = []
        counts: list[int] = []
        for text in batch:
            split = _split(text)
            parts += split
            counts.append(len(split))
        encodings = iter(self._tokenizer.encode_batch_fast(parts, add_special_tokens=False))
        for count in counts:
            before = len(ids)
            if self._bos is not None:
                ids.append(self._bos)
            for _ in range(count):
                ids += next(encodings).ids
            lengths.append(len(ids) - before)


def _split(text: str) -> list[str]:
    if len(text) <= _LONGEST_RUN:
        return [text]
    parts, last = [], 0
    for match in _LONG_RUN.finditer(text):
        if match.start() > last:
            parts.append(text[last : match.start()])
        run = match.group()
        parts += [run[start : start + _LONGEST_RUN] for start in range(0, len(run), _LONGEST_RUN)]
        last = match.end()
    if last < len(text):
        parts.append(text[last:])
    return parts or [text]


def _special(config: dict[str, Any], name: str) -> str | None:
    value = config.get(name)
    return value.get("content") if isinstance(value, dict) else value


class Crew:
    """Processes that encode pieces. Without a pool there is but this one, and the tokenizer's own threads."""

    def __init__(self, encoder: Encoder, text_key: str, pool: ProcessPoolExecutor | None, ahead: int) -> None:
        self._encoder, self._text_key, self._pool, self._ahead = encoder, text_key, pool, ahead

    def encode(self, pieces: Iterable[Piece]) -> Iterator[tuple[Piece, Encoded]]:
        """Each piece with what it became, in order, `ahead` on their way at most. ToolError for a wrong document."""
        if self._pool is None:
            for piece in pieces:
                yield piece, self._encoder.encode(piece.texts(self._text_key))
            return
        under_way: deque[tuple[Piece, Future[Encoded]]] = deque()
        try:
            for piece in pieces:
                if len(under_way) == self._ahead:
                    first, future = under_way.popleft()
                    yield first, future.result()
                under_way.append((piece, self._pool.submit(_work, piece, self._text_key)))
            while under_way:
                first, future = under_way.popleft()
                yield first, future.result()
        except BrokenProcessPool:
            raise ToolError(
                "one of the processes that tokenize was killed",
                hint="perhaps the machine was out of memory: declare more `ram`, or less `cpu`",
                environment=True,
            ) from None


@contextmanager
def crew(folder: Path, text_key: str, processes: int) -> Iterator[Crew]:
    """Enter it before anything with threads is imported: the processes are forks of this one, the encoder with them."""
    encoder = Encoder(folder)
    if processes <= 1:
        yield Crew(encoder, text_key, None, 0)
        return
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    _inherited[:] = [encoder]
    with ProcessPoolExecutor(processes, get_context("fork")) as pool:
        pool.submit(os.getpid).result()  # all of them start with the first thing to do
        try:
            yield Crew(encoder, text_key, pool, 2 * processes)
        except BaseException:
            pool.shutdown(wait=True, cancel_futures=True)
            raise
        finally:
            _inherited.clear()


_inherited: list[Encoder] = []


def _work(piece: Piece, text_key: str) -> Encoded:
    return _inherited[0].encode(piece.texts(text_key))
