"""Repositories of the Hugging Face hub: one short question says which commit to read, and whether the cache must do."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from selector.errors import UserError, first_line

TIMEOUT = 5.0  # seconds for the one question
CONFIG, CARD = "config.json", "README.md"


@dataclass(frozen=True)
class HubModel:
    """A model of the hub.

    Attributes:
        commit: all files are read from this one.
        cached: the hub does not answer, so files come from the local cache alone.
        licence: as its card names it; `` where that is not known.
        base_model: what it was made from, by its card.
    """

    commit: str
    cached: bool = False
    licence: str = ""
    base_model: tuple[str, ...] = ()

    @property
    def options(self) -> dict[str, Any]:
        """Arguments of `from_pretrained`."""
        return {"revision": self.commit, "local_files_only": self.cached}


@lru_cache
def find_model(field: str, source: str, revision: str = "") -> HubModel | None:
    """What the hub, or the cache where the hub does not answer, knows of `source`; None for a folder.

    Raises UserError for a model that neither has, and for a revision of a folder. `field` is what the user set.
    """
    if os.path.isdir(source):
        if revision:
            name = "draft_revision" if field.endswith("draft") else "revision"
            raise UserError(f"pair.{name} is {revision!r}, but {source!r} is a folder: only hub models have revisions.")
        return None
    from huggingface_hub import HfApi
    from huggingface_hub.errors import GatedRepoError, HFValidationError, RepositoryNotFoundError, RevisionNotFoundError

    try:
        info = HfApi().model_info(source, revision=revision or None, timeout=TIMEOUT)
    except (GatedRepoError, HFValidationError, RepositoryNotFoundError, RevisionNotFoundError) as error:
        message = f"{field} is {_place(source, revision)!r}, which the hub does not give ({first_line(error)}): give a"
        raise UserError(f"{message} folder, or a hub id that you may read (`hf auth login`).") from None
    except Exception as error:  # a proxy's answer, no network, HF_HUB_OFFLINE: no class in common
        return _cached_model(field, source, revision, error)
    return HubModel(str(info.sha), False, *card_facts(info.card_data or {}))


def read_card(folder: Path) -> Mapping[str, Any]:
    """The metadata of a folder's model card; empty where there is none that can be read."""
    from huggingface_hub import metadata_load

    try:
        return metadata_load(folder / CARD) or {}
    except Exception:  # no file, not YAML, no text: no class in common
        return {}


def card_facts(card: Any) -> tuple[str, tuple[str, ...]]:
    """Licence and base models of a card's metadata."""
    licence, name = ", ".join(_words(card.get("license"))), card.get("license_name")
    return f"other: {name}" if licence == "other" and name else licence, _words(card.get("base_model"))


def config_file(field: str, source: str, revision: str = "") -> Path:
    """The model's `config.json`, fetched if need be. Raises UserError or OSError where there is none."""
    found = find_model(field, source, revision)
    if found is None:
        return Path(source) / CONFIG
    from huggingface_hub import hf_hub_download

    return Path(hf_hub_download(source, CONFIG, **found.options))


def _cached_model(field: str, source: str, revision: str, error: Exception) -> HubModel:
    """What an earlier download left: files lie in `snapshots/COMMIT`."""
    from huggingface_hub import try_to_load_from_cache

    path = try_to_load_from_cache(source, CONFIG, revision=revision or None)
    if not isinstance(path, str):
        message = f"{field} is {_place(source, revision)!r}: it is no folder, the hub cannot be reached"
        raise UserError(f"{message} ({first_line(error)}), and the cache has no copy; connect, or give a folder.")
    folder = Path(path).parent
    return HubModel(folder.name, True, *card_facts(read_card(folder)))


def _place(source: str, revision: str) -> str:
    return f"{source}@{revision}" if revision else source


def _words(value: Any) -> tuple[str, ...]:
    return tuple(map(str, value)) if isinstance(value, list) else (str(value),) if value else ()
