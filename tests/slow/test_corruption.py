"""Blobs of a pipeline of the real tools, damaged: a tokenizer, tokens, a mixture, a training of two steps."""

from __future__ import annotations

from pathlib import Path

import pytest

from marin_cas.analysis.lock import lock_text
from tests.cli.conftest import Mini
from tests.cli.damage import KINDS, Sound, suffer
from tests.cli.inside import run_inside
from tests.conftest import CAMPAIGN
from tests.identity.pipeline import FUNCTIONS
from tests.identity.space import LOADS, lock

BUILD = """
raw_download(name = "docs", function = "exp/functions.py:documents", params = {"seed": 0, "count": 30})
trained_tokenizer(name = "tok", raw = ":docs", glob = "*.jsonl", vocab_size = 280)
tokenized(name = "web", raw = ":docs", glob = "*.jsonl", tokenizer = ":tok")
mixture(name = "mix", train = {":web": 1.0}, shuffle = {"io_block_size": 8})
train_lm(
    name = "model",
    model = llama(
        max_seq_len = 32, hidden_dim = 16, intermediate_dim = 32, num_layers = 1, num_heads = 2, num_kv_heads = 1
    ),
    optimizer = adam(learning_rate = 3e-3, warmup = 0.25),
    datasets = ":mix",
    batch_size = 2,
    seq_len = 32,
    num_train_steps = 2,
    z_loss_weight = 0,
    mp = "f32",
)
"""

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Sound:
    base = tmp_path_factory.mktemp("sound")
    for name in ("w", "home"):
        (base / name).mkdir()
    mini = Mini(base / "w", base / "home")
    # One for all copies, so that each program is compiled once.
    settings = f'compilation_cache = "{base / "compiled"}"\n'
    mini.write({"marin.toml": settings, "marin.lock": lock_text(lock())})
    mini.write({"exp/functions.py": FUNCTIONS, "exp/BUILD.marin": LOADS + BUILD})
    targets = ("//exp:docs", "//exp:tok", "//exp:web", "//exp:model")
    run_inside(mini, "build", *targets)
    return Sound(mini, targets, "//exp:model", ("exp/model/native", "exp/model/metrics"))


@pytest.mark.campaign
def test_a_build_ends_right_or_says_what_is_damaged(
    sound: Sound, tmp_path: Path, record_property: pytest.RecordProperty
) -> None:
    blobs = sound.blobs()
    kinds = list(KINDS)
    chosen = list(enumerate(blobs))
    if not CAMPAIGN:
        chosen = chosen[:: len(blobs) // 4][:4]
    stopped = 0
    for n, blob in chosen:
        folder = tmp_path / f"{n}"
        folder.mkdir()
        stopped += suffer(sound, folder, blob, kinds[n % len(kinds)], fresh=n % 2 == 0, again=n % 3 == 0)
    assert stopped
    record_property("faults", ("blobs of real tools", len(chosen), len(chosen), 0))
