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
)
RELATIVE = ("density_kg_m3", "contact_stiffness_pa_per_m", "youngs_modulus_pa")
REGIONAL = "youngs_modulus_pa"

# What a cell's stiffness is made of: ∫∇N_p ∇N_qᵀ [m] for the corner pairs p <= q, nine numbers each, and
# ∫∇N_p / √V [√m] of the corners, V the filled volume.
CELL: Layout = (("gradients", 324), ("dilatation", 24))

# What a node collects in the steps run backwards. The entry of gravity is Mλ, that of density what inertia gives to the
# logarithm of the density; the last are the derivatives by the initial displacement, through moving held nodes.
ADJOINT_SUMS: Layout = (
    ("stiffness_damping_s", 1),
    ("mass_damping_per_s", 1),
    ("gravity_m_s2", 3),
    ("density_kg_m3", 1),
    ("plane_normal", 3),
    ("plane_offset_m", 1),
    ("contact_stiffness_pa_per_m", 1),
    ("contact_sharpness_per_m", 1),
    ("start", 3),
)


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


def structure(name: str, layout: Layout, regional: str) -> str:
    """The C structure of a row of doubles that ends with an array of one number for each region."""
    fields = "".join(f"    double {field}{'' if count == 1 else f'[{count}]'};\n" for field, count in layout)
    return f"struct {name} {{\n{fields}    double {regional}[1];\n}};\n"


def places(prefix: str, layout: Layout) -> str:
    """`#define PREFIX_FIELD place` for every field, and PREFIX_SIZE."""
    lines = [f"#define {prefix}_{field.upper()} {place(layout, field).start}\n" for field, _ in layout]
    return "".join(lines) + f"#define {prefix}_SIZE {size(layout)}\n"


def kernel_text() -> str:
    """What the kernels of cells and of whole steps are compiled with."""
    return structure("Material", MATERIAL, REGIONAL) + places("BY", ADJOINT_SUMS) + places("CELL", CELL)
