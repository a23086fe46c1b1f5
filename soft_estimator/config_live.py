"""The live part of the configuration: the sliding window over the newest frames. ROS parameters come from here, too."""

from __future__ import annotations

from dataclasses import dataclass

from soft_estimator.schema import ConfigError, Section, choice, quantity


@dataclass(frozen=True, kw_only=True)
class WindowConfig(Section):
    """The sliding window: how much it keeps, how hard it works on each frame, and when it gives up on the object."""

    frames: int = quantity(10, low=2, high=1000, doc="frames the window keeps once it slides")
    grow_to_frames: int = quantity(
        24,
        low=2,
        high=1000,
        doc="frames the window may grow to before it slides for the first time; what happened since the start is then "
        "fitted by a simulation of its own instead of a marginalised covariance",
    )
    least_frames: int = quantity(3, low=1, high=100, doc="frames before the first estimate")
    points_per_frame: int = quantity(400, low=20, high=100000, doc="most points of a frame that are used")
    iterations: int = quantity(3, low=1, high=50, doc="most Gauss-Newton steps for each update")
    time_budget_s: float | None = quantity(
        None,
        unit="s",
        low=0,
        low_open=True,
        doc="wall-clock time of an update, on average: what frames leave of it is saved for simulating the window "
        "anew; with none the result depends on the input alone",
    )
    jacobian_grid: str = choice(
        "auto",
        options=("auto", "fine"),
        doc="where the change of the motion with each variable is worked out: auto takes a grid twice as coarse for a "
        "free body without start.modes whose coarse grid has cells enough, on a GPU from 20,000 cells on (an eighth of "
        "the work, in steps no shorter than the scene's; residuals stay those of the fine grid, so the estimate stays "
        "where the data lead), and looks there at what half the step does and tries other stiffnesses first; fine "
        "takes that of the motion itself for all of it",
    )
    least_interval_s: float = quantity(
        0.0, unit="s", low=0, doc="frames that follow the last one sooner than this are thinned out"
    )
    lost_after_s: float = quantity(
        0.5, unit="s", low=0, low_open=True, doc="time without the object after which it is lost"
    )
    jump_s: float = quantity(
        0.5,
        unit="s",
        low=0,
        low_open=True,
        doc="a stamp this much later than the last one starts anew (it may have been picked up), as any earlier one",
    )
    start: str = choice(
        "register",
        options=("register", "scene"),
        doc="where the body is in the first frame: found by fitting its shape to the points, or as the scene says",
    )
    bent_patience_s: float = quantity(
        1.5,
        unit="s",
        low=0,
        doc="how long to wait for a frame in which the body is not bent, to start from; after that it starts anyway, "
        "says so, and states a larger uncertainty; a body in the air is not waited for where the scene has start.modes",
    )
    position_drift_m: float = quantity(
        0.0005, unit="m", low=0, doc="how far the body may leave its model's path between two frames, per axis"
    )
    velocity_drift_m_s: float = quantity(
        0.02, unit="m/s", low=0, doc="how far its velocity may leave the model's between two frames, per axis"
    )
    surface_std_m: float = quantity(
        0.0002,
        unit="m",
        low=0,
        low_open=True,
        doc="how far the seen surface may lie outside or inside the body's model as a whole: the sensor's bias, the "
        "shape's own error",
    )
    model_std: float = quantity(
        0.01,
        low=0,
        high=1,
        doc="relative standard deviation that is added to what is said of stiffness, damping and density: the grid and "
        "the linear material are not the body, whatever the number of frames",
    )
    plane_std_m: float = quantity(
        0.0005,
        unit="m",
        low=0,
        low_open=True,
        doc="how far the plane the camera sees may be from the one that is touched",
    )
    plane_std_rad: float = quantity(0.005, unit="rad", low=0, low_open=True, doc="the same for its tilt")
    forgetting: float = quantity(
        0.0,
        low=0,
        high=0.5,
        doc="part of what was learnt from frames before the window that is forgotten with each frame; 0 for a material "
        "that does not change",
    )
    stray_sizes: float = quantity(
        0.5, low=0.05, high=10, doc="points farther than this many body sizes from the expected body are set aside"
    )

    def check(self) -> None:
        if self.grow_to_frames < self.frames:
            raise ConfigError(f"= {self.grow_to_frames} must be at least frames ({self.frames})", "grow_to_frames")
        if self.least_frames > self.grow_to_frames:
            raise ConfigError(
                f"= {self.least_frames} must not exceed grow_to_frames ({self.grow_to_frames})", "least_frames"
            )
