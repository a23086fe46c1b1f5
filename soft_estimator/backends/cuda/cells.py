"""Launches conjugate gradients for a batch of systems that share the body, without their matrices."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

import cupy
import numpy as np
import numpy.typing as npt

from soft_estimator.backends.cuda.arrays import near_power_of_two, precision, typed
from soft_estimator.backends.cuda.cell_layout import ROW, lay_out_cells, lumped_volume, mass_scale, mode_weights
from soft_estimator.backends.cuda.kernels import allow_shared_bytes, compile_ahead, kernel, launch
from soft_estimator.backends.cuda.linear import BREAKDOWN, Plan
from soft_estimator.backends.interface import Array

MOST_SYSTEMS = 32  # of a launch, as in conjugate_gradient_cells.cu
_WIDTHS = (8, 16, 32)  # numbers of lanes that kernels are compiled for
THREADS = 384  # of a block, likewise
_SCRATCH_BYTES, _SYSTEMS_BYTES = 100 * 8, 4352
_REQUESTED = 21  # numbers of the next cell, as in conjugate_gradient_cells.cu
_FEWEST_ROWS = 16  # of a block: below that, more thread blocks only make the waiting longer
_TILE_THREADS = 256
LARGEST_SHARED = 1 << 30  # bytes of a block's own arrays in shared memory
_LEAST_SLOPE = 1e-20  # of contact that changes anything
SINGLE_FIRST = True  # double precision starts from a solution in single precision, whose iterations take a third
SINGLE_REACHES = 2e-6  # relative residual; below, rounding would keep it from ending


def _fixed_bytes(size: int) -> int:
    """Shared memory that every block needs, for numbers of so many bytes."""
    return _SCRATCH_BYTES + _SYSTEMS_BYTES + (3 * 8 + _REQUESTED * size) * THREADS


def device_can_solve(real: npt.DTypeLike) -> bool:
    """Whether the device's blocks have the shared memory that `CellSolver` needs."""
    return _fixed_bytes(precision(real).itemsize) <= cupy.cuda.Device().attributes["MaxSharedMemoryPerBlockOptin"]


