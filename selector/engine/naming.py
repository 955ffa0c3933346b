"""What artefacts say of a loaded pair: names that hold everywhere, commits, licences, and what it was made from."""

from __future__ import annotations

from transformers import PreTrainedModel

from selector.config import EMBEDDED_TARGET, PairConfig
from selector.errors import UserError
from selector.hub import card_facts, find_model, read_card
from selector.pair_names import EMBEDDED, UNKNOWN, ModelName, PairNames
from selector.shipped import find, lasting


def pair_names(config: PairConfig, target: PreTrainedModel, draft: PreTrainedModel) -> PairNames:
    """Of two models that were loaded by `config`."""
    own = _model_name("draft", config.draft, config.draft_revision, draft)
    return PairNames(target_name(config, target), own, config.quantization, str(target.dtype).removeprefix("torch."))


def target_name(config: PairConfig, target: PreTrainedModel) -> ModelName:
    """Of the target alone, loaded by `config`."""
    if config.target == EMBEDDED_TARGET:
        return EMBEDDED
    return _model_name("target", config.target, config.revision, target)


def _model_name(field: str, source: str, revision: str, model: PreTrainedModel) -> ModelName:
    """A folder's card, or what the hub said when the model was loaded; its files are of `_commit_hash`."""
    if not source:  # of a model that was made in memory
        return ModelName()
    if find(source).is_dir():
        licence, base_model = card_facts(read_card(find(source)))
        return ModelName(lasting(source), "", licence or UNKNOWN, base_model)
    commit = getattr(model.config, "_commit_hash", None)
    try:
        found = find_model(field, source, revision)
    except UserError:  # a loaded model that was handed in, and no hub to ask
        return ModelName(source, commit or revision)
    assert found is not None  # no folder
    return ModelName(source, commit or found.commit, found.licence or UNKNOWN, found.base_model)
