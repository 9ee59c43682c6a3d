"""The committed schema is what the installed Levanter says, and expanded configs become the objects they describe."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.metadata import version
from typing import Any

import pytest

from marin_cas.analysis.lock import Lock
from marin_cas.analysis.schema import SCHEMAS, expand
from marin_cas.tools import levanter_schema
from tests.slow.training import ROOT

pytestmark = pytest.mark.slow

LOCK = Lock({"marin-levanter": version("marin-levanter")})
MODEL, OPTIMIZER, TRAINER = levanter_schema.MODELS, levanter_schema.OPTIMIZERS, levanter_schema.TRAINER


@pytest.fixture(scope="module")
def generated() -> dict[str, Any]:
    """What the generator says in a process of its own: what else a process imported registers types, too."""
    program = "import json; from marin_cas.tools import schema; print(json.dumps(schema.generate()))"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


def test_the_committed_schema_is_what_the_generator_writes(generated: dict[str, Any]) -> None:
    committed = SCHEMAS / f"levanter-{version('marin-levanter')}.json"
    assert json.loads(committed.read_text()) == generated


def expanded(name: str, fields: dict[str, Any]) -> dict[str, Any]:
    return expand(name, fields, lock=LOCK, where=None, what=name)


def literals() -> list[tuple[str, dict[str, Any]]]:
    roots = json.loads((SCHEMAS / f"levanter-{version('marin-levanter')}.json").read_text())["roots"]
    found: list[tuple[str, dict[str, Any]]] = [
        (name, {"type": choice}) for name in (MODEL, OPTIMIZER) for choice in roots[name]["choices"]
    ]
    llama = {"type": "llama", "hidden_dim": 64, "num_heads": 4, "num_kv_heads": 2}
    found += [(MODEL, llama | {"gradient_checkpointing": value}) for value in (True, False, "offload", "nested")]
    found += [(MODEL, llama | {"gradient_checkpointing": {"save_block_internals": ["x"], "save_carries": "offload"}})]
    found += [(MODEL, llama | {"rope": {"type": kind, "theta": 500000}}) for kind in ("default", "llama3", "yarn")]
    found += [(MODEL, llama | {"attn_backend": "VANILLA", "activation_function": "gelu_new", "head_dim": 8})]
    schedules = ["constant", {"type": "cosine", "exponent": 2}, {"type": "power", "batch_size": 4, "seq_length": 8}]
    found += [(OPTIMIZER, {"lr_schedule": schedule}) for schedule in schedules]
    found += [(OPTIMIZER, {"skip_bad_steps": value}) for value in (True, False, 7, {"sigma_factor": 3})]
    found += [(OPTIMIZER, {"cycle_length": value}) for value in (None, 0.25, 20, [5, 5])]
    found += [(OPTIMIZER, {"warmup": 20, "weight_decay_modules": ["a"], "clip_update_norm": {"sigma_factor": 2}})]
    found += [(OPTIMIZER, {"type": "muon", "coefficient_type": "aol", "adam_weight_decay": 1})]
    found += [(OPTIMIZER, {"type": "kron", "preconditioner_sharding": ["a", None]})]
    return [*found, (TRAINER, {}), (TRAINER, {"model_averaging": {"type": "ema", "beta": 0.5}, "crash_on_nan": False})]


@pytest.mark.parametrize(("name", "fields"), literals(), ids=lambda value: str(value)[:60])
def test_what_is_built_has_every_value_that_the_key_has(
    generated: dict[str, Any], name: str, fields: dict[str, Any]
) -> None:
    config = expanded(name, fields)
    built = levanter_schema.build(json.loads(json.dumps(config)))
    for field, hint in levanter_schema.field_hints(type(built)).items():
        if field in config and field != "layer_types":  # filled in by Olmo3 itself
            assert levanter_schema.encode(getattr(built, field), hint) == config[field], field


def test_every_supported_schedule_and_default_optimizer_can_be_laid_out(generated: dict[str, Any]) -> None:
    for choice in generated["roots"]["levanter.optim.config.LrSchedule"]["choices"]:
        schedule = {"type": choice} | ({"batch_size": 4, "seq_length": 8} if choice == "power" else {})
        levanter_schema.build(expanded(OPTIMIZER, {"lr_schedule": schedule, "warmup": 2})).lr_scheduler(20)
