"""Elements on a grid: how far off they are, beside what was asked and beside body-fitted meshes.

python benchmark/bench_elements.py [--only figures,settings,cost,freedoms] [--plot FILE] [--json FILE]

`figures` prints the errors of the package's own element and of the laws of `cell_elements.py` on beams along and across
the grid, a free sphere, Cook's membrane and a patch test. `settings` varies what a cut body is made with. `cost` counts
iterations of conjugate gradients (`element_cost.py`). `freedoms` compares accuracy per degree of freedom with
body-fitted linear and quadratic tetrahedra and hexahedra of scikit-fem (`pip install -e '.[bench]'`) for a clamped
beam, a free sphere and a free torus.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
from element_cost import iterations, package_steps
from element_figures import Settings, beam, membrane, patch, sphere

TODAY = Settings("full", consistent=0.0)
HALF = Settings("mean dilatation", consistent=0.5, detail=2)
CHOSEN = Settings("mean dilatation", consistent=0.6, detail=2)
PACKAGE = Settings("package", detail=2)
INCOMPATIBLE = Settings("incompatible", consistent=0.6, detail=2)
LAWS = {
    "the package's own": PACKAGE,
    "full, lumped, trilinear shape (before)": TODAY,
    "mean dilatation, half of the mass consistent": HALF,
    "mean dilatation, 0.6 consistent (chosen)": CHOSEN,
    "incompatible modes, 0.6 consistent": INCOMPATIBLE,
}
SHIFTS = ((0.0, 0.0, 0.0), (0.5, 0.5, 0.5), (0.37, 0.11, 0.23))


def row(name: str, values: np.ndarray | list[float], asked: str) -> dict:
    values = [float(v) for v in values]
    print(f"    {name:52s} {' '.join(f'{v:+7.2f}' for v in values):60s} {asked}", flush=True)
    return {"name": name, "percent": values, "asked": asked}


def figures(settings: Settings) -> list[dict]:
    """All figures of one element, printed and returned."""
    out = []
    for cells, asked in ((2, "3"), (4, "1")):
        errors = [beam(cells, settings, nu, False) for nu in (0.3, 0.45, 0.49, 0.499)]
        out.append(row(f"beam, {cells} cells: tip at ν .3 .45 .49 .499", [e[0] for e in errors], f"{asked} %"))
        out.append(row("    f1 f2 f3 torsion at ν .3", errors[0][1], "3 %" if cells == 2 else "0.6 %"))
    for cells, asked in ((4, "2 %"), (6, "1 %")):
        errors = [beam(cells, settings, nu, True) for nu in (0.3, 0.49)]
        out.append(row(f"beam turned twice by 30°, {cells} cells: tip at ν .3 .49", [e[0] for e in errors], asked))
        for nu, e in zip((".3", ".49"), errors, strict=True):
            out.append(row(f"    f1 f2 f3 torsion at ν {nu}", e[1], asked))
    for cells, asked in ((8, "2 %, 0.5 %"), (12, "1 %, 0.2 %")):
        for shift in SHIFTS if cells == 8 else SHIFTS[-1:]:
            torsional, spheroidal, _ = sphere(cells, settings, shift)
            told = [g(x) for x in (torsional, spheroidal) for g in (np.mean, np.min, np.max)]
            name = f"sphere, {cells} cells, shift {' '.join(f'{s:g}' for s in shift)}: mean, worst"
            out.append(row(name, told, asked))
    out.append(row("Cook's membrane at ν .499: 8, 16 cells", [membrane(n, settings) for n in (8, 16)], "2 %, -"))
    out.append(row("patch test, cut cells: log10 of the error", [np.log10(patch(settings))], "rounding"))
    return out


def vary() -> list[dict]:
    """What the settings of a cut body do: a free sphere of 8 cells, a turned beam of 4 cells, Cook's membrane of 8."""
    out = []
    choices = {
        **{f"stabilisation {s:g}": replace(CHOSEN, stabilisation=s) for s in (0.01, 0.03, 0.1, 0.3)},
        **{f"min_fill {f:g}": replace(CHOSEN, min_fill=f) for f in (0.005, 0.05, 0.1)},
        **{f"detail {d}": replace(CHOSEN, detail=d) for d in (1, 3, 4)},
        **{f"consistent {c:g}": replace(CHOSEN, consistent=c) for c in (0.0, 0.5, 0.7, 1.0)},
    }
    for name, settings in choices.items():
        torsional, spheroidal, _ = sphere(8, settings, SHIFTS[-1])
        tip, hertz = beam(4, settings, 0.3, True)
        values = [torsional.mean(), spheroidal.mean(), tip, *hertz, membrane(8, settings)]
        out.append(row(name, values, ""))
    return out


def freedoms(plot: Path | None) -> list[dict]:
    """Accuracy per degree of freedom beside scikit-fem's meshes; empty without scikit-fem."""
    try:
        from element_meshes import compare, draw
    except ModuleNotFoundError as missing:
        print(f"left out: no module {missing.name}; pip install -e '.[bench]'", file=sys.stderr)
        return []
    rows = compare({"before": TODAY, "chosen": CHOSEN})
    if plot:
        draw(rows, plot)
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="figures,settings,cost,freedoms")
    parser.add_argument("--laws", default="own,before,half,chosen,incompatible", help="words of the elements' names")
    parser.add_argument("--plot", type=Path, help="where to draw accuracy over degrees of freedom")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    parts, results = args.only.split(","), {}
    if "figures" in parts:
        for name, settings in LAWS.items():
            if any(word in name for word in args.laws.split(",")):
                print(f"{name} [%]")
                results[name] = figures(settings)
    if "settings" in parts:
        print("settings: sphere (torsional, spheroidal), turned beam (tip, f1 f2 f3 torsion), membrane [%]")
        results["settings"] = vary()
    if "cost" in parts:
        print("iterations of conjugate gradients for a step's system, relative residual 1e-6")
        results["cost"] = iterations(TODAY, CHOSEN) + package_steps(PACKAGE) + package_steps(PACKAGE, cells=18)
    if "freedoms" in parts:
        results["freedoms"] = freedoms(args.plot)
    if args.json:
        args.json.write_text(json.dumps(results, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
