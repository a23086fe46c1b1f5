"""What a better preconditioner than block-Jacobi would bring: iterations and time to solution of a step's system.

python benchmark/bench_preconditioner.py [--nodes 1000,9261] [--moduli 2e3,2e4,1e6] [--json FILE]

The systems are those of a 20 cm block, held at one side and bent by gravity, at 60 steps a second. All methods run in
the same conjugate gradients with the same SciPy product in float64, to a relative residual of 1e-6 from zero, so that
times compare. `products` counts products with the full matrix, which is what an iteration costs on a GPU, and `levels`
the products and solves on coarser grids besides. The matrix of ten steps ago, factorised or as a multigrid, stands for
what could be reused over many steps; its setup is given beside.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter

import numpy as np
import scipy.sparse as sp
from cuda_scenes import block
from scipy.sparse.linalg import eigsh, splu

from soft_estimator.physics.coarse import coarse_grid as coarse_grid_for
from soft_estimator.physics.integrator import hht_scheme
from soft_estimator.physics.model import build_model
from soft_estimator.physics.parameters import Parameters
from soft_estimator.physics.solver import SolverSettings
from soft_estimator.physics.state import State
from soft_estimator.physics.step import Simulation

TOLERANCE = 1e-6
LARGEST_FACTOR = 12_000  # nodes: beyond, a sparse factor of a solid body takes minutes and gigabytes
Apply = Callable[[np.ndarray], np.ndarray]


@dataclass
class Method:
    """A preconditioner: products with the full matrix and work on coarser levels that each application takes."""

    name: str
    apply: Apply
    products: int = 0
    levels: int = 0
    setup_s: float = 0.0


@dataclass
class Problem:
    """A step's matrix on the free numbers, an older one, and the grid places of the free nodes."""

    matrix: sp.csr_matrix
    older: sp.csr_matrix
    rhs: np.ndarray
    place: np.ndarray
    inverse: sp.bsr_matrix = field(init=False)

    def __post_init__(self) -> None:
        self.inverse = block_inverse(self.matrix)


def block_inverse(matrix: sp.csr_matrix) -> sp.bsr_matrix:
    blocks = matrix.tobsr((3, 3))
    rows = np.repeat(np.arange(len(blocks.indptr) - 1), np.diff(blocks.indptr))
    diagonal = blocks.data[blocks.indices == rows]
    n = len(diagonal)
    return sp.bsr_matrix((np.linalg.inv(diagonal), np.arange(n), np.arange(n + 1)), shape=matrix.shape)


def _after(simulation: Simulation, state: State, steps: int) -> State:
    for _ in range(steps):
        state, _ = simulation.step(state)
    return state


def build(nodes: int, young_pa: float) -> Problem:
    """The system after the block has bent for twenty steps, and that of ten steps before."""
    body, grip, _ = block(nodes)
    model = build_model(body, hht_scheme(1 / 60, -0.05), fixed=[grip], solver=SolverSettings(1e-8, 5000))
    simulation = Simulation(model, Parameters(young_pa, 0.4, 1000.0, 0.2, 1e-3))
    half_way = _after(simulation, simulation.initial_state(), 10)
    older = simulation.linearise(half_way).system.to_scipy(simulation.backend)
    lin = simulation.linearise(_after(simulation, half_way, 10))
    free = np.repeat(model.dirichlet.free > 0, 3)
    rhs = simulation.right_hand_side(lin.stage, lin.at).ravel()[free]
    at = np.stack(np.unravel_index(body.node_index, body.grid.shape), axis=1)[model.dirichlet.free > 0]
    cut = [m.tocsr()[free][:, free].tocsr() for m in (lin.system.to_scipy(simulation.backend), older)]
    return Problem(cut[0], cut[1], rhs, at)


def conjugate_gradient(matrix: sp.csr_matrix, b: np.ndarray, apply: Apply) -> int:
    x, r = np.zeros_like(b), b.copy()
    z = apply(r)
    p, rz, goal = z.copy(), r @ z, TOLERANCE * np.linalg.norm(b)
    for k in range(1, 5001):
        ap = matrix @ p
        alpha = rz / (p @ ap)
        x += alpha * p
        r -= alpha * ap
        if np.linalg.norm(r) <= goal:
            return k
        z = apply(r)
        rz, old = r @ z, rz
        p = z + (rz / old) * p
    return -1


def jacobi(problem: Problem) -> Method:
    return Method("block-Jacobi", lambda r: problem.inverse @ r)


def largest_eigenvalue(matrix: sp.csr_matrix, inverse: sp.bsr_matrix) -> float:
    """Of M⁻¹A, by a few Lanczos steps on the similar symmetric matrix."""
    root = inverse.copy()
    values, vectors = np.linalg.eigh(inverse.data)
    root.data = np.einsum("nij,nj,nkj->nik", vectors, np.sqrt(values), vectors)
    operator = sp.linalg.LinearOperator(matrix.shape, lambda v: root @ (matrix @ (root @ v)))
    return 1.05 * float(eigsh(operator, k=1, tol=1e-2, return_eigenvectors=False)[0])


