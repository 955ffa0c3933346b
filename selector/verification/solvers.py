"""Node-local solvers by name."""

from __future__ import annotations

from selector.verification.khisti import Khisti
from selector.verification.naive import Naive
from selector.verification.nss import NSS
from selector.verification.ranked import Ranked
from selector.verification.rrsw import RRSw
from selector.verification.solver import Solver
from selector.verification.specinfer import SpecInfer
from selector.verification.spectr import SpecTr

SOLVERS: dict[str, Solver] = {
    solver.name: solver for solver in (NSS(), Naive(), SpecTr(), SpecInfer(), Khisti(), RRSw(), Ranked())
}
