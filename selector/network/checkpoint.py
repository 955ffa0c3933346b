"""An exported selector: `model.safetensors`, `config.json`, a model card. Loading needs torch and safetensors only."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import save_file
from torch import Tensor

from selector.artifacts.claims import claim_folder, refuse_other_pair
from selector.artifacts.loading import load_tensors
from selector.artifacts.origin import content_hash
from selector.artifacts.writing import atomic_write, write_json, write_text
from selector.errors import UserError, first_line
from selector.features import HIDDEN, SCALARS, RootFeatures
from selector.latency import LatencyProfile, latency_scalars
from selector.network.checkpoint_config import REMEDY, CheckpointConfig, Head
from selector.network.hub import fetch, is_repository, publish, with_metadata
from selector.network.hub_code import hub_code as code_files
from selector.network.network import Inputs, Prediction, SelectorNetwork
from selector.network.numpy_forward import SingleRoot, as_stored, is_linear
from selector.pair_names import UNKNOWN
from selector.shipped import find
from selector.trees.expansion import ActionSpace, Expansion


def network_inputs(
    hidden: Mapping[str, Tensor], scalars: Tensor, context_length: Tensor, profile: LatencyProfile
) -> Inputs:
    """What the network sees of `N` roots: hidden blocks `[N, d]` by name, scalars `[N, S]` with latency appended."""
    latency = latency_scalars(context_length, profile).to(scalars)
    return Inputs(
        hidden["target_hidden"],
        hidden["draft_hidden_prev"],
        hidden["draft_hidden_root"],
        torch.cat([scalars, latency], 1),
    )


def action_prices(mean_efficiency: Tensor, action_times: Tensor) -> Tensor:
    """`[N, actions]`, float64: the tokens that `action_times [N, actions]` yield at the best static action's rate."""
    return action_times * (mean_efficiency.double() / action_times).amax(-1, keepdim=True)


def best_actions(prediction: Prediction, action_times: Tensor, head: Head) -> Tensor:
    """`[N]`: argmax of the policy's logits, or of predicted efficiency less the prices of `action_times [N, actions]`.

    What a step yields is weighed against what its time yields elsewhere; the largest `E / T` would treat the whole
    text as being like this root (see `offline.throughput`).
    """
    if head == "policy":
        return prediction.policy_logits.argmax(1)
    return (prediction.efficiency.double() - action_prices(prediction.mean_efficiency, action_times)).argmax(1)


