"""Rows of numbers that loops and whole steps on a device read and write, laid out once for Python and for kernels.

A field carries the name of the registered parameter it holds; λ and μ (for a Young's modulus of 1) are derived from
Poisson's ratio. The kernels' structures and places are generated from these tables as text.
"""

from __future__ import annotations

Layout = tuple[tuple[str, int], ...]

# One row of the materials: these, then Young's modulus of each region. A direction has the same layout: changes of λ
# and μ by Poisson's ratio, of density, contact stiffness and Young's modulus relative to themselves, of all else as
# it is.
MATERIAL: Layout = (
    ("lam", 1),
    ("mu", 1),
    ("density_kg_m3", 1),
    ("mass_damping_per_s", 1),
    ("stiffness_damping_s", 1),
    ("gravity_m_s2", 3),
    ("plane_normal", 3),
    ("plane_offset_m", 1),
    ("contact_stiffness_pa_per_m", 1),
    ("contact_sharpness_per_m", 1),
    ("friction_coefficient", 1),
)
RELATIVE = ("density_kg_m3", "contact_stiffness_pa_per_m", "youngs_modulus_pa")
REGIONAL = "youngs_modulus_pa"

# What a cell's stiffness is made of: ∫∇N_p ∇N_qᵀ [m] for the corner pairs p <= q, nine numbers each, and
# ∫∇N_p / √V [√m] of the corners, V the filled volume.
CELL: Layout = (("gradients", 324), ("dilatation", 24))

# What a node collects in the steps run backwards. The entry of gravity is Mλ, that of density what inertia gives to the
# logarithm of the density; the last are the derivatives by the initial displacement, through moving held nodes. The
# shift of all obstacles gets its part of those that nothing else moves; of the others see MOVE.
ADJOINT_SUMS: Layout = (
    ("stiffness_damping_s", 1),
    ("mass_damping_per_s", 1),
    ("gravity_m_s2", 3),
    ("density_kg_m3", 1),
    ("plane_normal", 3),
    ("plane_offset_m", 1),
    ("contact_stiffness_pa_per_m", 1),
    ("contact_sharpness_per_m", 1),
    ("friction_coefficient", 1),
    ("obstacle_shift_m", 3),
    ("start", 3),
)

# What a body can touch beside the ground's pressing: an obstacle that presses, rubs or both (1, else 0). Stiffness,
# sharpness and friction are its own, or the material's (own: 0). It is posed (1) where more parameters than the shift
# of all obstacles say where it is. Its shape, in its own frame, is the material's plane; z < 0; all points within
# radius_m of a box of half sides half_m, some of which may be 0; or a signed distance grid. A grid names its table of
# spline coefficients by number; beyond it the distance is farthest_m and the way back to it.
PLANE, HALF_SPACE, ROUND, FIELD = range(4)
OBSTACLE: Layout = (
    ("kind", 1),
    ("presses", 1),
    ("rubs", 1),
    ("own", 1),
    ("posed", 1),
    ("stiffness_pa_per_m", 1),
    ("sharpness_per_m", 1),
    ("friction", 1),
    ("slip_speed_m_s", 1),
    ("half_m", 3),
    ("radius_m", 1),
    ("grid_origin_m", 3),
    ("grid_spacing_m", 1),
    ("grid_nodes", 3),
    ("farthest_m", 1),
    ("table", 1),
)

# Where an obstacle is within a step, its shifts and its turn counted in: rotation and origin of its frame in the world
# at its start, when forces balance, in its middle and at the end; and how it moves at the second and third, drift +
# spin x, if it does (1, else 0).
POSE: Layout = (
    ("start_turn", 9),
    ("start_origin_m", 3),
    ("turn", 9),
    ("origin_m", 3),
    ("moves", 1),
    ("drift_m_s", 3),
    ("spin_per_s", 9),
    ("middle_turn", 9),
    ("middle_origin_m", 3),
    ("middle_moves", 1),
    ("middle_drift_m_s", 3),
    ("middle_spin_per_s", 9),
    ("end_turn", 9),
    ("end_origin_m", 3),
)

# How an obstacle's frame moves along a direction of the parameters: the way of its origin, and its turn about that.
# Derivatives by it, which steps run backwards sum up for posed obstacles, are laid out likewise: a force, a moment.
MOVE: Layout = (("way_m", 3), ("turn_rad", 3))
REACH = 37.0  # widths 1/a of its onset beyond which an obstacle is not felt: it presses by 1e-16 of what is firm


def size(layout: Layout) -> int:
    """Numbers in a row."""
    return sum(count for _, count in layout)


def place(layout: Layout, name: str) -> slice:
    """Where a field stands in a row."""
    at = 0
    for field, count in layout:
        if field == name:
            return slice(at, at + count)
        at += count
    raise KeyError(name)


def structure(name: str, layout: Layout) -> str:
    """The C structure of a row of doubles."""
    fields = "".join(f"    double {field}{'' if count == 1 else f'[{count}]'};\n" for field, count in layout)
    return f"struct {name} {{\n{fields}}};\n"


def places(prefix: str, layout: Layout) -> str:
    """`#define PREFIX_FIELD place` for every field, and PREFIX_SIZE."""
    lines = [f"#define {prefix}_{field.upper()} {place(layout, field).start}\n" for field, _ in layout]
    return "".join(lines) + f"#define {prefix}_SIZE {size(layout)}\n"


def kernel_text() -> str:
    """What the kernels of cells and of whole steps are compiled with."""
    material = structure("Material", (*MATERIAL, (f"{REGIONAL}[1]", 1)))  # as many as there are regions
    touched = (
        structure("Obstacle", OBSTACLE) + structure("Pose", POSE) + structure("Move", MOVE) + f"#define REACH {REACH}\n"
    )
    return material + touched + places("BY", ADJOINT_SUMS) + places("CELL", CELL)
