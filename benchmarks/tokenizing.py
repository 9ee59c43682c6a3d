"""Tokenizing 50 MB of JSON lines, against bare `tokenizers.encode_batch` and against Levanter's own builder on Zephyr.

From the first document to the closed cache, imports excluded; each run in a fresh process, interleaved, median of 5.
The bare run only encodes texts that lie in memory. Then memory: the peak for the corpus twice over, beside once.
"""

from __future__ import annotations

import json
import os
import resource
import statistics
import subprocess
import sys
import sysconfig
import time
from pathlib import Path
from typing import Any

from measure import PYTHON, ROOT, at_least, folder

BYTES, SAMPLE = 50_000_000, 6_000_000
VOCABULARY = 16_000
TIMES = int(os.environ.get("MARIN_BENCH_TIMES", "5"))
WHOS = ("ours", "bare", "zephyr")


def cpu() -> float:
    """CPU seconds so far, children included once they have ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


def write_corpus(path: Path, size: int) -> None:
    """The Python files of this environment, in pieces of 3,000 characters."""
    roots = [Path(sysconfig.get_paths()[name]) for name in ("stdlib", "purelib")]
    files = (file for root in roots for file in sorted(root.rglob("*.py")))
    with path.open("w", encoding="utf-8") as out:
        written = 0
        for file in files:
            try:
                text = file.read_text(encoding="utf-8")
            except (UnicodeDecodeError, OSError):
                continue
            for start in range(0, len(text), 3000):
                written += out.write(json.dumps({"id": start, "text": text[start : start + 3000]}) + "\n")
            if written >= size:
                return
    sys.exit(f"there are only {written} bytes of Python files here, not {size}")


def context(params: dict[str, Any], settings: dict[str, Any], inputs: dict[str, Path], name: str, out: Path) -> Any:
    from marin_cas.worker.context import ToolContext

    out.mkdir(parents=True)
    return ToolContext(params, settings, inputs, {name: out}, out.parent)


def train(documents: Path, out: Path) -> None:
    from marin_cas.tools import trained_tokenizer

    params = {"glob": "*.jsonl", "text_key": "text", "min_frequency": 2, "eos": "<|end|>", "bos": ""}
    params |= {"special_tokens": [], "vocab_size": VOCABULARY}
    trained_tokenizer.run(context(params, {}, {"documents": documents}, "tokenizer", out))


def ours(documents: Path, tokenizer: Path, out: Path) -> tuple[int, float, float]:
    import levanter.data.text.formats
    import levanter.store.cache  # noqa: F401

    from marin_cas.tools import tokenize

    params = {"glob": "*.jsonl", "text_key": "text", "split": "train", "sample_count": None}
    made = context(params, {"processes": 1}, {"documents": documents, "tokenizer": tokenizer}, "cache", out)
    began, spent = time.perf_counter(), cpu()
    tokenize.run(made)
    took = time.perf_counter() - began, cpu() - spent
    return json.loads((out / "stats.json").read_text())["tokens"], *took


def bare(documents: Path, tokenizer: Path, out: Path) -> tuple[int, float, float]:
    from tokenizers import Tokenizer

    loaded = Tokenizer.from_file(str(tokenizer / "tokenizer.json"))
    texts = [json.loads(line)["text"] for file in documents.iterdir() for line in file.open(encoding="utf-8")]
    began, spent, tokens = time.perf_counter(), cpu(), 0
    for start in range(0, len(texts), 256):
        tokens += sum(len(each.ids) for each in loaded.encode_batch(texts[start : start + 256]))
    return tokens, time.perf_counter() - began, cpu() - spent


def zephyr(documents: Path, tokenizer: Path, out: Path) -> tuple[int, float, float]:
    from levanter.data.sharded_datasource import UrlDataSource
    from levanter.data.text.formats import TextLmDatasetFormat
    from levanter.store.cache import build_or_load_cache
    from levanter.tokenizers import load_tokenizer

    processor = TextLmDatasetFormat().build_preprocessor(load_tokenizer(str(tokenizer)))
    source = UrlDataSource([str(file) for file in documents.iterdir()], columns=["text"])
    began, spent = time.perf_counter(), cpu()
    cache = build_or_load_cache(str(out), source, processor)
    took = time.perf_counter() - began, cpu() - spent
    return cache.ledger.field_counts["input_ids"], *took


def measured(who: str, documents: Path, tokenizer: Path, place: Path) -> dict[str, float] | None:
    """Tokens, wall and CPU seconds, and peak memory of a fresh process; None when it cannot run here."""
    env = {**os.environ, "PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu", "HF_HUB_OFFLINE": "1"}
    out = place / "out" / "cache"
    command = [PYTHON, __file__, who, str(documents), str(tokenizer), str(out)]
    done = subprocess.run(command, env=env, capture_output=True, text=True)
    subprocess.run(["rm", "-rf", str(place / "out")], check=True)
    if done.returncode:
        print(f"  {who}: ABSENT ({done.stderr.strip().splitlines()[-1][:100]})", flush=True)
        return None
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    with folder() as place:
        for name, size in (("sample", SAMPLE), ("once", BYTES)):
            (place / name).mkdir()
            write_corpus(place / name / "a.jsonl", size)
        (place / "twice").mkdir()
        for name in "ab":
            os.link(place / "once" / "a.jsonl", place / "twice" / f"{name}.jsonl")
        tokenizer = place / "tokenizer" / "files"
        env = {**os.environ, "PYTHONPATH": str(ROOT)}
        subprocess.run([PYTHON, __file__, "train", str(place / "sample"), str(tokenizer)], env=env, check=True)
        print(f"{BYTES / 1e6:.0f} MB of JSON lines, a vocabulary of {VOCABULARY}, median of {TIMES}", flush=True)
        runs: dict[str, list[dict[str, float]]] = {who: [] for who in WHOS}
        for _ in range(TIMES):
            for who in list(runs):
                if (run := measured(who, place / "once", tokenizer, place)) is None:
                    del runs[who]
                else:
                    runs[who].append(run)
        speed = {who: statistics.median(r["tokens"] / r["cpu"] for r in each) for who, each in runs.items()}
        for who, each in runs.items():
            wall = statistics.median(run["wall"] for run in each)
            print(f"  {who:<7} {speed[who]:10,.0f} tokens a CPU-second, {wall:7.1f} s wall", flush=True)
        at_least("ours over bare encode_batch, a CPU-second", speed["ours"] / speed["bare"], 0.95)
        if "zephyr" in speed:
            at_least("ours over Levanter's builder on Zephyr, a CPU-second", speed["ours"] / speed["zephyr"], 1)
        once, twice = (measured("ours", place / name, tokenizer, place) for name in ("once", "twice"))
        if once and twice:
            print(f"  peak memory: {once['rss']:.0f} MB, and for twice the input {twice['rss']:.0f} MB", flush=True)


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["train", documents, out]:
            train(Path(documents), Path(out))
        case [who, documents, tokenizer, out]:
            tokens, wall, spent = {"ours": ours, "bare": bare, "zephyr": zephyr}[who](
                Path(documents), Path(tokenizer), Path(out)
            )
            rss = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
            print(json.dumps({"tokens": tokens, "wall": wall, "cpu": spent, "rss": rss}))
        case _:
            main()