class SelectorCheckpoint:
    """A trained network in evaluation mode and its configuration.

    The latency scalars always come from the profile of training: they tell the network how pass times grow with
    the context there, and another machine's would be inputs that it never saw. `action_times`, the times of the
    machine at hand, decide through the regressor.

    Args:
        network: the trained network.
        config: what it was trained for, on, and how: `config.json`.
        card: its README.md; empty for one that was never saved.

    Returns:
        From `load` the checkpoint, from `choose` an action: an index into `space.expansions`.

    Raises:
        UserError: from `load` for a folder that is no checkpoint, from `from_pretrained` for a repository that the hub
            does not give, from `check_pair` for another pair.

    Example:
        >>> checkpoint = ddte.SelectorCheckpoint.load("checkpoints/smollm2-135m/traversal")
        >>> checkpoint.config.verifier, checkpoint.best_static
        ('traversal', Expansion(num_branches=3, trunk_length=0, branch_length=1))
    """

    def __init__(self, network: SelectorNetwork, config: CheckpointConfig, card: str = "") -> None:
        self.network = network.eval()
        self.config = config
        self.card = card

    @cached_property
    def space(self) -> ActionSpace:
        return ActionSpace(*self.config.shape.action_space)

    @cached_property
    def profile(self) -> LatencyProfile:
        """The latency profile of training."""
        return LatencyProfile.from_dict(self.config.profile)

    @property
    def identity(self) -> str:
        """SHA-256 of the configuration: pair, data, training, and the revision that trained it."""
        return content_hash(asdict(self.config))

    @property
    def best_static(self) -> Expansion:
        return Expansion(*self.config.best_static)

    @property
    def beats_static(self) -> bool:
        """Whether choosing, its own cost included, was no slower than the best static tree on validation prompts."""
        return self.config.metrics.get("validation_ratio_to_static", 1.0) >= 1

    @property
    def reads_previous(self) -> bool:
        """Whether the network reads anything of the token before the root token."""
        return self.config.shape.inputs == "all"

    @cached_property
    def _single(self) -> SingleRoot | None:
        return SingleRoot(self.network, self.profile) if is_linear(self.network) else None

    @torch.inference_mode()
    def predict(self, hidden: Mapping[str, Tensor], scalars: Tensor, context_length: Tensor) -> Prediction:
        """Both heads at `N` roots: hidden blocks `[N, d]` by name, `scalars [N, S]`, `context_length [N]`."""
        prediction: Prediction = self.network(network_inputs(hidden, scalars, context_length, self.profile))
        return prediction

    def prices(self, action_times: Tensor) -> Tensor:
        """`action_prices` under the mean efficiency of training; `action_times [..., actions]` of this machine."""
        return action_prices(self.network.gain * self.network.mean_efficiency, action_times)

    def choose(self, features: RootFeatures, prices: NDArray[np.float64], head: Head | None = None) -> int:
        """The action at one root, as `best_actions`; `prices [actions]` are those of `self.prices`.

        Hidden states are rounded to float16 first, as the data set stores them.
        """
        policy = (head or self.config.default_head) == "policy"
        scalars = features.scalars[: self.network.shape.num_scalars]
        if self._single is not None:
            predict = self._single.policy_logits if policy else self._single.efficiency
            states = [getattr(features, name).numpy() for name in self._single.hidden]
            predicted = predict(np.concatenate(states), scalars.numpy())
        else:
            hidden = {name: torch.from_numpy(as_stored(getattr(features, name).numpy()))[None] for name in HIDDEN}
            prediction = self.predict(hidden, scalars[None], scalars[None, SCALARS.index("context_length")])
            predicted = (prediction.policy_logits if policy else prediction.efficiency)[0].numpy()
        return int(np.argmax(predicted if policy else predicted - prices))

    def check_pair(self, target_fingerprint: str, draft_fingerprint: str) -> None:
        """Refuse another pair than the one of training."""
        stored = {"target": self.config.target_fingerprint, "draft": self.config.draft_fingerprint}
        refuse_other_pair("checkpoint", stored, target_fingerprint, draft_fingerprint)

    def save(self, folder: Path | str, card: str, hub_code: bool = False) -> None:
        """Write the folder, `card` as its README.md, and `hub_code`, if wanted; it must not exist yet, or be empty."""
        folder = Path(folder)
        claim_folder("out", folder)
        tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in self.network.state_dict().items()}
        with atomic_write(folder) as temporary:
            temporary.mkdir()
            save_file(tensors, temporary / "model.safetensors")
            write_json(temporary / "config.json", asdict(self.config))
            write_text(temporary / "README.md", card)
            for name, text in (code_files() if hub_code else {}).items():
                write_text(temporary / name, text)

    @classmethod
    def load(cls, folder: Path | str) -> SelectorCheckpoint:
        """Read and check a checkpoint folder, or a shipped one by name; the network is on the CPU, in float32."""
        folder = find(folder)
        if within := _selectors_in(folder):
            raise UserError(
                f"folder '{folder}' is no checkpoint but holds some: give one of them, as {str(within[0])!r}."
            )
        config = CheckpointConfig.load(folder / "config.json")
        try:
            network = SelectorNetwork(config.shape)
            tensors = load_tensors(folder / "model.safetensors", divisors=".scale")
            network.load_state_dict({"gain": torch.ones(()), **tensors})  # earlier versions had none
        except Exception as error:
            raise UserError(f"weights of {str(folder)!r} do not fit ({first_line(error)}): {REMEDY}.") from None
        card = folder / "README.md"
        return cls(network, config, card.read_text("utf-8") if card.is_file() else "")

    @classmethod
    def from_pretrained(cls, name: Path | str, revision: str | None = None) -> SelectorCheckpoint:
        """`load` of a folder, of a shipped checkpoint by name, or of `user/name` of the hub, fetched into its cache."""
        return cls.load(fetch(str(name), revision) if is_repository(str(name)) else name)

    def push_to_hub(
        self,
        repo_id: str,
        *,
        base_model: str | Sequence[str] = (),
        license: str = "",
        datasets: Sequence[str] = (),
        private: bool = False,
        hub_code: bool = False,
    ) -> str:
        """Publish the checkpoint as `repo_id` of the hub and return its address.

        The card gets what the hub shows: `base_model`, hub ids of target and draft (default: those that the checkpoint
        names); `license` of the weights, as `apache-2.0` (default: the one that both models have); `datasets`, hub ids
        of what it was trained on. With `hub_code` the repository works as `generate(custom_generate=repo_id,
        trust_remote_code=True)`. Raises UserError for a checkpoint without a card and where models or licence are not
        known, before anything is sent, and where the hub takes nothing.
        """
        if not self.card:
            raise UserError("checkpoint has no card: export it with `ddte export`, load that folder, and publish it.")
        names = self.config.models
        models = [base_model] if isinstance(base_model, str) else list(base_model) or names.base_model
        licence = license or names.licence
        for name, value in (("base_model", models), ("license", licence)):
            if value in ([], UNKNOWN):
                raise UserError(f"{name} is left out, and the checkpoint's models do not tell it: give it.")
        with tempfile.TemporaryDirectory() as folder:
            card = with_metadata(self.card, repo_id, self.config, models, licence, datasets)
            self.save(Path(folder) / "checkpoint", card, hub_code)
            return publish(Path(folder) / "checkpoint", repo_id, private)


def _selectors_in(folder: Path) -> list[Path]:
    """The checkpoints in a folder of `ddte export`, which is none itself."""
    if (folder / "config.json").exists():
        return []
    return sorted(file.parent for file in folder.glob("*/config.json"))
