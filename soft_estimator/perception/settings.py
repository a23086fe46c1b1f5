"""Settings of perception: the only home of its defaults, units and bounds."""

from __future__ import annotations

from dataclasses import dataclass

from soft_estimator.config_body import Vector, check_box
from soft_estimator.schema import ConfigError, Section, choice, quantity, section, sections, setting, vector


@dataclass(frozen=True, kw_only=True)
class BoxSettings(Section):
    """An axis-aligned box in the fixed frame."""

    low_m: Vector = vector(unit="m", doc="lowest corner of the box")
    high_m: Vector = vector(unit="m", doc="highest corner of the box")

    def check(self) -> None:
        check_box(self.low_m, self.high_m)


@dataclass(frozen=True, kw_only=True)
class NoiseSettings(Section):
    """What the sensor is expected to do: standard deviation a + b z² along the optical axis at depth z."""

    floor_m: float = quantity(0.0005, unit="m", low=0, low_open=True, doc="a, the noise that does not depend on depth")
    per_m: float = quantity(0.0025, unit="1/m", low=0, doc="b, the growth with the square of depth")
    lateral_px: float = quantity(
        0.3, low=0, doc="standard deviation of where in the image a pixel really looks, in pixels"
    )
    shared_px: float = quantity(
        1.0,
        low=1,
        doc="neighbouring pixels that share one error; a stereo matcher's window makes it 5 to 25. Averages over many "
        "pixels are trusted that much less",
    )
    min_depth_m: float = quantity(0.1, unit="m", low=0, doc="nearer measurements are dropped")
    max_depth_m: float = quantity(10.0, unit="m", low=0, low_open=True, doc="farther measurements are dropped")

    def check(self) -> None:
        if self.min_depth_m >= self.max_depth_m:
            raise ConfigError(f"= {self.min_depth_m} must be below max_depth_m ({self.max_depth_m})", "min_depth_m")


@dataclass(frozen=True, kw_only=True)
class PlaneSettings(Section):
    """The support plane: how it is found, and what counts as part of it."""

    expected_normal: Vector | None = vector(None, doc="direction away from the table, if known; any length but zero")
    max_tilt_rad: float = quantity(
        0.5, unit="rad", low=0, high=1.6, low_open=True, doc="largest angle between the plane's and the expected normal"
    )
    min_share: float = quantity(0.1, low=0, high=1, doc="least share of the points that must lie on the plane")
    hypotheses: int = quantity(256, low=8, high=100000, doc="planes through three random points that are tried")
    sample: int = quantity(2048, low=16, high=1000000, doc="random points a tried plane is judged by")
    least_thickness_m: float = quantity(0.001, unit="m", low=0, doc="points closer than this belong to the plane")
    thickness_sigmas: float = quantity(2.5, low=0, doc="points closer than this many standard deviations, too")
    seed: int = quantity(0, low=0, doc="seed of the random choices")

    def check(self) -> None:
        if self.expected_normal is not None and max(map(abs, self.expected_normal)) < 1e-100:
            raise ConfigError("= [0, 0, 0] has no direction; give one such as [0, 0, 1]", "expected_normal")


@dataclass(frozen=True, kw_only=True)
class TrackSettings(Section):
    """How the object is chosen among the pieces of a cloud and followed from frame to frame."""

    seed_m: Vector | None = vector(None, unit="m", doc="a point on or in the object in the first frame")
    seed_reach_m: float = quantity(0.05, unit="m", low=0, low_open=True, doc="how near the seed the object must be")
    self_gap_m: float = quantity(
        0.04,
        unit="m",
        low=0,
        doc="pieces nearer to each other are one object in the first frame: it hides part of itself",
    )
    speck_gap_m: float = quantity(
        0.015, unit="m", low=0, doc="pieces of few points this near to the object are its own, cut off by lost pixels"
    )
    rival_share: float = quantity(
        0.4, low=0, high=1, low_open=True, doc="a second piece with this share of the largest one's points is a rival"
    )
    reach_m: float = quantity(
        0.05, unit="m", low=0, doc="how far beyond its predicted box the object may reach: motion and deformation"
    )
    size_m: float | None = quantity(
        None,
        unit="m",
        low=0,
        low_open=True,
        doc="the object's largest width, where its shape is known: a piece that is much wider is not, or not only, it; "
        "cloud_node then learns which flat things stand about. The graphs take it from the scene where no file sets it",
    )
    own_share: float = quantity(
        0.7,
        low=0.5,
        high=1,
        doc="a piece with this share of its points in the predicted box is the object's as a whole",
    )
    patience_frames: int = quantity(15, low=0, doc="frames without the object after which it is given up")
    forget_after_s: float = quantity(
        1.0,
        unit="s",
        low=0,
        low_open=True,
        doc="a gap between frames after which the object is looked for anew, as where time jumps back",
    )


