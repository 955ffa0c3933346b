"""Reference selectors on the same features: ridge regression, gradient boosting, an entropy rule."""

from __future__ import annotations

import numpy as np
import torch
from sklearn.decomposition import PCA
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.linear_model import RidgeCV
from sklearn.preprocessing import StandardScaler
from torch import Tensor

from selector.dataset.dataset import RootDataset
from selector.offline.baselines import PolicyResult, best_action, score_policy
from selector.offline.labelled_roots import LabelledRoots
from selector.statistics import Floats, Ints

MIN_ROOTS = 20
FEATURE_COMPONENTS = 32
LABEL_COMPONENTS = 3
ENTROPY = "draft_entropy_root"
ENTROPY_BINS = 5


def reference_outcomes(
    train: RootDataset, test: RootDataset, train_roots: LabelledRoots, test_roots: LabelledRoots, seed: int
) -> dict[str, PolicyResult]:
    """Ridge regression (on all features, and on the scalars alone), gradient boosting, and an entropy rule.

    Regressors predict the label of every action and take the best predicted `E - rate T`, as the network's regressor
    does, and they are charged the same time for choosing. With few training roots there are none.
    """
    if len(train) < MIN_ROOTS:
        return {}
    times = test_roots.selector_times
    rate = (train_roots.efficiency.mean(0) / times).max(1, keepdims=True)
    choices = {
        name: np.argmax(efficiency - rate * times, axis=1)
        for name, efficiency in _predictions(train, test, train_roots.efficiency, seed).items()
    }
    if ENTROPY in train.manifest.scalars:
        column = train.manifest.scalars.index(ENTROPY)
        entropies = [dataset.scalars[:, column].double().numpy() for dataset in (train, test)]
        choices["entropy_heuristic"] = entropy_rule(train_roots, *entropies)
    return {name: score_policy(test_roots, actions, times) for name, actions in choices.items()}


def entropy_rule(train: LabelledRoots, train_entropy: Floats, test_entropy: Floats) -> Ints:
    """The draft's entropy at the root, cut at training quintiles; the best static action of each fifth."""
    edges = np.quantile(train_entropy, np.linspace(0, 1, ENTROPY_BINS + 1)[1:-1])
    bins, overall = np.digitize(train_entropy, edges), best_action(train)
    best = [best_action(train.subset(bins == b)) if (bins == b).any() else overall for b in range(ENTROPY_BINS)]
    return np.array(best, dtype=np.int64)[np.digitize(test_entropy, edges)]


def _predictions(train: RootDataset, test: RootDataset, labels: Floats, seed: int) -> dict[str, Floats]:
    """Predicted labels of the test roots, `[roots, actions]`, by reference."""
    scalars, test_scalars = _standardised(train.scalars, test.scalars)
    hidden, test_hidden = _standardised(*(torch.cat(list(data.hidden.values()), 1) for data in (train, test)))
    features, test_features = scalars, test_scalars
    if (hidden.std(0) > 0.5).any():  # 1 by now, but where the training roots are all alike
        components = min(FEATURE_COMPONENTS, hidden.shape[1], len(train) - 1)
        compress = PCA(components, whiten=True, random_state=seed).fit(hidden)
        features = np.hstack([compress.transform(hidden), scalars])
        test_features = np.hstack([compress.transform(test_hidden), test_scalars])
    return {
        "ridge": _ridge(features, labels, test_features),
        "ridge_scalars": _ridge(scalars, labels, test_scalars),
        "boosting": _boosting(features, labels, test_features, seed),
        "boosting_scalars": _boosting(scalars, labels, test_scalars, seed),
    }


def _standardised(train: Tensor, test: Tensor) -> tuple[Floats, Floats]:
    scaler = StandardScaler().fit(train.double().numpy())
    return scaler.transform(train.double().numpy()), scaler.transform(test.double().numpy())


def _ridge(inputs: Floats, labels: Floats, outputs: Floats) -> Floats:
    model = RidgeCV(alphas=np.logspace(-1, 4, 11)).fit(inputs, labels)
    return np.asarray(model.predict(outputs), dtype=np.float64)


def _boosting(inputs: Floats, labels: Floats, outputs: Floats, seed: int) -> Floats:
    """Boosted trees have one output each, so they predict the labels' leading principal components.

    Labels that are alike at all training roots have none, and are predicted as they are.
    """
    if not np.ptp(labels, axis=0).any():
        return np.tile(labels[0], (len(outputs), 1))
    compress = PCA(min(LABEL_COMPONENTS, *labels.shape), random_state=seed).fit(labels)
    scores = compress.transform(labels)
    columns = []
    for column in scores.T:
        model = HistGradientBoostingRegressor(max_iter=60, learning_rate=0.05, max_leaf_nodes=8, random_state=seed)
        columns.append(model.fit(inputs, column).predict(outputs))
    return np.asarray(compress.inverse_transform(np.stack(columns, 1)), dtype=np.float64)
