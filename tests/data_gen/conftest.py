"""A table language model: logits and hidden states are a fixed random function of the whole context."""

import pytest
import torch

from selector.engine.language_model import Scores


class TableModel:
    """Implements the LanguageModel protocol over tuples of tokens."""

    def __init__(self, vocab_size=5, seed=0, support=None, hidden_size=3, scale=1.5):
        self.vocab_size, self.hidden_size, self.seed, self.scale = vocab_size, hidden_size, seed, scale
        self.support = None if support is None else torch.tensor(support)
        self.device = torch.device("cpu")
        self.fingerprint = f"table-{seed}-{vocab_size}"
        self.passes = []
        self.reset()

    @property
    def length(self):
        return len(self.context)

    def reset(self):
        self.context, self.pending = (), []

    def logits_after(self, context):
        generator = torch.Generator().manual_seed(hash((self.seed, *context)) % 2**62)
        columns = self.vocab_size if self.support is None else len(self.support)
        return self.scale * torch.randn(columns, generator=generator)

    def hidden_after(self, context):
        generator = torch.Generator().manual_seed(hash((self.seed + 1, *context)) % 2**62)
        return torch.randn(self.hidden_size, generator=generator)

    def extend(self, tokens, parents, last_rows=0):
        self.passes.append(len(tokens))
        first = len(self.pending)
        for token, parent in zip(tokens.tolist(), parents, strict=True):
            self.pending.append((self.context if parent < 0 else self.pending[parent]) + (token,))
        rows = self.pending[first:][-last_rows:] if last_rows else self.pending[first:]
        return Scores(
            torch.stack([self.logits_after(row) for row in rows]), torch.stack([self.hidden_after(row) for row in rows])
        )

    def keep(self, path):
        path = list(path)
        if path:
            kept = self.pending[path[-1]]
            assert kept == self.context + tuple(self.pending[row][-1] for row in path)
            self.context = kept
        self.pending = []


@pytest.fixture
def table_model():
    return TableModel


@pytest.fixture(autouse=True)
def one_thread():
    torch.set_num_threads(1)
