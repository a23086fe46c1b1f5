"""Accuracy per degree of freedom: our cut cells beside body-fitted meshes of scikit-fem, by natural frequencies.

Consistent masses for scikit-fem's elements; quadratic ones have curved sides on the sphere and the torus.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

import numpy as np
import skfem as fem
from cell_elements import lame, mass, modes, stiffness
from element_figures import BEAM_HZ, DENSITY, LENGTH, SPHERE, THICKNESS, WIDTH, YOUNG, Settings, beam, sphere
from skfem.helpers import dot
from skfem.models.elasticity import linear_elasticity

from soft_estimator.geometry.shapes import Torus

RADIUS, RING, TUBE = 0.05, 0.05, 0.02
ELEMENTS = {
    "tetrahedra, linear": fem.ElementTetP1,
    "tetrahedra, quadratic": fem.ElementTetP2,
    "hexahedra, linear": fem.ElementHex1,
    "hexahedra, quadratic": fem.ElementHex2,
}


def frequencies(
    mesh: fem.Mesh, element: fem.Element, count: int, clamp_x: float | None = None
) -> tuple[np.ndarray, int]:
    """The lowest frequencies [Hz] of a mesh, free or clamped at x = clamp_x, and its degrees of freedom; ν = .3."""
    basis = fem.Basis(mesh, fem.ElementVector(element), intorder=4)
    k = fem.asm(linear_elasticity(*lame(YOUNG, 0.3)), basis).tocsc()
    m = fem.asm(fem.BilinearForm(lambda u, v, _: DENSITY * dot(u, v)), basis).tocsc()
    if clamp_x is None:
        return np.sort(modes(k, m, count + 6, -((2 * np.pi) ** 2))[0])[6:], k.shape[0]
    held = basis.get_dofs(lambda x: np.isclose(x[0], clamp_x)).all()
    free = np.setdiff1d(np.arange(k.shape[0]), held)
    return modes(k[free][:, free], m[free][:, free], count)[0], len(free)


def box_mesh(cells: int) -> fem.MeshHex:
    """The beam with `cells` hexahedra through its thickness, nearly cubes."""
    sizes = (LENGTH, THICKNESS, WIDTH)
    counts = [max(round(cells * s / THICKNESS), 1) for s in sizes]
    return fem.MeshHex.init_tensor(*[np.linspace(-s / 2, s / 2, n + 1) for s, n in zip(sizes, counts, strict=True)])


def torus_mesh(across: int, around: int, tetrahedra: bool = False, curved: bool = False) -> fem.Mesh:
    """A torus of `across`² hexahedra (six tetrahedra each) by `around`, flat-sided or with quadratic sides.

    Made as a ring of square section, whose squares are then mapped to discs.
    """
    line = np.linspace(-1.0, 1.0, across + 1)
    u, v = (g.ravel() for g in np.meshgrid(line, line, indexing="ij"))
    angle = 2 * np.pi * np.arange(around) / around
    points = np.stack(
        [np.outer(np.cos(angle), 3 + u).ravel(), np.outer(np.sin(angle), 3 + u).ravel(), np.tile(v, around)]
    )
    i, j = (g.ravel() for g in np.meshgrid(np.arange(across), np.arange(across), indexing="ij"))
    face, size = i * (across + 1) + j, (across + 1) ** 2
    # scikit-fem's order of corners
    order = [(0, 0, 0), (0, 0, 1), (0, 1, 0), (1, 0, 0), (0, 1, 1), (1, 0, 1), (1, 1, 0), (1, 1, 1)]
    cells = [
        np.stack([(k + c) % around * size + face + a * (across + 1) + b for a, b, c in order]) for k in range(around)
    ]
    mesh = fem.MeshHex(points, np.concatenate(cells, axis=1))
    if tetrahedra:
        mesh = mesh.to_meshtet()
    if curved:
        mesh = (fem.MeshTet2 if tetrahedra else fem.MeshHex2).from_mesh(mesh)
    return replace(mesh, doflocs=_rounded(mesh.doflocs, around))


def _rounded(points: np.ndarray, around: int) -> np.ndarray:
    """Points (3, n) of the ring of square section, corners and midpoints of its mesh, moved to the torus."""
    step = 2 * np.pi / around
    angle, radius = np.arctan2(points[1], points[0]), np.hypot(points[0], points[1])
    halfway = np.abs(angle / step - np.round(angle / step)) > 0.25
    u, v = radius / np.where(halfway, np.cos(0.5 * step), 1.0) - 3.0, points[2]  # a chord's middle lies further in
    out = RING + TUBE * u * np.sqrt(1 - 0.5 * v**2)
    return np.stack([out * np.cos(angle), out * np.sin(angle), TUBE * v * np.sqrt(1 - 0.5 * u**2)])


@lru_cache(maxsize=1)
def torus_reference() -> np.ndarray:
    """The six lowest frequencies [Hz] of the free torus: quadratic hexahedra with quadratic sides."""
    return frequencies(torus_mesh(4, 28, curved=True), fem.ElementHex2(), 6)[0]


def _mean_error(found: np.ndarray, exact: np.ndarray) -> float:
    return float(100 * np.abs(found / exact - 1).mean())


def body_fitted() -> Iterator[tuple[str, str, int, float]]:
    """(body, element, degrees of freedom, mean error [%]) of scikit-fem's meshes."""
    hertz = np.array(BEAM_HZ[0.3])
    radian = np.repeat(SPHERE, 5) * np.sqrt(lame(YOUNG, 0.3)[1] / DENSITY) / RADIUS / (2 * np.pi)
    for name, element in ELEMENTS.items():
        quadratic = "quadratic" in name
        for cells in (1, 2) if quadratic else (2, 4):
            mesh = box_mesh(cells) if "hex" in name else box_mesh(cells).to_meshtet()
            found, freedoms = frequencies(mesh, element(), 4, -LENGTH / 2)
            yield "beam", name, freedoms, _mean_error(found, hertz)
        for across in (1, 2) if quadratic else (2, 4):
            mesh = torus_mesh(across, 12 * across, "tet" in name, quadratic)
            found, freedoms = frequencies(mesh, element(), 6)
            yield "torus", name, freedoms, _mean_error(found, torus_reference())
        if "tet" in name:
            for refined in (1, 2) if quadratic else (2, 3):
                ball = (fem.MeshTet2 if quadratic else fem.MeshTet).init_ball(refined).scaled(RADIUS)
                found, freedoms = frequencies(ball, element(), 10)
                yield "sphere", name, freedoms, _mean_error(found, radian)