def chebyshev_smoother(matrix: sp.csr_matrix, inverse: sp.bsr_matrix, degree: int, low: float) -> Apply:
    """Chebyshev polynomial in M⁻¹A on the upper part of the spectrum, from `low` of its largest value on."""
    high = largest_eigenvalue(matrix, inverse)
    centre, half = 0.5 * high * (1 + low), 0.5 * high * (1 - low)

    def apply(r: np.ndarray) -> np.ndarray:
        step = (inverse @ r) / centre
        x, rho = step.copy(), half / centre
        for _ in range(degree - 1):
            new = 1.0 / (2.0 * centre / half - rho)
            step = new * rho * step + (2.0 * new / half) * (inverse @ (r - matrix @ x))
            x, rho = x + step, new
        return x

    return apply


def chebyshev(problem: Problem, degree: int) -> Method:
    clock = perf_counter()
    low = 1.0 / (4.0 * degree**2)
    apply = chebyshev_smoother(problem.matrix, problem.inverse, degree, low)
    return Method(f"Chebyshev {degree}", apply, degree - 1, 0, perf_counter() - clock)


def aggregates(problem: Problem) -> Method:
    """Block-Jacobi plus rigid motions of aggregates of 3 x 3 x 3 nodes, solved directly: additive, one level more."""
    clock = perf_counter()
    group = np.unique(problem.place // 3, axis=0, return_inverse=True)[1].ravel()
    n, count = len(group), int(np.max(group)) + 1
    middle = np.stack([np.bincount(group, problem.place[:, a]) for a in range(3)], axis=1) / np.bincount(group)[:, None]
    arm = problem.place - middle[group]
    modes = np.zeros((n, 3, 6))
    modes[:, range(3), range(3)] = 1.0
    for axis in range(3):
        modes[:, :, 3 + axis] = np.cross(np.eye(3)[axis], arm)
    rows = np.repeat(np.arange(3 * n), 6)
    columns = np.repeat(6 * group[:, None] + np.arange(6), 3, axis=0).ravel()
    prolong = sp.csr_matrix((modes.reshape(-1), (rows, columns)), (3 * n, 6 * count))
    coarse = prolong.T @ problem.matrix @ prolong
    coarse = coarse + 1e-10 * sp.diags(np.maximum(coarse.diagonal(), coarse.diagonal().max() * 1e-12))
    factor = splu(coarse.tocsc())

    def apply(r: np.ndarray) -> np.ndarray:
        return problem.inverse @ r + prolong @ factor.solve(prolong.T @ r)

    return Method("aggregates of 27", apply, 0, 1, perf_counter() - clock)


def coarsen(place: np.ndarray, factor: int = 2) -> tuple[sp.csr_matrix, np.ndarray]:
    """Trilinear interpolation from the grid of `factor` times the spacing, for the nodes it reaches."""
    low = place // factor
    corners, weights = [], []
    for bits in np.ndindex(2, 2, 2):
        local = (place - factor * low) / factor
        share = np.where(np.array(bits) == 1, local, 1.0 - local).prod(axis=1)
        corners.append(low + bits)
        weights.append(share)
    all_corners, share = np.concatenate(corners), np.concatenate(weights)
    rows = np.tile(np.arange(len(place)), 8)
    used = share > 0
    coarse, column = np.unique(all_corners[used], axis=0, return_inverse=True)
    scalar = sp.csr_matrix((share[used], (rows[used], column.ravel())), (len(place), len(coarse)))
    return sp.kron(scalar, sp.identity(3)).tocsr(), coarse


def coarse_grid(problem: Problem, factor: int, *, older: bool = False) -> Method:
    """Block-Jacobi plus the grid of `factor` times the spacing, solved directly: additive, one level more."""
    clock = perf_counter()
    prolong, _ = coarsen(problem.place, factor)
    coarse = (prolong.T @ (problem.older if older else problem.matrix) @ prolong).tocsc()
    least = 1e-6 * coarse.diagonal().max()
    inverse = splu(coarse + 1e-9 * sp.diags(np.maximum(coarse.diagonal(), least)))

    def apply(r: np.ndarray) -> np.ndarray:
        return problem.inverse @ r + prolong @ inverse.solve(prolong.T @ r)

    name = f"coarse grid {factor}" + (", 10 ago" if older else "")
    return Method(name, apply, 0, 1, perf_counter() - clock)


def second_level(problem: Problem, *, older: bool = False) -> Method:
    """Block-Jacobi plus the coarse grid that the GPU takes for stiff bodies, its inverse dense in single precision."""
    clock = perf_counter()
    grid = coarse_grid_for(problem.place, np.ones(len(problem.place)))
    if grid is None:
        return jacobi(problem)
    rows = np.repeat(np.arange(len(problem.place)), 8)
    shape = (len(problem.place), grid.count)
    scalar = sp.csr_matrix((grid.weight.ravel(), (rows, grid.parent.ravel())), shape)
    prolong = sp.kron(scalar, sp.identity(3)).tocsr()
    coarse = (prolong.T @ (problem.older if older else problem.matrix) @ prolong).toarray()
    inverse = np.linalg.inv(coarse).astype(np.float32)
    name = f"second level, {grid.factor} cells" + (", 10 ago" if older else "")

    def apply(r: np.ndarray) -> np.ndarray:
        return problem.inverse @ r + prolong @ (inverse @ (prolong.T @ r))

    return Method(name, apply, 0, 1, perf_counter() - clock)


def multigrid(problem: Problem, degree: int, *, older: bool = False) -> Method:
    """V-cycle on the grid: Galerkin products, Chebyshev on block-Jacobi before and after, direct at the bottom."""
    clock = perf_counter()
    levels: list[tuple[sp.csr_matrix, Apply, sp.csr_matrix]] = []
    matrix, place = problem.older if older else problem.matrix, problem.place
    while matrix.shape[0] > 3 * 300:
        prolong, coarse = coarsen(place)
        levels.append((matrix, chebyshev_smoother(matrix, block_inverse(matrix), degree, 0.25), prolong))
        matrix, place = (prolong.T @ matrix @ prolong).tocsr(), coarse
    bottom = splu((matrix + 1e-12 * sp.diags(matrix.diagonal())).tocsc())

    def cycle(depth: int, r: np.ndarray) -> np.ndarray:
        if depth == len(levels):
            return bottom.solve(r)
        matrix, smooth, prolong = levels[depth]
        x = smooth(r)
        x += prolong @ cycle(depth + 1, prolong.T @ (r - matrix @ x))
        return x + smooth(r - matrix @ x)

    name = f"multigrid, Chebyshev {degree}" + (", 10 ago" if older else "")
    each = 2 * degree  # degree - 1 products in each smoother, and two residuals
    return Method(name, lambda r: cycle(0, r), each, each * (len(levels) - 1) + 1, perf_counter() - clock)


def lagged(problem: Problem) -> Method:
    clock = perf_counter()
    options = {"permc_spec": "MMD_AT_PLUS_A", "options": {"SymmetricMode": True}, "diag_pivot_thresh": 0}
    factor = splu(problem.older.tocsc(), **options)
    return Method("factor of 10 steps ago", factor.solve, 0, 1, perf_counter() - clock)


def measure(problem: Problem, method: Method) -> dict:
    clock = perf_counter()
    iterations = conjugate_gradient(problem.matrix, problem.rhs, method.apply)
    solve_s = perf_counter() - clock
    return {
        "method": method.name,
        "iterations": iterations,
        "products": iterations * (1 + method.products),
        "levels": iterations * method.levels,
        "setup_ms": 1e3 * method.setup_s,
        "solve_ms": 1e3 * solve_s,
    }


def measure_all(nodes: int, young_pa: float) -> list[dict]:
    problem = build(nodes, young_pa)
    makers: list[Callable[[], Method]] = [
        lambda: jacobi(problem),
        *(lambda d=d: chebyshev(problem, d) for d in (2, 4)),
        lambda: aggregates(problem),
        lambda: coarse_grid(problem, 4),
        lambda: coarse_grid(problem, 4, older=True),
        lambda: second_level(problem),
        lambda: second_level(problem, older=True),
        *(lambda d=d: multigrid(problem, d) for d in (1, 2)),
        lambda: multigrid(problem, 1, older=True),
    ]
    if nodes <= LARGEST_FACTOR:
        makers.append(lambda: lagged(problem))
    rows = []
    for make in makers:
        row = {"nodes": len(problem.place), "young_pa": young_pa} | measure(problem, make())
        rows.append(row)
        print(
            f"{row['nodes']:>8} {young_pa:>9.0e}  {row['method']:<30} {row['iterations']:>5} iterations "
            f"{row['products']:>6} products {row['levels']:>5} coarse  setup {row['setup_ms']:>9.1f} ms  "
            f"solve {row['solve_ms']:>9.1f} ms",
            flush=True,
        )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", default="1000,9261")
    parser.add_argument("--moduli", default="2e3,2e4,2e5,1e6")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    rows = []
    for nodes in map(int, arguments.nodes.split(",")):
        for young_pa in map(float, arguments.moduli.split(",")):
            rows += measure_all(nodes, young_pa)
    if arguments.json:
        arguments.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
