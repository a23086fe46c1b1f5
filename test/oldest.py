"""Prints the oldest set of dependencies that setup.py allows, as constraints for pip: `make oldest` tests with them.

    python test/oldest.py [EXTRA ...] > constraints.txt

A requirement without a lower bound, or with one that names no release (">=7.*"), is an error: it would not be tested.
"""

from __future__ import annotations

import sys
from importlib.metadata import requires

from packaging.requirements import Requirement


def oldest(extras: list[str]) -> list[str]:
    """`name==version` of every requirement that holds here."""
    wanted = [Requirement(text) for text in requires("soft_estimator") or []]
    out = []
    for requirement in wanted:
        environments = [{"extra": extra} for extra in ("", *extras)]
        if requirement.marker and not any(requirement.marker.evaluate(one) for one in environments):
            continue
        low = [s.version for s in requirement.specifier if s.operator in (">=", "==")]
        if len(low) != 1:
            raise SystemExit(f"setup.py: {requirement.name} names no oldest version; give it a lower bound")
        out.append(f"{requirement.name}=={low[0]}")
    return out


if __name__ == "__main__":
    print("\n".join(oldest(sys.argv[1:])))