def cut_cells(name: str, settings: Settings) -> Iterator[tuple[str, str, int, float]]:
    """The same of our cells; the beam along the grid, the torus and sphere anywhere in it."""
    for cells in (2, 4):
        freedoms = 3 * 10 * cells * (cells + 1) * (3 * cells // 2 + 1)
        yield "beam", f"cut cells, {name}", freedoms, float(np.abs(beam(cells, settings, 0.3, False)[1]).mean())
    for cells in (8, 12):
        torsional, spheroidal, nodes = sphere(cells, settings, (0.37, 0.11, 0.23))
        yield "sphere", f"cut cells, {name}", 3 * nodes, float(np.abs([torsional, spheroidal]).mean())
    for spacing in (0.01, 0.007):
        body = settings.body(Torus(RING, TUBE, (0.001, 0.002, 0.003)), spacing)
        k, m = stiffness(body, settings.law, *lame(YOUNG, 0.3)), mass(body, DENSITY, settings.consistent)
        found = np.sort(modes(k, m, 12, -((2 * np.pi) ** 2))[0])[6:]
        yield "torus", f"cut cells, {name}", 3 * body.node_count, _mean_error(found, torus_reference())


def compare(laws: dict[str, Settings]) -> list[dict]:
    """Rows of body, element, degrees of freedom and mean error of the lowest frequencies, printed as they come."""
    out = []
    sources = [cut_cells(name, settings) for name, settings in laws.items()] + [body_fitted()]
    print(f"{'body':8s}{'element':28s}{'freedoms':>9s}{'mean error of the lowest frequencies [%]':>45s}")
    for source in sources:
        for body, element, freedoms, error in source:
            print(f"{body:8s}{element:28s}{freedoms:9d}{error:45.2f}", flush=True)
            out.append({"body": body, "element": element, "freedoms": freedoms, "percent": error})
    return out


def draw(rows: list[dict], path: Path) -> None:
    """Error over degrees of freedom, a panel for each body."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    from matplotlib.ticker import NullFormatter

    bodies = ("beam", "sphere", "torus")
    figure, axes = plt.subplots(1, 3, figsize=(11, 3.6), sharey=True, layout="constrained")
    names = sorted({r["element"] for r in rows})
    for panel, body in zip(axes, bodies, strict=True):
        for k, name in enumerate(names):
            mine = sorted((r["freedoms"], r["percent"]) for r in rows if r["body"] == body and r["element"] == name)
            if mine:
                style = "-" if "cut" in name else "--"
                panel.loglog(*np.array(mine).T, style, marker="o", color=f"C{k}", label=name)
        panel.set(title=body, xlabel="degrees of freedom", xlim=(300, 1e4))
        panel.xaxis.set_minor_formatter(NullFormatter())
        panel.grid(True, which="both", alpha=0.2)
    axes[0].set_ylabel("mean error of the lowest frequencies [%]")
    handles = {label: h for panel in axes for h, label in zip(*panel.get_legend_handles_labels(), strict=True)}
    figure.legend(handles.values(), handles.keys(), loc="outside right center", fontsize=8)
    figure.savefig(path, dpi=110)
    plt.close(figure)
