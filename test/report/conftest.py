"""A report about a ball that changes its shape, made without any simulation."""

from __future__ import annotations

import numpy as np
import pytest
import trimesh

from soft_estimator.report import Moment, Plane, ReportContent, ReportParameter, Series


def make_content() -> ReportContent:
    ball = trimesh.creation.icosphere(3, radius=0.05)
    rng, moments = np.random.default_rng(0), []
    for time_s in (0.0, 0.1, 0.25):
        squeezed = np.array([1 + time_s, 1 + time_s, 1 - 2 * time_s])
        vertices = ball.vertices * squeezed
        points = ball.vertices[rng.integers(0, len(ball.vertices), 200)] * squeezed
        # One half of the ball was seen, with points outside on one side and inside on the other.
        residual = np.where(vertices[:, 1] < 0, 2e-3 * np.sign(vertices[:, 0]), np.nan)
        strain = np.full(len(vertices), time_s)
        plane = Plane((0.0, 0.0, 1.0), 0.05)
        tools = {"tip": (0.2 * ball.vertices + [0.04, 0.0, 0.05 - 0.1 * time_s], np.asarray(ball.faces))}
        moments.append(Moment(time_s, vertices, residual, strain, points, np.full(200, 1e-3), plane, tools))
    at = np.linspace(0, 0.25, 6)
    stiffness = 20e3 + 60e3 * np.exp(-at / 0.05)
    return ReportContent(
        title="ball <&> plane",
        subtitle="A ball made for a test.",
        parameters=[
            ReportParameter("youngs_modulus_pa", "Pa", 20048.7, 22.4, 20004.9, 20092.6, guess=8e4, truth=2e4),
            ReportParameter(
                "poissons_ratio", "", 0.31, 0.1, 0.12, 0.44, truth=0.3, observable=False,
                reason="the body hardly moved sideways to its load",
            ),
        ],
        warnings=["Two frames were set aside."],
        series=[
            Series("youngs_modulus_pa", "Pa", at, stiffness, stiffness * 0.8, stiffness * 1.2, truth=2e4, log=True),
            Series("poissons_ratio", "", at, np.linspace(0.4, 0.31, 6), np.full(6, 0.1), np.full(6, 0.45)),
        ],
        cost=Series("cost", "", at, np.geomspace(100, 0.5, 6), log=True),
        faces=np.asarray(ball.faces),
        moments=moments,
        timing=[("fitting", 1.25), ("frames", 0.034)],
        facts=[("frames used", "3")],
        configuration="name: <ball>\n",
    )  # fmt: skip


@pytest.fixture(scope="session")
def content() -> ReportContent:
    return make_content()
