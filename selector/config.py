"""The configuration of a pair, as dataclasses: one YAML file serves every verb.

This module imports neither torch nor transformers, so that `ddte VERB --help` answers at once.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

PAPER_SETTINGS: tuple[tuple[float, float], ...] = (
    (0.2, 1.0), (0.4, 1.0), (0.6, 1.0), (0.8, 1.0), (1.0, 1.0), (1.2, 1.0), (1.0, 0.9), (1.0, 0.99),
)  # fmt: skip
EMBEDDED_TARGET = "embedded"


@dataclass(frozen=True)
class PairConfig:
    """The two models.

    Attributes:
        target: `embedded` (SmolLM2-135M-Instruct from the installed wheel), a folder, or a hub id.
        draft: a draft folder made by `ddte distill`, a model folder, or a hub id.
        dtype: `auto` takes bfloat16 where the device multiplies it natively, else float32.
        device: a torch device, `auto`, or `map`, which spreads the target over all devices with accelerate.
        threads: torch threads on CPU; 0 keeps torch's choice.
    """

    target: str = EMBEDDED_TARGET
    draft: str = "checkpoints/smollm2-135m/draft"
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    device: str = "auto"
    threads: int = 0


@dataclass(frozen=True)
class ActionSpaceConfig:
    """Largest number of branches `K`, trunk length `L1` and branch length `L2` of an expansion."""

    num_branches: int = 4
    trunk_length: int = 8
    branch_length: int = 8

    @property
    def limits(self) -> tuple[int, int, int]:
        """`(K, L1, L2)`."""
        return self.num_branches, self.trunk_length, self.branch_length


@dataclass(frozen=True)
class GenerateConfig:
    """Data generation.

    Attributes:
        prompts: `builtin`, paths of JSONL files, or hub sets, `math500` or pinned `math500@REVISION`.
        prompts_per_task: at most this many prompts of each task; 0 takes all.
        settings: (temperature, top-p) pairs; prompt `i` of a task is sampled at setting `i + j` for each
            `j < settings_per_prompt`, so that tasks and settings cross.
        settings_per_prompt: trajectories a prompt.
        draft_warp: `same` as the target, or the draft's own (temperature, top-p).
        max_new_tokens: length of a trajectory.
        root_every: one root every so many tokens.
        num_samples: super-trees a root (`s`); an even number, since the oracle is chosen on one half.
        verifiers: which verifiers are labelled.
        chat_template: apply the tokenizer's chat template; without it a prompt's turns are joined by blank lines.
        system_prompt: a system turn before every prompt that has none; empty for none.
        seed: of everything that is drawn.
    """

    prompts: list[str] = field(default_factory=lambda: ["builtin"])
    prompts_per_task: int = 0
    settings: list[tuple[float, float]] = field(default_factory=lambda: list(PAPER_SETTINGS))
    settings_per_prompt: int = 1
    draft_warp: Literal["same"] | tuple[float, float] = "same"
    max_new_tokens: int = 128
    root_every: int = 16
    num_samples: int = 4
    verifiers: list[str] = field(default_factory=lambda: ["nss", "naive", "specinfer", "traversal"])
    chat_template: bool = True
    system_prompt: str = ""
    seed: int = 0


@dataclass(frozen=True)
class TrainConfig:
    """Training of one selector a verifier.

    Attributes:
        verifiers: selectors to train; each has a policy head and a regressor head.
        hidden_sizes, dropout: of the MLP body.
        components: principal components of each hidden state.
        inputs: `all` features, or those of the `root` alone, which are cheaper where a step takes milliseconds.
        penalty, worst_fraction: `lambda` and `alpha` of the paper's objective.
        regressor_weight: weight of the regressor's loss beside the policy's.
        validation_share, test_share: shares of the prompts, never of the roots; `split_seed` draws them, so that runs
            of several `seed`s can be evaluated together.
        patience: epochs without a better realised throughput before stopping.
        loggers: `csv` always; `wandb` (offline unless WANDB_MODE says otherwise), `tensorboard`.
        accelerator, devices, strategy, precision: Lightning's; `ddp` with two devices trains in two processes, each
            with batches of `batch_size`.
    """

    verifiers: list[str] = field(default_factory=lambda: ["specinfer", "traversal"])
    hidden_sizes: tuple[int, int] = (512, 32)
    components: int = 16
    inputs: Literal["all", "root"] = "all"
    dropout: float = 0.2
    learning_rate: float = 3e-4
    weight_decay: float = 0.01
    batch_size: int = 64
    max_epochs: int = 40
    patience: int = 8
    penalty: float = 1.0
    worst_fraction: float = 0.1
    regressor_weight: float = 1.0
    validation_share: float = 0.2
    test_share: float = 0.2
    split_seed: int = 0
    loggers: list[str] = field(default_factory=lambda: ["csv"])
    accelerator: str = "auto"
    devices: int = 1
    strategy: str = "auto"
    precision: Literal["32-true", "bf16-mixed", "16-mixed"] = "32-true"
    seed: int = 0


@dataclass(frozen=True)
class EvaluateConfig:
    """Evaluation: bootstrap resamples over prompts, and the level of the intervals.

    With `study` the report says what a linear model learns from which inputs and from how much data.
    """

    bootstrap: int = 1000
    level: float = 0.95
    study: bool = True
    seed: int = 0


@dataclass(frozen=True)
class DistillConfig:
    """Distillation of an early-exit draft.

    Attributes:
        layers: indices of the target's layers that the draft starts from.
        head_tokens: size of the draft's head (the target's most frequent tokens); 0 keeps the whole head.
        token_budget: sampled training tokens.
        holdout_tokens: at least so many sampled tokens (whole batches) are kept from training, to measure on.
        top_tokens: how many of the target's token probabilities are stored at each position.
        total_variation_epochs: last epochs, which maximise the acceptance rate itself instead of the KL fit.
    """

    layers: list[int] = field(default_factory=lambda: [0, 29])
    head_tokens: int = 8192
    token_budget: int = 1_000_000
    holdout_tokens: int = 20_000
    sampling_batch: int = 256
    new_tokens: int = 256
    top_tokens: int = 64
    epochs: int = 4
    total_variation_epochs: int = 2
    batch_size: int = 4
    learning_rate: float = 1e-3
    settings: list[tuple[float, float]] = field(default_factory=lambda: list(PAPER_SETTINGS))
    seed: int = 0


@dataclass(frozen=True)
class DecodeConfig:
    """Decoding.

    Attributes:
        policy: `auto` (the checkpoint's better head), `policy`, `regressor`, or a tree `(K, L1, L2)`.
        guard: pause speculation while the pass times say that plain decoding is faster.
    """

    max_new_tokens: int = 256
    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    policy: str = "auto"
    guard: bool = True
    seed: int = 0


@dataclass(frozen=True)
class Config:
    """Everything about one pair."""

    pair: PairConfig
    action_space: ActionSpaceConfig
    generate: GenerateConfig
    train: TrainConfig
    evaluate: EvaluateConfig
    distill: DistillConfig
    decode: DecodeConfig
