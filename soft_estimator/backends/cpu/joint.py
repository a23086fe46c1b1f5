"""The loops of block-Jacobi with one larger block, see `backends.joint_loops`."""

from soft_estimator.backends.cpu.joint_factor import factorise_joint
from soft_estimator.backends.cpu.linear import conjugate_gradient_joint
from soft_estimator.backends.cpu.linear_many import conjugate_gradient_joint_many

__all__ = ["conjugate_gradient_joint", "conjugate_gradient_joint_many", "factorise_joint"]
