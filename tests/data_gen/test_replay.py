"""Same features: a data set's roots, met again by the decoding loop, have the features that were stored."""

from collections import defaultdict

import pytest
import torch

from data_gen.labelling.label_unit import label_unit
from data_gen.labelling.trajectory import Trajectory
from data_gen.prompts.prompts import load_prompts
from data_gen.work_units import plan_units
from selector.decoding.decoder import clip
from selector.decoding.sequence import SpeculativeSequence
from selector.decoding.stats import Stopwatch
from selector.engine.early_exit import build_early_exit
from selector.engine.huggingface import HuggingFaceModel
from selector.engine.reading_draft import ReadingDraft
from selector.trees.expansion import ActionSpace, Expansion
from selector.trees.verifier import Verification
from tests.support.small_runs import small_config
from tests.support.tiny_models import tiny_llama

PROMPT = [3, 1, 4, 1, 5]
BLOCKS = ("target_hidden", "draft_hidden_prev", "draft_hidden_root", "scalars")


class Follow:
    """A verifier that accepts whatever of the tree lies along a given text, so that the loop replays that text."""

    name = "follow"

    def __init__(self, text):
        self.text, self.place, self.accepted = text, 0, 0

    def verify(self, tree, target_probs, generator):
        node, tokens = 0, tree.tokens.tolist()
        while True:
            self.place += 1
            below = [child for child in tree.topology.children[node] if tokens[child] == self.text[self.place]]
            if not below:
                return Verification(node, self.text[self.place])
            node, self.accepted = below[0], self.accepted + 1


def replayed(target, draft, unit, text, places, expansion):
    """Features at each of `places`, from decoding steps that end there; how many drafted tokens they accepted."""
    generator = torch.Generator().manual_seed(0)
    sequence = SpeculativeSequence(
        target, draft, unit.sampling, unit.draft_sampling, generator, Stopwatch(defaultdict(float))
    )
    sequence.prefill(PROMPT)
    follow = Follow(text)
    follow.place = len(PROMPT) - 1
    found = []
    for place in places:
        while sequence.context_length < place:
            sequence.step(clip(expansion, place - sequence.context_length - 1), follow)
        found.append(sequence.features())
    return found, follow.accepted


def compare(dtype, every, expansion, setting, reads="tokens"):
    """`(stored, replayed)` tensors of each block of each root; the draft `reads` tokens, or also the target."""
    target = HuggingFaceModel(tiny_llama().to(dtype))
    draft_model = tiny_llama() if reads == "tokens" else build_early_exit(tiny_llama(), [0, 1], None, "target")
    torch.manual_seed(7)
    with torch.no_grad():
        if reads == "target":  # it was never trained: small shares of the states leave it near the target
            draft_model.base_model.fuse.weight[:, 32:] *= 0.02
        for weight in draft_model.parameters():
            weight.add_(0.1 * weight.std() * torch.randn_like(weight))
    draft = (HuggingFaceModel if reads == "tokens" else ReadingDraft)(draft_model.to(dtype))
    config = small_config(["builtin"], settings=[setting], max_new_tokens=24, root_every=every).generate
    unit = plan_units(config, load_prompts(["builtin"], 1))[0]
    records = label_unit(target, draft, PROMPT, unit, config, ActionSpace(2, 1, 2), ())
    trajectory = Trajectory(target, PROMPT, unit.sampling, torch.Generator().manual_seed(unit.seed("trajectory")))
    while trajectory.position < 24:
        trajectory.step()
    places = [record.context_length for record in records]
    features, accepted = replayed(target, draft, unit, trajectory.tokens, places, expansion)
    assert accepted > 3 or every == 1
    return [
        {name: (getattr(record, name), getattr(found, name)) for name in BLOCKS}
        for record, found in zip(records, features, strict=True)
    ]


@pytest.mark.parametrize("every", [1, 6])
@pytest.mark.parametrize(("setting", "reads"), [((0.8, 1.0), "tokens"), ((1.0, 0.9), "tokens"), ((0.8, 1.0), "target")])
def test_float32(every, setting, reads):
    for blocks in compare(torch.float32, every, Expansion(3, 1, 3), setting, reads):
        for name, (stored, found) in blocks.items():
            near = 1e-5 if reads == "tokens" else 1e-4  # inputs that are normed enlarge what rounds differently
            torch.testing.assert_close(found, stored, rtol=near, atol=near, msg=lambda text, name=name: name + text)


@pytest.mark.parametrize("every", [1, 6])
def test_bfloat16(every):
    """States within 5% of their norm, entropies and divergences within 10% and 0.1 nats.

    Passes of other widths round differently. Under top-p a token at the nucleus' edge may go in or out, and no bound
    holds for divergences.
    """
    for blocks in compare(torch.bfloat16, every, Expansion(3, 1, 3), (0.8, 1.0)):
        scalars, found_scalars = blocks.pop("scalars")
        torch.testing.assert_close(found_scalars, scalars, rtol=0.1, atol=0.1)
        for stored, found in blocks.values():
            assert float((found - stored).norm()) <= 0.05 * float(stored.norm())
