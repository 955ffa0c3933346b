"""Profiles that are formulas: what `profiles/*.json` of kind `fitted` must hold.

`python -m tests.support.fitted_profiles` writes them.
"""

from __future__ import annotations

from pathlib import Path

from selector.latency import LatencyProfile
from selector.provenance import Provenance

FOLDER = Path(__file__).parents[2] / "profiles"
CONTEXTS, WIDTHS = (64, 4096), (1, 64)  # the formulas are linear, and so is the profile between its points
CHOOSING = 0.0005614825004158774  # seconds; of profiles/smollm2-135m-2-cores-float32.json


def llama_8b_on_h100() -> LatencyProfile:
    """The constants of `Llama8BH100` in SpecDecode-Bench's `predictor.py` (arXiv 2601.11580), in seconds."""

    def target(cached: int, new: int) -> float:
        return 5.88590713e-03 + 2.10103129e-05 * new + 3.92645679e-08 * cached

    def draft(cached: int, new: int) -> float:
        return 2.13526175e-03 + 8.41429603e-07 * new + 2.37768493e-09 * cached

    overhead = 1.20683946e-03
    return LatencyProfile(
        contexts=CONTEXTS,
        widths=WIDTHS,
        target_seconds=tuple(tuple(target(cached, new) for new in WIDTHS) for cached in CONTEXTS),
        draft_seconds=tuple(tuple(draft(cached, new) for new in WIDTHS) for cached in CONTEXTS),
        overhead_seconds=(overhead,) * len(WIDTHS),
        plain_seconds=tuple(target(cached, 1) + overhead for cached in CONTEXTS),
        selector_seconds=CHOOSING,
        provenance=Provenance(
            kind="fitted",
            target="Llama-3.1-8B-Instruct",
            draft="its EAGLE head",
            hardware="one NVIDIA H100",
            engine="vLLM",
            source="SpecDecode-Bench/simulator, predictor.py (arXiv 2601.11580)",
            note="Seconds of a target pass 5.886e-3 + 2.101e-5 a new token + 3.926e-8 a cached one, of the draft "
            "2.135e-3 + 8.4e-7 + 2.4e-9, overhead 1.207e-3 a step, also of plain decoding. The simulator charges the "
            "draft once a step, however many tokens it drafts; here each draft pass of a tree is charged as much, so "
            "trees deeper than one token are dearer than there. The fit knows no selector: choosing takes what it "
            "takes with SmolLM2-135M-Instruct on two CPU cores.",
        ),
    )


FITTED = {"llama-3.1-8b-eagle-h100": llama_8b_on_h100}

if __name__ == "__main__":
    for name, profile in FITTED.items():
        profile().save(FOLDER / f"{name}.json")
