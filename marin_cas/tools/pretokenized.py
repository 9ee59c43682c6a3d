"""A Levanter cache that somebody else made, believed only after it was looked through: form, counts, and the tokenizer.

What it is made of stays as it is; only its ledger names the tokenizer as caches made here do, by its files' digest.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from marin_cas.tools.fetching import Remote, fetch
from marin_cas.tools.hub import Hub, Repo
from marin_cas.tools.tokenize import unigram_entropy
from marin_cas.tools.tokenizer_folder import check_tokenizer_folder, tokenizer_identity
from marin_cas.worker.context import ToolContext, ToolError

REVISION = 1

LEDGER = "shard_ledger.json"
_NEEDED = (LEDGER, "input_ids/data/zarr.json", "input_ids/offsets/zarr.json")
_TYPES = {"input_ids/data": "int32", "input_ids/offsets": "int64"}
_AT_ONCE = 1 << 22
# Documents that are turned into text and back: enough to tell another tokenizer, whatever its vocabulary's size.
_SAMPLED, _SAMPLED_TOKENS, _LOOKED_AT = 32, 4096, 256


def run(ctx: ToolContext) -> None:
    check_tokenizer_folder(ctx.inputs["tokenizer"])
    split, out = ctx.params["split"], ctx.outputs["cache"]
    where = _copied(ctx, split, out) if "files" in ctx.inputs else _fetched(ctx, split, out)
    ledger = check_ledger(out / split, where)
    stats = _Check(out / split, ledger, ctx.inputs["tokenizer"], where).run(ctx)
    _write_ledger(out / split, ledger, stats)
    text = json.dumps({"split": split, **stats}, indent=1, ensure_ascii=False, sort_keys=True)
    (out / "stats.json").write_text(text + "\n", encoding="utf-8")


def _fetched(ctx: ToolContext, split: str, out: Path) -> str:
    """Puts the cache that a Hub repo holds under `out`, and says where it comes from."""
    params, hub = ctx.params, Hub()
    repo, commit = Repo(params["repo_type"], params["repo_id"]), params["commit"]
    where = f"the {repo}"
    files = {file.path: file for file in hub.files(repo, commit)}
    chosen = {name: files[path] for name, path in _of_cache(files, params["folder"], split, where).items()}
    remotes = [
        Remote(
            name, file.size, file.algorithm, file.digest, lambda offset, file=file: hub.open(repo, commit, file, offset)
        )
        for name, file in chosen.items()
    ]
    fetch(ctx, remotes, out, where, hub.patience)
    return where


def _copied(ctx: ToolContext, split: str, out: Path) -> str:
    """Puts the cache that lies in an input under `out`, and says where it comes from."""
    source, where = ctx.inputs["files"], f"`{ctx.settings['where']}`"
    files = [path.relative_to(source).as_posix() for path in sorted(source.rglob("*")) if path.is_file()]
    for name, path in _of_cache(files, "", split, where).items():
        (out / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source / path, out / name)
    return where


def _of_cache(files: Iterable[str], folder: str, split: str, where: str) -> dict[str, str]:
    """The paths of the one split's cache by their names in the output. What else lies there is left: in Marin's caches
    each shard once more."""
    root = "/".join(part for part in (folder.strip("/"), split) if part)
    files = list(files)
    found = {f"{split}/{path[len(root) + 1 :]}": path for path in files if path.startswith(f"{root}/")}
    kept = {n: f for n, f in found.items() if n == f"{split}/{LEDGER}" or n.startswith(f"{split}/input_ids/")}
    missing = [name for name in _NEEDED if f"{split}/{name}" not in kept]
    if not missing:
        return kept
    there = sorted(path.removesuffix(f"/{LEDGER}") for path in files if path.endswith(f"/{LEDGER}"))
    raise ToolError(
        f"{where} has no Levanter cache in `{root}/`: `{missing[0]}` is not there",
        hint=f"there are caches in {', '.join(f'`{name}/`' for name in there[:8])}" if there else None,
    )


def check_ledger(folder: Path, where: str) -> dict[str, Any]:
    """The ledger, when it is that of a finished, consolidated cache, and the arrays have the right types."""
    try:
        ledger = json.loads((folder / LEDGER).read_text(encoding="utf-8"))
        rows = ledger["total_num_rows"]
        if type(rows) is not int or rows < 0 or type(ledger["shard_rows"]) is not dict:
            raise ValueError("it is none of Levanter's")
    except (ValueError, KeyError, TypeError) as error:
        raise ToolError(f"the ledger of the cache in {where} cannot be read: {error}") from None
    if not rows:
        raise ToolError(f"the cache in {where} holds no documents")
    if not ledger.get("is_finished"):
        raise ToolError(f"the cache in {where} is not finished: its ledger says so")
    if ledger.get("layout", "consolidated") != "consolidated":
        raise ToolError(f"the cache in {where} is in shards that were not put together", hint="consolidate it first")
    if sum(ledger["shard_rows"].values()) != rows:
        raise ToolError(f"the ledger of the cache in {where} contradicts itself: its shards have not {rows} documents")
    for array, kind in _TYPES.items():
        try:
            meta = json.loads((folder / array / "zarr.json").read_text(encoding="utf-8"))
            found = meta["data_type"], meta["node_type"], len(meta["shape"])
        except (ValueError, KeyError, TypeError) as error:
            raise ToolError(f"`{array}/zarr.json` of the cache in {where} cannot be read: {error}") from None
        if found != (kind, "array", 1):
            raise ToolError(
                f"`{array}` of the cache in {where} is {'x'.join(map(str, found))}, and {kind} in one dimension is due"
            )
    return ledger


class _Check:
    """Looks through every token once."""

    def __init__(self, folder: Path, ledger: Mapping[str, Any], tokenizer: Path, where: str) -> None:
        from marin_cas.tools.encoder import load

        self.folder, self.ledger, self.where = folder, ledger, where
        self.tokenizer_id = tokenizer_identity(tokenizer)
        self.tokenizer, self.bos, self.eos = load(tokenizer)
        self.rows: int = ledger["total_num_rows"]
        self.said: Mapping[str, Any] = (ledger.get("metadata") or {}).get("preprocessor_metadata") or {}

    def run(self, ctx: ToolContext) -> dict[str, Any]:
        import numpy as np

        vocabulary = self.tokenizer.get_vocab_size()
        if self.said.get("vocab_size", vocabulary) != vocabulary:
            raise self._other(f"its vocabulary had {self.said['vocab_size']} tokens, and this one has {vocabulary}")
        data, offsets = (self._open(name) for name in ("data", "offsets"))
        ends = self._ends(offsets)
        tokens = int(ends[-1]) if len(ends) else 0
        said = (self.ledger.get("field_counts") or {}).get("input_ids", tokens)
        if said != tokens:
            raise ToolError(f"the cache in {self.where} has {tokens} tokens, and its ledger says {said}")
        counts = np.zeros(vocabulary, dtype=np.int64)
        for done, ids in self._slices(data, tokens):
            low, high = (int(ids.min()), int(ids.max())) if len(ids) else (0, 0)
            if low < 0 or high >= vocabulary:
                raise self._other(f"it holds the token {high if high >= vocabulary else low}")
            counts += np.bincount(ids, minlength=vocabulary)
            ctx.progress(done, tokens, "tokens")
        self._check_documents(data, ends)
        return {
            "tokenizer": self.tokenizer_id,
            "upstream_tokenizer": self.said.get("tokenizer"),
            "vocab_size": vocabulary,
            "documents": self.rows,
            "tokens": tokens,
            "unigram_entropy": unigram_entropy(counts.tolist()),
        }

    def _open(self, name: str) -> Any:
        import tensorstore as ts

        path = str((self.folder / "input_ids" / name).absolute())
        try:
            return ts.open({"driver": "zarr3", "kvstore": {"driver": "file", "path": path}}, read=True).result()
        except ValueError as error:
            raise ToolError(f"`input_ids/{name}` of the cache in {self.where} cannot be opened: {error}") from None

    def _read(self, array: Any, start: int, end: int) -> Any:
        try:
            return array[start:end].read().result()
        except (ValueError, IndexError) as error:
            raise ToolError(f"the cache in {self.where} is damaged: {str(error).splitlines()[0]}") from None

    def _ends(self, offsets: Any) -> Any:
        import numpy as np

        held = self._read(offsets, 0, self.rows + 1)
        if int(held[0]) != self.rows:
            raise ToolError(f"the cache in {self.where} has {int(held[0])} documents, and its ledger says {self.rows}")
        ends = held[1:]
        if len(ends) and (int(ends[0]) < 0 or bool(np.any(np.diff(ends) < 0))):
            raise ToolError(f"the cache in {self.where} is damaged: its documents do not follow one another")
        return ends

    def _slices(self, data: Any, tokens: int) -> Iterator[tuple[int, Any]]:
        for start in range(0, tokens, _AT_ONCE):
            end = min(start + _AT_ONCE, tokens)
            yield end, self._read(data, start, end)

    def _check_documents(self, data: Any, ends: Any) -> None:
        """Whether documents come back the same from text, and begin and end as the ledger says."""
        same = looked = 0
        step = max(1, self.rows // _LOOKED_AT)
        for row in range(0, self.rows, step):
            start, end = int(ends[row - 1]) if row else 0, int(ends[row])
            if not 0 < end - start <= _SAMPLED_TOKENS:
                continue
            ids = self._read(data, start, end).tolist()
            for what, first, due in (("append_bos", ids[0], self.bos), ("append_eos", ids[-1], self.eos)):
                if self.said.get(what) and first != due:
                    raise self._other(f"its ledger says `{what}`, and document {row} has {first} there, not {due}")
            text = self.tokenizer.decode(ids, skip_special_tokens=False)
            same += self.tokenizer.encode(text, add_special_tokens=False).ids == ids
            looked += 1
            if looked == _SAMPLED:
                break
        if looked and same * 2 < looked:
            raise self._other(f"of {looked} documents {looked - same} become other tokens when encoded again")

    def _other(self, why: str) -> ToolError:
        return ToolError(
            f"the cache in {self.where} was not made with this tokenizer: {why}",
            hint="give the tokenizer that it was made with"
            + (f": its ledger names `{self.said['tokenizer']}`" if self.said.get("tokenizer") else ""),
        )


def _write_ledger(folder: Path, ledger: Mapping[str, Any], stats: Mapping[str, Any]) -> None:
    metadata = ledger.get("metadata") or {}
    said = {**(metadata.get("preprocessor_metadata") or {}), "tokenizer": stats["tokenizer"]}
    whole = {
        **ledger,
        "field_counts": {"input_ids": stats["tokens"]},
        "metadata": {**metadata, "preprocessor_metadata": {**said, "vocab_size": stats["vocab_size"]}},
    }
    (folder / LEDGER).write_text(json.dumps(whole), encoding="utf-8")
