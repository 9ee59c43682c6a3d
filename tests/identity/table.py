"""For every rule, one other value for each of its attributes: those that bear identity, and those that do not.

A rule or an attribute without an entry here fails the tests. Values are Starlark text, for a package that holds
`pipeline.PIPELINE`; each is compared with the `base` of its rule.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tests.identity.pipeline import COMMIT, FUNCTION, LLAMA, TRAIN, call
from tests.identity.space import Attrs, Declared

SECRET = "IDENTITY_TEST_TOKEN"


@dataclass(frozen=True, slots=True)
class Other:
    """Another value of an attribute. `over` is put over the rule's base on both sides of the comparison; where the
    attribute only goes along with another one, `along` changes with it.

    `seen_by` is the name of a consumer (see `CONSUMERS`) whose key must change, where the rule's own does not.
    """

    value: str
    over: Attrs = field(default_factory=dict)
    along: Attrs = field(default_factory=dict)
    seen_by: str | None = None


@dataclass(frozen=True, slots=True)
class Case:
    """One rule. `free` are the attributes that bear no identity: a changed value leaves every key as it is.

    So does one of `placement`, which says how the devices are used: with another order of sums come other bits, so
    what it leaves equal is compared to a tolerance (tests/slow/test_train_lm_more.py).
    """

    base: Attrs
    identity: Mapping[str, Other]
    free: Mapping[str, Other]
    seen_by: str | None = None  # for a rule that runs nothing
    placement: Mapping[str, Other] = field(default_factory=dict)
    further: Mapping[str, Other] = field(default_factory=dict)  # bears identity by asking for further actions


# Targets that take the compared one in, by name; `{}` is its label.
CONSUMERS: Mapping[str, tuple[str, Attrs]] = {
    "train": ("train_lm", {**TRAIN, "datasets": '"{}"'}),
    "tokenize": ("tokenized", {"raw": '":docs"', "glob": '"*.jsonl"', "tokenizer": '"{}"', "component": '"c"'}),
}


def implicit(version: Other | None = None) -> dict[str, Other]:
    """What every rule has and no key holds. A `version` is in the keys of sampled actions only."""
    return {
        "tags": Other('["red", "blue"]'),
        "artifact": Other('"renamed/{name}"'),
        "expected_fingerprint": Other('""'),
        "resources": Other('cpu(cpu = 2, ram = "3g", disk = "9g", preemptible = False, regions = ["mars"])'),
        "secrets": Other(f'["{SECRET}"]'),
        **({"version": version} if version else {}),
    }


EXACT = implicit(Other('"2026.01.31"'))
SAMPLED = implicit()

_FUNCTION: dict[str, Other] = {
    "function": Other(FUNCTION.format("more_documents")),
    "params": Other('{"seed": 0, "count": 3, "more": None}'),
    "toolchain": Other('["python", "click"]'),
    "code": Other('"declared"', along={"revision": "1"}),
    "revision": Other("2", over={"code": '"declared"', "revision": "1"}),
}
_SOURCE: dict[str, Other] = {
    "raw": Other('":copied"', over={"raw": '":docs"', "glob": '"*.jsonl"', "paths": "[]"}),
    "glob": Other('"**/*.jsonl"', over={"raw": '":docs"', "glob": '"*.jsonl"', "paths": "[]"}),
    "paths": Other('["notes.jsonl", "functions.py"]'),
    "text_key": Other('"title"'),
}
_PIN = Other('"/pinned"')
_CACHE = {"kind": '"tokenized"', "tokenizer": '":tok"', "component": '"c"'}
_HUB = {"paths": "[]", "source": f'"me/words@{COMMIT}"'}
_DOCUMENTS = {"function": FUNCTION.format("documents"), "params": '{"seed": 0, "count": 3}'}

_SCORED = {"evals": 'eval_suite(["piqa"], 5, data = {"piqa": ":questions"})'}
_LIVE = {"evals": 'eval_suite(["piqa"], 5)', "live_evals": "True", "live_data": '{"piqa": ":questions"}'}

CASES: Mapping[str, Case] = {
    "raw_download": Case(
        _DOCUMENTS,
        {
            **_FUNCTION,
            "urls": Other(
                '["file:///there/b.txt"]',
                over={"function": '""', "params": "{}", "urls": '["file:///there/a.txt"]'},
            ),
            "pin": _PIN,
        },
        EXACT,
    ),
    "hf_download": Case(
        {"hf_id": '"me/words"', "revision": f'"{COMMIT}"', "urls_glob": '["*.jsonl"]'},
        {
            "hf_id": Other('"me/others"'),
            "revision": Other(f'"{COMMIT[::-1]}"'),
            "repo_type": Other('"model"'),
            "urls_glob": Other('["*.jsonl", "*.txt"]'),
            "pin": _PIN,
        },
        EXACT,
    ),
    "adopted": Case(
        {"source": '"file:///there/"'},
        {
            "source": Other('"file:///elsewhere/"'),
            "kind": Other('"tokenized"', along={"tokenizer": '":tok"'}),
            "tokenizer": Other('":other_tok"', over=_CACHE),
            "validation": Other("True", over=_CACHE),
            "component": Other('"d"', over=_CACHE, seen_by="train"),
        },
        EXACT,
    ),
    "py_action": Case(
        {**_DOCUMENTS, "inputs": '{"docs": "notes.jsonl"}'},
        {**_FUNCTION, "inputs": Other('{"documents": "notes.jsonl"}')},
        EXACT,
    ),
    "trained_tokenizer": Case(
        {"paths": '["notes.jsonl"]', "vocab_size": "280"},
        {
            **_SOURCE,
            "vocab_size": Other("281"),
            "min_frequency": Other("3"),
            "eos": Other('"<|end|>"'),
            "bos": Other('"<|begin|>"'),
            "special_tokens": Other('["<|turn|>"]'),
        },
        EXACT,
    ),
    "tokenizer": Case({"files": '":tok"'}, {"files": Other('":docs"')}, EXACT, seen_by="tokenize"),
    "tokenized": Case(
        {"paths": '["notes.jsonl"]', "tokenizer": '":tok"', "component": '"c"'},
        {
            **_SOURCE,
            "tokenizer": Other('":other_tok"'),
            "validation": Other("True"),
            "pin": _PIN,
            "sample_count": Other("2"),
            "component": Other('"d"', seen_by="train"),
            "source": Other(f'"me/others@{COMMIT}"', over=_HUB),
            "subset": Other('"small"', over=_HUB),
            "split": Other('"more"', over=_HUB),
        },
        {**EXACT, "allow_test_in_train": Other("True")},
    ),
    "pretokenized": Case(
        {"repo_id": '"me/cache"', "revision": f'"{COMMIT}"', "tokenizer": '":tok"', "component": '"c"'},
        {
            "repo_id": Other('"me/others"'),
            "revision": Other(f'"{COMMIT[::-1]}"'),
            "repo_type": Other('"model"'),
            "folder": Other('"deeper"'),
            "pin": _PIN,
            "tokenizer": Other('":other_tok"'),
            "validation": Other("True"),
            "component": Other('"d"', seen_by="train"),
        },
        EXACT,
    ),
    "mixture": Case(
        {"train": '{":web": 0.7, ":code": 0.3}', "validation": '[":held"]'},
        {
            "train": Other('{":web": 0.7, ":code": 0.4}'),
            "validation": Other('[":held", ":held_too"]'),
            "shuffle": Other('{"window_blocks": 256}'),
            "max_train_batches": Other('{":web": 1}'),
            "mixture_block_size": Other("16"),
            "stop_strategy": Other('"all_exhausted"'),
        },
        EXACT,
        seen_by="train",
    ),
    "train_lm": Case(
        TRAIN,
        {
            "model": Other(call("llama", **LLAMA, tie_word_embeddings="True")),
            "optimizer": Other(call("adam", learning_rate="3.1e-3", warmup="0.25")),
            "trainer": Other('{"per_device_parallelism": 1}'),
            "datasets": Other('":web"'),
            "batch_size": Other("4"),
            "seq_len": Other("16"),
            "num_train_steps": Other("9"),
            "z_loss_weight": Other("1e-4"),
            "mp": Other('"p=f32,c=bf16"'),
            "seed": Other("1"),
            "data_seed": Other("1"),
            "nproc": Other("2"),
            "export_every": Other("4"),
            "init_from": Other('":model"'),
            "init_weights_only": Other("True", over={"init_from": '":model"'}),
            "validation": Other('[":held_too"]'),
            "env_vars": Other('{"XLA_FLAGS": "--xla_cpu_enable_fast_math=true"}'),
            "live_evals": Other("True", over=_SCORED),
            "live_data": Other('{"piqa": ":copied"}', over=_LIVE),
            "live_task_files": Other(
                '["task.yaml", "other_task.yaml"]', over=_LIVE | {"live_task_files": '["task.yaml"]'}
            ),
            "version": Other('"2026.01.31"'),
        },
        {
            **SAMPLED,
            "evals": Other('eval_suite(["piqa"], 5)'),
            "wandb_project": Other('"another"'),
            "wandb_group": Other('"group"'),
            "run_id": Other('"run"'),
            "steps_per_eval": Other("3"),
            "max_eval_batches": Other("1"),
            "checkpoint_minutes": Other("0.0"),
            "checkpoint_every_steps": Other("2"),
        },
        placement={"tensor_parallel_size": Other("2")},
    ),
    "lm_eval": Case(
        {
            "checkpoint": '":model"',
            "tasks": '["goes_on"]',
            "task_files": '["task.yaml"]',
            "data": '{"questions": ":questions"}',
        },
        {
            "checkpoint": Other('":other_model"'),
            "tasks": Other('["goes_on", "goes_elsewhere"]'),
            "task_files": Other('["task.yaml", "other_task.yaml"]'),
            "data": Other('{"questions": ":copied"}'),
            "num_fewshot": Other("2"),
            "limit": Other("3"),
            "batch_size": Other("8"),
            "max_seq_len": Other("16"),
            "mp": Other('"bf16"'),
            "nproc": Other("2"),
            "apply_chat_template": Other("True"),
            "max_gen_toks": Other("16"),
            "backend": Other('"vllm"'),
            "engine_kwargs": Other('{"seed": 1}', over={"backend": '"vllm"'}),
            "discover_latest_checkpoint": Other("False"),
            "version": Other('"2026.01.31"'),
        },
        SAMPLED,
        further={"every": Other("5")},
    ),
}

# Targets that the values above name, besides the pipeline's.
SUPPORT = (
    Declared("other_tok", "trained_tokenizer", {"paths": '["notes.jsonl"]', "vocab_size": "290"}),
    Declared(
        "held_too",
        "tokenized",
        {"raw": '":others"', "glob": '"*.jsonl"', "tokenizer": '":tok"', "validation": "True", "sample_count": "9"}
        | {"version": '"2026.01.30"'},
    ),
    Declared("other_model", "train_lm", {**TRAIN, "seed": "7"}),
    Declared(
        "mix_too",
        "mixture",
        {
            "train": '{":web": 0.7, ":code": 0.3}',
            "validation": '[":held", ":held_too"]',
            "shuffle": '{"io_block_size": 8}',
        },
    ),
)

# Two ways to write one thing: no key may tell them apart. (rule, the one, the other; over its base)
SPELLINGS: tuple[tuple[str, Attrs, Attrs], ...] = (
    ("mixture", {"train": '{":web": 0.7, ":code": 0.3}'}, {"train": '{":code": 0.3, ":web": 0.7}'}),
    ("mixture", {"validation": '[":held", ":held_too"]'}, {"validation": '[":held_too", ":held"]'}),
    ("mixture", {"train": '{":web": 1, ":code": 2}'}, {"train": '{"//exp:web": 1.0, "code": 2.0}'}),
    ("mixture", {"shuffle": '{"io_block_size": 256}'}, {"shuffle": "{}"}),
    ("raw_download", {"params": '{"seed": 0, "count": 3}'}, {"params": '{"count": 3, "seed": 0}'}),
    ("raw_download", {"toolchain": '["python", "click"]'}, {"toolchain": '["click", "python"]'}),
    (
        "py_action",
        {"inputs": '{"a": "notes.jsonl", "b": ":docs"}'},
        {"inputs": '{"b": ":docs", "a": "//exp:notes.jsonl"}'},
    ),
    ("tokenized", {"paths": '["notes.jsonl", "task.yaml"]'}, {"paths": '["task.yaml"] + glob(["notes.*"])'}),
    ("tokenized", {"tokenizer": '":tok"'}, {"tokenizer": '":same_tok"'}),
    ("tokenized", _HUB, {**_HUB, "split": '"train"'}),
    ("tokenized", {"tokenizer": f'"me/llama@{COMMIT}"'}, {"tokenizer": f'"me/llama@{COMMIT.upper()}"'}),
    ("tokenizer", {"files": '"me/llama"'}, {"files": '"me/llama@main"'}),
    ("hf_download", {"urls_glob": '["*.jsonl", "*.txt"]'}, {"urls_glob": '["*.txt", "*.jsonl", "*.txt"]'}),
    ("hf_download", {}, {"revision": f'"{COMMIT.upper()}"', "repo_type": '"dataset"'}),
    ("train_lm", {}, {"seed": "0", "nproc": "1", "trainer": "{}"}),
    ("train_lm", {"z_loss_weight": "1"}, {"z_loss_weight": "1.0"}),
    ("train_lm", {"datasets": '":web"'}, {"datasets": '{"//exp:web": 1}'}),
    ("train_lm", {"datasets": '":mix"', "validation": '[":held_too"]'}, {"datasets": '":mix_too"'}),
    ("train_lm", {"env_vars": "{}"}, {"env_vars": '{"WANDB_ENTITY": "us", "TPU_LOG_DIR": "logs"}'}),
    ("mixture", {"stop_strategy": '"restart"', "mixture_block_size": "2048", "max_train_batches": "{}"}, {}),
    ("train_lm", {"mp": '"p=f32,c=bf16"'}, {"mp": '"compute=bfloat16,params=float32,output=bfloat16"'}),
    (
        "train_lm",
        {"optimizer": call("adam", learning_rate="1e-3")},
        {"optimizer": '{"learning_rate": 0.001, "type": "adam"}'},
    ),
    ("train_lm", {"model": call("llama", **LLAMA)}, {"model": call("llama", **LLAMA, rope='{"type": "default"}')}),
    ("lm_eval", {"tasks": '["goes_on"]'}, {"tasks": '[{"name": "goes_on"}]'}),
    ("lm_eval", {"mp": '"f32"'}, {"mp": '"p=f32"'}),
)


def declared(rule: str, name: str, attrs: Attrs) -> Declared:
    return Declared(name, rule, {attr: value.replace("{name}", name) for attr, value in attrs.items()})


def consumer(kind: str, of: str) -> Declared:
    rule, attrs = CONSUMERS[kind]
    return Declared(f"{of}.{kind}", rule, {attr: value.replace("{}", f":{of}") for attr, value in attrs.items()})
