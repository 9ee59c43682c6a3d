"""DCLM 7B/1x on four slices: the same targets, with the same fingerprints, as `//exp:dclm_7b`."""

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
BATCH_SIZE = 2048
NUM_TRAIN_TOKENS = 140e9
NUM_TRAIN_STEPS = int(NUM_TRAIN_TOKENS) // (BATCH_SIZE * SEQ_LEN)

llama_7b = LlamaConfig(
    max_seq_len=SEQ_LEN,
    hidden_dim=4096,
    intermediate_dim=11008,
    num_heads=32,
    num_kv_heads=32,
    num_layers=32,
)


def build(*, version: str = "2026.06.28") -> ArtifactStep[LevanterCheckpoint]:
    data = dclm_datasets(tokenizer=llama3_tokenizer)
    validation = [
        *paloma_datasets(tokenizer=llama3_tokenizer).values(),
        *uncheatable_datasets(tokenizer=llama3_tokenizer).values(),
    ]
    return train_lm(
        name="checkpoints/dclm_7b_1x_how_to",
        version=version,
        model=llama_7b,
        optimizer=AdamConfig(
            learning_rate=2e-3,
            weight_decay=0.05,
            warmup=5000,
            min_lr_ratio=0.1,
        ),
        datasets={data[corpus]: DCLM_MIXTURE_WEIGHTS[corpus] for corpus in data},
        validation=validation,
        batch_size=BATCH_SIZE,
        seq_len=SEQ_LEN,
        num_train_steps=NUM_TRAIN_STEPS,
        z_loss_weight=5e-6,
        evals=core_tasks(every=10000),
        resources=ResourceConfig.with_tpu("v4-128", slice_count=4),
        run_id="dclm_7b_1x_how_to",
        tags=["HOWTOS", "DCLM_7B_1X"],
    )


if __name__ == "__main__":
    StepRunner().run([lower(build())])