@dataclass(frozen=True, kw_only=True)
class ColourSettings(Section):
    """The object's colour, for clouds that carry colours; points of another colour are masked."""

    hue_rad: float = quantity(unit="rad", low=0, high=6.284, doc="hue: 0 red, 2.1 green, 4.2 blue")
    hue_width_rad: float = quantity(0.5, unit="rad", low=0, low_open=True, high=3.15, doc="largest difference in hue")
    least_saturation: float = quantity(0.25, low=0, high=1, doc="greyer points are masked")
    least_value: float = quantity(0.1, low=0, high=1, doc="darker points are masked")


@dataclass(frozen=True, kw_only=True)
class FinderSettings(Section):
    """From a cloud to the object's points."""

    noise: NoiseSettings = section(NoiseSettings, doc="the sensor's noise")
    crop: BoxSettings | None = section(None, doc="only points in this box are looked at")
    excluded: tuple[BoxSettings, ...] = sections(doc="points in these boxes are removed: a robot, a fixture")
    colour: ColourSettings | None = section(None, doc="the object's colour, if the cloud carries colours")
    support: str = choice("fit", options=("fit", "none"), doc="whether there is a support plane to find and remove")
    plane: PlaneSettings = section(PlaneSettings, doc="the support plane")
    track: TrackSettings = section(TrackSettings, doc="choosing and following the object")
    edge_incidence_rad: float = quantity(
        1.31,
        unit="rad",
        low=0,
        high=1.56,
        doc="steepest incidence of a surface; a steeper step between pixels is an edge",
    )
    steepest_incidence_rad: float = quantity(
        1.46,
        unit="rad",
        low=0,
        high=1.56,
        doc="steepest incidence at which a pixel that looks like an edge is kept: if its neighbours lie on a plane "
        "with it",
    )
    edge_sigmas: float = quantity(3.0, low=0, doc="standard deviations a step must exceed beyond that to be an edge")
    least_friends: int = quantity(3, low=0, high=8, doc="neighbours on the same surface below which a pixel is flying")
    cluster_gap_m: float = quantity(
        0.01, unit="m", low=0, low_open=True, doc="gap that parts two pieces of an unorganised cloud"
    )
    sparse_share: float = quantity(
        0.15,
        low=0,
        high=1,
        doc="points of an unorganised cloud with less than this share of the usual density are flying",
    )
    min_points: int = quantity(50, low=1, doc="pieces with fewer points are specks")
    point_budget: int = quantity(
        2000,
        low=20,
        high=1_000_000,
        doc="most points handed on; neighbouring rays are averaged to fit",
        advice="fewer than 20 points have no pose",
    )
    least_voxel_m: float = quantity(
        0.002, unit="m", low=0, low_open=True, doc="narrowest bundle of rays to average over"
    )


@dataclass(frozen=True, kw_only=True)
class ScanSettings(Section):
    """From static frames to a rest shape."""

    target_cells: int = quantity(4000, low=50, high=2_000_000, doc="active grid cells the body is to have, roughly")
    voxel_m: float | None = quantity(
        None, unit="m", low=0, low_open=True, doc="voxel of the fusion; by the sensor's noise and pixels if left out"
    )
    prior: str = choice(
        "symmetry",
        options=("symmetry", "balls", "extrusion", "poisson", "none"),
        doc="what closes the unseen back: a symmetry, the largest balls that touch the front from within, columns down "
        "to the support plane, Poisson (Open3D), or nothing (all space that was not seen free counts as body)",
    )
    symmetry: str = choice(
        "revolution",
        options=("revolution", "half_turn", "mirror"),
        doc="about a vertical axis, by half a turn about it, or at a vertical plane",
    )
    node_budget: int = quantity(20_000_000, low=1000, doc="most nodes the fusion grid may have")
    smooth_rounds: int = quantity(0, low=0, high=50, doc="rounds of volume-keeping smoothing of the surface")


@dataclass(frozen=True, kw_only=True)
class RegisterSettings(Section):
    """From a rest shape and a cloud to a pose."""

    yaw_steps: int = quantity(24, low=1, high=720, doc="turns about the upward direction that are tried")
    flips: bool = setting(True, doc="whether the shape may lie on any of its six sides, or only as it is")
    points: int = quantity(1500, low=20, doc="most points the final fit uses")
    coarse_points: int = quantity(200, low=10, doc="points the coarse tries use")
    keep: int = quantity(8, low=1, doc="coarse tries that are refined")
    min_fitness: float = quantity(0.8, low=0, high=1, doc="least share of points that must lie on the fitted shape")
    min_seen: float = quantity(
        0.6, low=0, high=1, doc="least share of the shape's surface facing the sensor that must have points"
    )
    max_tilt_rad: float = quantity(
        0.6, unit="rad", low=0, high=3.2, doc="largest turn of the fit away from the coarse try it started from"
    )
