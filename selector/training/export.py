"""Copy a run's selectors out as checkpoint folders."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from selector.artifacts import read_json
from selector.errors import UserError
from selector.network.checkpoint import refuse_occupied
from selector.training.card import FIGURE_COLUMNS, model_card
from selector.training.run_folder import RunFolder

METRICS_REMEDY = "make it with `ddte evaluate`"


def export(run_folder: Path | str, out_folder: Path | str, metrics: Path | None = None) -> list[Path]:
    """Write `out_folder/<verifier>/` for each selector of a run, with a model card.

    `metrics`, a `metrics.json` of `ddte evaluate`, puts the held-out figures into the cards. All selectors and
    all output folders are checked before the first is written.
    """
    run, out = RunFolder(Path(run_folder)), Path(out_folder)
    selectors = {verifier: run.selector(verifier) for verifier in run.verifiers}
    rows = _metric_rows(metrics) if metrics else None
    cards = {verifier: model_card(selector.config, rows) for verifier, selector in selectors.items()}
    for verifier in selectors:
        refuse_occupied(out / verifier)
    for verifier, selector in selectors.items():
        selector.save(out / verifier, cards[verifier])
    return [out / verifier for verifier in selectors]


def _metric_rows(path: Path) -> list[dict[str, Any]]:
    """The rows of a `metrics.json`, each with all that a card shows."""
    rows = read_json(path, METRICS_REMEDY)
    if not isinstance(rows, list):
        raise UserError(f"metrics '{path}' is not a list of rows: {METRICS_REMEDY}.")
    for number, row in enumerate(rows, 1):
        if not isinstance(row, dict):
            raise UserError(f"row {number} of metrics '{path}' is no row of figures: {METRICS_REMEDY}.")
        missing = [name for name in ("verifier", *FIGURE_COLUMNS) if name not in row]
        if missing:
            raise UserError(f"row {number} of metrics '{path}' has no {missing[0]}: {METRICS_REMEDY}.")
    return rows
