"""An exported selector in numpy alone, from the two files of a checkpoint: what another engine has to port."""

import json
import math
from pathlib import Path

import numpy as np

TYPES = {"F32": np.float32, "I64": np.int64}


class NumpySelector:
    """Reads `config.json` and `model.safetensors`; chooses an action at one root."""

    def __init__(self, folder: Path) -> None:
        self.config = json.loads((folder / "config.json").read_text())
        data = (folder / "model.safetensors").read_bytes()
        start = 8 + int.from_bytes(data[:8], "little")
        self.tensors = {
            name: np.frombuffer(data[slice(*(start + end for end in entry["data_offsets"]))], TYPES[entry["dtype"]])
            .reshape(entry["shape"]).astype(np.float64)
            for name, entry in json.loads(data[8:start]).items() if name != "__metadata__"
        }  # fmt: skip

    def choose(self, blocks: list[np.ndarray], scalars: np.ndarray, action_times: np.ndarray, head: str) -> int:
        """Blocks are the hidden states at float16 precision: target's, draft's at prev, draft's at the root."""
        logits, efficiency = self.predict(blocks, scalars)
        rate = (self.tensors["mean_efficiency"] / action_times).max()
        return int((logits if head == "policy" else efficiency - rate * action_times).argmax())

    def predict(self, blocks: list[np.ndarray], scalars: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        profile = self.config["profile"]
        context = scalars[self.config["scalars"].index("context_length")]
        tables = [np.array(profile[f"{model}_seconds"])[:, 0] for model in ("draft", "target")]
        latency = [math.log10(np.interp(context, profile["contexts"], table)) for table in tables]
        x = np.concatenate([scalars, latency])
        curves = np.concatenate([x, np.sqrt(np.maximum(x, 0)), np.exp(-np.maximum(x, 0))])
        hidden = [self.components(f"encoder.hidden.{number}", block) for number, block in enumerate(blocks)]
        encoded = np.concatenate([*hidden, self.standardise("encoder.scalars", curves)])
        body = self.gelu(self.linear("body.3", self.gelu(self.linear("body.0", encoded))))
        linear = self.tensors["linear_bias"] + self.tensors["linear_weight"] @ encoded
        logits = 20 * (linear - self.tensors["prices"]) + self.linear("policy", body)
        branches, trunk, length = self.config["shape"]["action_space"]
        trees = [l1 + l2 for _ in range(2, branches + 1) for l1 in range(trunk + 1) for l2 in range(1, length + 1)]
        depths = np.array([*range(trunk + length + 1), *trees])
        return logits, np.clip(linear + self.linear("regressor", body), 1, 1 + depths)

    def standardise(self, name: str, x: np.ndarray) -> np.ndarray:
        return np.clip((x - self.tensors[f"{name}.mean"]) / self.tensors[f"{name}.scale"], -5, 5)

    def components(self, name: str, x: np.ndarray) -> np.ndarray:
        return np.clip(self.tensors[f"{name}.directions"] @ self.standardise(f"{name}.standardise", x), -5, 5)

    def linear(self, name: str, x: np.ndarray) -> np.ndarray:
        return self.tensors[f"{name}.weight"] @ x + self.tensors[f"{name}.bias"]

    @staticmethod
    def gelu(x: np.ndarray) -> np.ndarray:
        return 0.5 * x * (1 + np.array([math.erf(value / math.sqrt(2)) for value in x]))
