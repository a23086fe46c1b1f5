"""The loops of the multigrid preconditioner, see `backends.multigrid_loops`."""

from soft_estimator.backends.cpu.multigrid_cycle import precondition
from soft_estimator.backends.cpu.multigrid_many import conjugate_gradient_multigrid
from soft_estimator.backends.cpu.multigrid_matrices import coarse_blocks, factorise, invert_blocks, pack_blocks

__all__ = ["coarse_blocks", "conjugate_gradient_multigrid", "factorise", "invert_blocks", "pack_blocks", "precondition"]
