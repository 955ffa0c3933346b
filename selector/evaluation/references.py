"""Simple selectors on the same features: what a network must beat to be worth its name."""

from __future__ import annotations

import numpy as np
import torch
from sklearn.compose import ColumnTransformer
from sklearn.decomposition import PCA
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.linear_model import RidgeCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from selector.evaluation.bootstrap import Floats
from selector.evaluation.opponents import Outcome, best_action, play
from selector.evaluation.roots import Ints, Mask, Roots
from selector.records import RootDataset

MIN_ROOTS = 20
FEATURE_COMPONENTS = 32
LABEL_COMPONENTS = 3
ENTROPY = "draft_entropy_root"
ENTROPY_BINS = 5


def reference_outcomes(dataset: RootDataset, roots: Roots, train: Mask, test: Mask, seed: int) -> dict[str, Outcome]:
    """Ridge regression (on all features, and on the scalars alone), gradient boosting, and an entropy rule.

    Regressors predict the label of every action and take the best predicted `E / T`, as the network's regressor
    does, and they are charged the same time for choosing. With few training roots there are none.
    """
    training, testing = roots.subset(train), roots.subset(test)
    if len(training) < MIN_ROOTS:
        return {}
    predictions = _predictions(dataset, training.efficiency, train, test, seed)
    outcomes = {}
    for name, efficiency in predictions.items():
        actions = np.argmax(efficiency / testing.selector_times, axis=1)
        outcomes[name] = play(testing, actions, testing.selector_times)
    if ENTROPY in dataset.manifest.scalars:
        entropy = dataset.scalars[:, dataset.manifest.scalars.index(ENTROPY)].double().numpy()
        actions = entropy_rule(training, entropy[train], entropy[test])
        outcomes["entropy_heuristic"] = play(testing, actions, testing.selector_times)
    return outcomes


def entropy_rule(train: Roots, train_entropy: Floats, test_entropy: Floats) -> Ints:
    """The draft's entropy at the root, cut at training quintiles; the best static action of each fifth."""
    edges = np.quantile(train_entropy, np.linspace(0, 1, ENTROPY_BINS + 1)[1:-1])
    bins, overall = np.digitize(train_entropy, edges), best_action(train)
    best = [best_action(train.subset(bins == b)) if (bins == b).any() else overall for b in range(ENTROPY_BINS)]
    return np.array(best, dtype=np.int64)[np.digitize(test_entropy, edges)]


def _predictions(dataset: RootDataset, labels: Floats, train: Mask, test: Mask, seed: int) -> dict[str, Floats]:
    """Predicted labels of the test roots, `[roots, actions]`, by reference."""
    scalars = dataset.scalars.numpy().astype(np.float64)
    hidden = torch.cat(list(dataset.hidden.values()), 1).numpy()
    components = min(FEATURE_COMPONENTS, hidden.shape[1], int(train.sum()) - 1)
    features = make_pipeline(
        ColumnTransformer(
            [
                (
                    "hidden",
                    make_pipeline(StandardScaler(), PCA(components, whiten=True, random_state=seed)),
                    slice(0, hidden.shape[1]),
                ),
                ("scalars", StandardScaler(), slice(hidden.shape[1], None)),
            ]
        )
    )
    everything = np.hstack([hidden, scalars])
    inputs, outputs = features.fit_transform(everything[train]), features.transform(everything[test])
    scaler = StandardScaler().fit(scalars[train])
    return {
        "ridge": _ridge(inputs, labels, outputs),
        "ridge_scalars": _ridge(scaler.transform(scalars[train]), labels, scaler.transform(scalars[test])),
        "boosting": _boosting(inputs, labels, outputs, seed),
    }


def _ridge(inputs: Floats, labels: Floats, outputs: Floats) -> Floats:
    model = RidgeCV(alphas=np.logspace(-1, 4, 11)).fit(inputs, labels)
    return np.asarray(model.predict(outputs), dtype=np.float64)


def _boosting(inputs: Floats, labels: Floats, outputs: Floats, seed: int) -> Floats:
    """Boosted trees have one output each, so they predict the labels' leading principal components."""
    compress = PCA(min(LABEL_COMPONENTS, *labels.shape), random_state=seed).fit(labels)
    scores = compress.transform(labels)
    columns = []
    for column in scores.T:
        model = HistGradientBoostingRegressor(max_iter=60, learning_rate=0.05, max_leaf_nodes=8, random_state=seed)
        columns.append(model.fit(inputs, column).predict(outputs))
    return np.asarray(compress.inverse_transform(np.stack(columns, 1)), dtype=np.float64)
