"""DCLM 1B/1x as Marin's documentation writes it: the same targets, with the same fingerprints, as `//exp:dclm_1b`."""

from marin_cas.api import (
    DCLM_MIXTURE_WEIGHTS,
    AdamConfig,
    ArtifactStep,
    LevanterCheckpoint,
    LlamaConfig,
    ResourceConfig,
    StepRunner,
    core_tasks,
    dclm_datasets,
    llama3_tokenizer,
    lower,
    paloma_datasets,
    train_lm,
    uncheatable_datasets,
)

SEQ_LEN = 2048
BATCH_SIZE = 256
NUM_TRAIN_TOKENS = 28.8e9
NUM_TRAIN_STEPS = int(NUM_TRAIN_TOKENS) // (BATCH_SIZE * SEQ_LEN)

llama_1b = LlamaConfig(
    max_seq_len=SEQ_LEN,
    hidden_dim=2048,
    intermediate_dim=8192,
    num_heads=16,
    num_kv_heads=16,
    num_layers=24,
)


def build(*, version: str = "2026.06.28") -> ArtifactStep[LevanterCheckpoint]:
    return train("checkpoints/dclm_1b_1x", ResourceConfig.with_tpu("v4-128"), version)


def build_gpu(*, version: str = "2026.06.28") -> ArtifactStep[LevanterCheckpoint]:
    return train("checkpoints/dclm_1b_1x_gpu", ResourceConfig.with_gpu("H100", count=8, cpu=32, ram="256g"), version)


def train(name: str, resources: ResourceConfig, version: str) -> ArtifactStep[LevanterCheckpoint]:
    data = dclm_datasets(tokenizer=llama3_tokenizer)
    validation = [
        *paloma_datasets(tokenizer=llama3_tokenizer).values(),
        *uncheatable_datasets(tokenizer=llama3_tokenizer).values(),
    ]
    return train_lm(
        name=name,
        version=version,
        model=llama_1b,
        optimizer=AdamConfig(
            learning_rate=3e-3,
            weight_decay=0.033,
            warmup=5000,
            min_lr_ratio=0.1,
        ),
        datasets={data[corpus]: DCLM_MIXTURE_WEIGHTS[corpus] for corpus in data},
        validation=validation,
        batch_size=BATCH_SIZE,
        seq_len=SEQ_LEN,
        num_train_steps=NUM_TRAIN_STEPS,
        z_loss_weight=1e-4,
        evals=core_tasks(every=10000),
        resources=resources,
        tags=["DCLM_1B_1X"],
    )


if __name__ == "__main__":
    StepRunner().run([lower(build())])
