"""Profiles of two imagined machines."""

import pytest
from evaluation_worlds import make_flat_profile, make_profile

from selector.latency import LatencyProfile


@pytest.fixture
def profile() -> LatencyProfile:
    return make_profile()


@pytest.fixture
def flat_profile() -> LatencyProfile:
    return make_flat_profile()