class CellSolver:
    """Conjugate gradients for `systems` systems on the cells of a body; does not wait for the device.

    In double precision they begin in single precision, and only what that leaves is iterated on; iterations of both
    are counted.

    Args:
        scheme: as the kernels of a step take it. arrays: the body's, on the device. moments: (T, 28), see
            `cell_layout.cell_moments`. mass_table: consistent masses over the density of the corner pairs (T, 36) [m³].
            contact: c_k times the contact stiffness [Pa/m], 0 without implicit contact.
    """

    def __init__(
        self,
        scheme: Array,
        arrays: Mapping[str, Any],
        moments: np.ndarray,
        mass_table: np.ndarray,
        systems: int,
        real: npt.DTypeLike,
        contact: float,
    ) -> None:
        self.scheme, self.real, self.contact = scheme, precision(real), contact
        self.systems, self.nodes, self.cells = systems, len(arrays["free"]), len(arrays["cell_nodes"])
        launches = (systems + MOST_SYSTEMS - 1) // MOST_SYSTEMS
        self.given = [len(x) for x in np.array_split(np.arange(systems), launches)]
        self.width = next(width for width in _WIDTHS if width >= max(self.given))
        processors = cupy.cuda.Device().attributes["MultiProcessorCount"]
        self.team = min(processors, (self.nodes + _FEWEST_ROWS - 1) // _FEWEST_ROWS)
        defines = (f"SIDE_BY_SIDE={self.width}", f"WITH_CONTACT={'true' if contact > 0 else 'false'}")
        self._module = ("conjugate_gradient_cells", self.real.name, *defines)
        compile_ahead(("lanes", self.real.name), self._module)
        self.single: CellSolver | None = None
        if SINGLE_FIRST and self.real == np.float64:
            single = {**arrays, "free": arrays["free"].astype(np.float32)}
            self.single = CellSolver(scheme, single, moments, mass_table, systems, np.float32, contact)
        self.free, self.area = arrays["free"], arrays["point_area"]
        self._allocate({k: cupy.asnumpy(v) for k, v in arrays.items()}, moments, mass_table)
        self.tag = 0

    @cached_property
    def kernel(self) -> cupy.RawKernel:
        name, *options = self._module
        out = kernel(name, name, *options)
        allow_shared_bytes(out, self.plan.shared_bytes)
        return out

    def _plan(self, own_cells: int, own_places: int) -> Plan:
        """As many of a block's own arrays in shared memory as fit, in the order of find_own_part.

        Args: own_cells, own_places: that a block has at most.
        """
        size, share = self.real.itemsize, (self.nodes + self.team - 1) // self.team
        vector = 3 * share * self.width * size
        # free, volume, cells, places' starts, places, moments; r, s, p, inverse, x
        sizes = [size * share, 8 * share, 64 * own_cells, 4 * (share + 1), 4 * own_places, ROW * size * own_cells]
        sizes += [vector, vector, vector, 2 * vector, vector]
        fixed = _fixed_bytes(size)
        room = min(cupy.cuda.Device().attributes["MaxSharedMemoryPerBlockOptin"] - fixed, LARGEST_SHARED)
        ends = np.cumsum([0, *((x + 15) // 16 * 16 for x in sizes)])
        in_shared = int((ends <= room).sum()) - 1
        used = int(fixed + ends[in_shared])
        return Plan("conjugate_gradient_cells", self.team, THREADS, in_shared, used, MOST_SYSTEMS)

    def _allocate(self, arrays: Mapping[str, np.ndarray], moments: np.ndarray, mass_table: np.ndarray) -> None:
        n, w, real = self.nodes, self.width, self.real
        parts, team = THREADS // w, self.team
        cells, start, place = lay_out_cells(arrays, team * parts)
        share, blocks = (n + team - 1) // team, np.arange(team + 1)
        own_cells = np.diff(self.cells * parts * blocks // (team * parts)).max()
        own_places = np.diff(start[np.minimum(blocks * share, n)]).max()
        self.plan = self._plan(int(own_cells), int(own_places))
        self.rotation, self.inverse = cupy.empty((self.cells, 9, w), real), cupy.empty((n, 6, w), real)
        self.b, self.x, self.r, self.p, self.s, self.z = (cupy.zeros((n, 3, w), real) for _ in range(6))
        self.touch = cupy.zeros((max(1, len(self.area)), w), real)
        forces = cupy.empty((int(cells[:, 8].max()) + 2, 4, 3, w), real)
        self.words = [cupy.zeros((2, team, 2)), cupy.zeros((3 * w * (team + 1), 2))]
        weights = mode_weights(arrays["point_weight"])
        self.mass_scale, index = mass_scale(moments, mass_table), arrays["gradient_index"]
        lumped = cupy.asarray(lumped_volume(arrays["volume"], arrays["cell_nodes"], index, mass_table))
        # In the order of CELL_ARRAYS in conjugate_gradient_cells.cu.
        self._arrays = (
            *(self.free, lumped),
            *(typed(cupy.asarray(a), np.int32) for a in (cells, start, place)),
            *(typed(cupy.asarray(a), real) for a in (moments[arrays["gradient_index"]], weights)),
            *(self.rotation, self.inverse, self.touch, self.b, self.x, self.r, self.p, self.s, self.z, forces),
        )
        self.order = cupy.zeros((len(self.given), w), np.int32)
        self.set_order(np.arange(self.systems))

    def set_order(self, order: np.ndarray) -> None:
        """Which systems go together: those that need about as many iterations, so that few lanes idle."""
        rows, first = np.zeros((len(self.given), self.width), np.int32), 0
        for row, given in zip(rows, self.given):
            row[:given], first = order[first : first + given], first + given
            row[given:] = row[0]
        self.order.set(rows)

    def solve(
        self,
        materials: Array,
        rotation: Array,
        inverse: Array,
        b: Array,
        x: Array,
        touch: Array,
        tolerance: float,
        limit: int,
        report: Array,
    ) -> None:
        """Solve from the guesses in x, which is overwritten.

        Args:
            materials: (systems, numbers). rotation: (systems, C, 9). inverse: of the diagonal blocks, (systems, N,
                9). b, x: (systems, N, 3). touch: (systems, P, 2).
            report: out, (systems, 3): iterations, relative residual, status.
        """
        for order, given in zip(self.order, self.given):
            self._to_lanes(order, rotation, self.rotation)
            self._to_lanes(order, inverse, self.inverse, triangle=True)
            self._to_lanes(order, b, self.b)
            self._to_lanes(order, x, self.x)
            if self.contact > 0:
                points, least = len(self.area), _LEAST_SLOPE * self.contact
                arguments = (points, self.width, order, least, self.area, touch, self.touch)
                launch("lanes", "touch_to_lanes", self.real, points * self.width, *arguments)
            first = self._solve_in_single(materials, order, given, tolerance, limit) if limit > 0 else None
            self._iterate(materials, order, given, tolerance, limit, report)
            if first is not None:
                rows = order[:given]
                report[rows, 0] += first[rows, 0]
            sizes = map(np.int32, (3 * self.nodes, self.width, given))
            self._tiles("from_lanes", 3 * self.nodes, *sizes, order, self.x, x)

    def _iterate(self, materials: Array, order: Array, given: int, tolerance: float, limit: int, report: Array) -> None:
        """On what is in the lanes."""
        sizes = map(np.int32, (materials.shape[1], self.nodes, self.cells, given, self.plan.room))
        batch = (self.scheme, materials, *sizes, np.float64(self.mass_scale), order, *self._arrays, *self.words)
        stop = (np.float64(tolerance), np.int32(limit), np.uint32(self._next_tag(limit)))
        self.kernel((self.team,), (self.plan.threads,), (*batch, *stop, report), shared_mem=self.plan.shared_bytes)

    def _solve_in_single(
        self, materials: Array, order: Array, given: int, tolerance: float, limit: int
    ) -> cupy.ndarray | None:
        """Replace the guesses in the lanes by solutions in single precision; their report, (systems, 3)."""
        single = self.single
        if single is None:
            return None
        for name in ("rotation", "inverse", "touch"):
            cupy.copyto(getattr(single, name), getattr(self, name), casting="same_kind")
        size = near_power_of_two(cupy.abs(self.b).max(axis=(0, 1)))  # of each lane: squares must not vanish
        for name in ("b", "x"):
            cupy.divide(getattr(self, name), size, out=getattr(single, name))
        report = cupy.zeros((self.systems, 3))
        single._iterate(materials, order, given, max(tolerance, SINGLE_REACHES), limit, report)
        taken = (self.free != 0)[:, None, None] & (report[order, 2] != BREAKDOWN)  # held nodes stay as they are
        self.x[...] = cupy.where(taken, single.x * size, self.x)
        return report

    def _to_lanes(self, order: Array, source: Array, target: Array, triangle: bool = False) -> None:
        """Lay out (systems, numbers) with the systems beside each other, in the order of the lanes."""
        count, length = target.size // self.width, np.int64(source.size // self.systems)
        numbers = (np.int32(count), length, np.int32(self.width), np.int32(triangle))
        self._tiles("to_lanes", count, *numbers, order, source, target)

    def _tiles(self, function: str, count: int, *arguments: object) -> None:
        kernel("lanes", function, self.real.name)(((count + 31) // 32,), (_TILE_THREADS,), arguments)

    def _next_tag(self, limit: int) -> int:
        """The first of the tags of a solve: two an iteration, and systems may start again a few times."""
        need = 10 * limit + 128
        tag, self.tag = self.tag, self.tag + need
        if self.tag < 1 << 32:
            return tag
        for words in self.words:  # all numbers used up: forget the old tags and start again
            words[...] = 0
        self.tag = need
        return 0
