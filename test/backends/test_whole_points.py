"""The point-cloud residual against the CPU's, frame by frame and for a whole window at once."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from soft_estimator.estimation.residuals.carried_field import carry_field
from soft_estimator.estimation.residuals.observed_frame import ObservedFrame
from soft_estimator.estimation.residuals.surface_distance import point_residuals
from soft_estimator.estimation.residuals.surface_observer import build_observer, watch


@pytest.fixture(scope="module")
def scene(whole, whole_torus):
    """Three displacements of a body, smooth and large, and frames of points: on it, in it, near it and far from it."""
    body, rng = whole_torus, np.random.default_rng(3)
    count = 60 if whole.name == "reference" else 400
    x = body.node_position_m
    us, frames = [], []
    for k in range(3):
        bend = np.stack([np.sin(20 * x[:, 1] + k), np.cos(15 * x[:, 2]), np.sin(18 * x[:, 0] - k)], axis=1)
        us.append(0.006 * (k + 1) * bend + [0.01 * k, 0.0, -0.02])
        surface = body.surface_positions_m(us[-1])
        near = surface[rng.integers(len(surface), size=count)] + rng.normal(scale=0.006, size=(count, 3))
        away = surface.mean(axis=0) + rng.normal(scale=0.15, size=(count // 4 + 10 * k, 3))
        frames.append(ObservedFrame.of(0.1 * k, np.concatenate([near, away]), 2e-3))
    return body, carry_field(body), us, frames


def test_loops_of_one_frame(whole, scene):
    """find_cells and surface_distances through the plain function: the same residuals and derivatives to 1e-10."""
    body, field, us, frames = scene
    du = np.random.default_rng(0).normal(size=us[0].shape)
    for u, frame in zip(us, frames):
        want, got = (point_residuals(body, field, frame, u, backend) for backend in (None, whole))
        assert np.abs(got.value_m - want.value_m).max() <= 1e-10 * np.abs(want.value_m).max()
        assert np.array_equal(got.far, want.far)
        assert np.linalg.norm(got.change(du) - want.change(du)) <= 1e-9 * np.linalg.norm(want.change(du))


def test_whole_window(whole, scene):
    """Values, change along two columns at a share of the way, and pull-back of three frames in one go."""
    body, field, us, frames = scene
    view = watch(build_observer(body, field, whole), frames)
    value = whole.to_host(view.measure(whole.to_device(np.stack(us))))
    parts = [point_residuals(body, field, frame, u) for u, frame in zip(us, frames)]
    want = np.concatenate([p.value_m for p in parts])
    assert np.abs(value - want).max() <= 1e-10 * np.abs(want).max()
    assert int(view.far.sum()) == sum(int(p.far.sum()) for p in parts) > 0
    rng = np.random.default_rng(1)
    before, after = rng.normal(size=(2, 2, body.node_count, 3))
    rows = whole.xp.zeros((len(value), 2))
    for k in range(3):
        view.change(k, whole.to_device(before), whole.to_device(after), 0.3, rows)
    for j in range(2):
        moved = 0.7 * before[j] + 0.3 * after[j]
        column = np.concatenate([p.change(moved) / f.std_m for p, f in zip(parts, frames)])
        assert np.linalg.norm(whole.to_host(rows)[:, j] - column) <= 1e-9 * np.linalg.norm(column)
    bar = rng.normal(size=len(value))
    pulled = whole.to_host(view.pull_back(whole.to_device(bar)))
    ends = np.cumsum([0] + [len(f.points_m) for f in frames])
    for k, part in enumerate(parts):
        back = part.pull_back(bar[ends[k] : ends[k + 1]])
        assert np.linalg.norm(pulled[k] - back) <= 1e-9 * np.linalg.norm(back)


def test_noise_along_rays(whole, scene):
    """Frames that say where the noise moved their points: the line's meeting with the surface, and its change."""
    body, field, us, frames = scene
    rng = np.random.default_rng(4)
    rays = []
    for u, frame in zip(us, frames):
        normal = point_residuals(body, field, frame, u).parts[0][1]
        normal = normal / np.maximum(np.linalg.norm(normal, axis=1, keepdims=True), 1e-9)
        ray = normal + 0.4 * rng.normal(size=normal.shape)
        along = np.einsum("na,na->n", ray, normal)[:, None]
        rays.append(replace(frame, along=np.where(along > 0.2, ray / np.where(along > 0.2, along, 1.0), 0.0)))
    rays[2] = frames[2]  # and one that does not
    view = watch(build_observer(body, field, whole), rays)
    value = whole.to_host(view.measure(whole.to_device(np.stack(us))))
    parts = [point_residuals(body, field, frame, u) for u, frame in zip(us, rays)]
    want = np.concatenate([p.value_m for p in parts])
    plain = np.concatenate([point_residuals(body, field, frame, u).value_m for u, frame in zip(us, frames)])
    assert np.abs(want - plain).max() > 1e-4  # the rays do something
    # Newton on the CPU goes on until the last point is at 1e-10 of a cell; a point that grazes the surface may be
    # given up on one side and not on the other.
    off = np.abs(value - want)
    assert np.mean(off > 1e-9 * field.spacing_m) < 0.005
    rows = whole.xp.zeros((len(value), 1))
    du = rng.normal(size=us[0].shape)
    for k in range(3):
        view.change(k, whole.to_device(du[None]), whole.to_device(du[None]), 0.0, rows)
    column = np.concatenate([p.change(du) / f.std_m for p, f in zip(parts, rays)])
    good = off <= 1e-9 * field.spacing_m
    assert np.linalg.norm((whole.to_host(rows)[:, 0] - column)[good]) <= 1e-6 * np.linalg.norm(column)


def test_same_bits_again(whole, scene):
    body, field, us, frames = scene
    runs = []
    for _ in range(2):
        view = watch(build_observer(body, field, whole), frames)
        value = view.measure(whole.to_device(np.stack(us)))
        runs.append([whole.to_host(x) for x in (value, view.pull_back(value), view.far)])
    assert all(np.array_equal(a, b) for a, b in zip(*runs))


def test_a_point_exactly_on_a_face_is_found(whole, scene):
    """Two cells share it; the lower one of those with the same value is taken, as on the CPU."""
    _, field, _, _ = scene
    middle = field.position_m[field.cell_nodes[:200]].mean(axis=1)
    middle[:, 2] = field.position_m[field.cell_nodes[:200, 1], 2]  # on the face towards the next cell along z
    grid = (field.position_m, field.cell_nodes, field.in_body, field.phi_m)
    from soft_estimator.backends.cpu import CpuBackend

    cpu = CpuBackend.find_cells(middle, *grid, field.spacing_m)
    gpu = whole.find_cells(whole.to_device(middle), *map(whole.to_device, grid), field.spacing_m)
    assert (cpu[0] >= 0).all()
    value = [_value(field, *(np.asarray(whole.to_host(x)) for x in found)) for found in (cpu, gpu)]
    assert np.allclose(*value, rtol=0, atol=1e-12)


def _value(field, cell, local):
    bits = (np.arange(8)[:, None] >> np.array([2, 1, 0])) & 1
    share = np.where(bits[None] == 1, local[:, None], 1 - local[:, None]).prod(axis=2)
    return (share * field.phi_m[field.cell_nodes[cell]]).sum(axis=1)
