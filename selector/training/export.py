"""Copy a run's selectors out as checkpoint folders."""

from __future__ import annotations

from pathlib import Path

from selector.checkpoint import refuse_occupied
from selector.errors import UserError
from selector.provenance import read_json
from selector.training.card import model_card
from selector.training.run_folder import RunFolder


def export(run_folder: Path | str, out_folder: Path | str, metrics: Path | None = None) -> list[Path]:
    """Write `out_folder/<verifier>/` for each selector of a run, with a model card.

    `metrics`, a `metrics.json` of `ddte evaluate`, puts the held-out figures into the cards. All selectors and
    all output folders are checked before the first is written.
    """
    run, out = RunFolder(Path(run_folder)), Path(out_folder)
    selectors = {verifier: run.selector(verifier) for verifier in run.verifiers}
    rows = read_json(metrics, "make it with `ddte evaluate`") if metrics else None
    if rows is not None and not isinstance(rows, list):
        raise UserError(f"metrics '{metrics}' is not a list of rows: make it with `ddte evaluate`.")
    for verifier in selectors:
        refuse_occupied(out / verifier)
    for verifier, selector in selectors.items():
        selector.save(out / verifier, model_card(selector.config, rows))
    return [out / verifier for verifier in selectors]
