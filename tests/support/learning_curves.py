"""Learning curves as a run's CSV files hold them."""

from __future__ import annotations

import csv
from pathlib import Path


def read_curve(folder: Path) -> list[dict[str, float]]:
    """The learning curve of a verifier's folder, one row an epoch, over all starts of the run.

    An epoch that was run twice, because the first try was interrupted, is taken from the later start; a row that a
    killed process left half written has no epoch and is passed over.
    """
    epochs: dict[int, dict[str, float]] = {}
    versions = (folder / "csv").glob("version_*/metrics.csv")
    for path in sorted(versions, key=lambda path: int(path.parent.name.removeprefix("version_"))):
        started: set[int] = set()
        with path.open(newline="") as file:
            for row in csv.DictReader(file):
                if not row["epoch"]:
                    continue
                values = {name: float(value) for name, value in row.items() if value}
                epoch = int(values.pop("epoch"))
                if epoch not in started:
                    epochs[epoch] = {"epoch": epoch}
                    started.add(epoch)
                epochs[epoch].update(values)
    return [epochs[epoch] for epoch in sorted(epochs)]
