"""The public names of ddte. Each is imported when it is first used, so that `import ddte` itself is instant.

The command `ddte` does the same from the shell; what is not named here may move between versions.
"""

from __future__ import annotations

from importlib import import_module, metadata
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from data_gen.pipeline import generate as generate_data
    from ddte.configuration import load_config
    from selector.config import Config, PairConfig
    from selector.dataset.dataset import RootDataset
    from selector.decoding.custom_generate import ddte_generate
    from selector.decoding.decoder import Decoder
    from selector.decoding.profiling import measure_profile
    from selector.distributions import Sampling
    from selector.engine.huggingface import load_pair, pair_with
    from selector.errors import UserError
    from selector.evaluation.evaluate import evaluate
    from selector.latency import LatencyProfile
    from selector.losslessness.check_pair import check_pair as verify
    from selector.network.checkpoint import SelectorCheckpoint
    from selector.training.export import export
    from selector.training.fit import train
    from selector.training.run_folder import RunFolder
    from selector.trees.expansion import CopyExpansion, Expansion

    __version__: str

PLACES = {
    "Config": "selector.config:Config",
    "CopyExpansion": "selector.trees.expansion:CopyExpansion",
    "Decoder": "selector.decoding.decoder:Decoder",
    "Expansion": "selector.trees.expansion:Expansion",
    "LatencyProfile": "selector.latency:LatencyProfile",
    "PairConfig": "selector.config:PairConfig",
    "RootDataset": "selector.dataset.dataset:RootDataset",
    "RunFolder": "selector.training.run_folder:RunFolder",
    "Sampling": "selector.distributions:Sampling",
    "SelectorCheckpoint": "selector.network.checkpoint:SelectorCheckpoint",
    "UserError": "selector.errors:UserError",
    "ddte_generate": "selector.decoding.custom_generate:ddte_generate",
    "evaluate": "selector.evaluation.evaluate:evaluate",
    "export": "selector.training.export:export",
    "generate_data": "data_gen.pipeline:generate",
    "load_config": "ddte.configuration:load_config",
    "load_pair": "selector.engine.huggingface:load_pair",
    "measure_profile": "selector.decoding.profiling:measure_profile",
    "pair_with": "selector.engine.huggingface:pair_with",
    "train": "selector.training.fit:train",
    "verify": "selector.losslessness.check_pair:check_pair",
}

__all__ = [
    "Config",
    "CopyExpansion",
    "Decoder",
    "Expansion",
    "LatencyProfile",
    "PairConfig",
    "RootDataset",
    "RunFolder",
    "Sampling",
    "SelectorCheckpoint",
    "UserError",
    "__version__",
    "ddte_generate",
    "evaluate",
    "export",
    "generate_data",
    "load_config",
    "load_pair",
    "measure_profile",
    "pair_with",
    "train",
    "verify",
]


def __getattr__(name: str) -> Any:
    """The object of a public name (PEP 562), kept for the next time."""
    if name == "__version__":
        value: Any = metadata.version("ddte")
    elif name in PLACES:
        module, _, attribute = PLACES[name].partition(":")
        value = getattr(import_module(module), attribute)
    else:
        raise AttributeError(f"module 'ddte' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
