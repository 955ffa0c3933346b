"""Enumerations solve the same few laws over and over."""

import pytest

from selector.verification.khisti import Khisti
from selector.verification.ranked import Ranked


@pytest.fixture(autouse=True, scope="session")
def _remember_plans():
    patch = pytest.MonkeyPatch()
    for solver in (Khisti, Ranked):
        patch.setattr(solver, "plan", remembering(solver.plan))
    yield
    patch.undo()


def remembering(plan):
    """Plans by the values of the laws."""
    known = {}

    def remembered(self, target, draft, count):
        key = (self.name, tuple(target.tolist()), tuple(draft.tolist()), count)
        if key not in known:
            known[key] = plan(self, target, draft, count)
        return known[key]

    return remembered
