"""The Python interface: simulate, estimate, measure, and results that are numbers with their uncertainty.

    import soft_estimator as se
    result = se.measure("my_bag", mass="158 g")
    print(result)                        # Young's modulus 12.35 ± 0.14 kPa (95 %: 12.08 to 12.62)
    result.value, result.std, result.interval, result.samples(1000)

Scenes are given as the name of a built-in one, the path of a file, the content of a file as a dictionary, or a scene
made ready. Every mistake is a ValueError of one line that names the thing, the value and the remedy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from soft_estimator.backends.choose import choose_backend
from soft_estimator.config import SceneConfig
from soft_estimator.estimation.fitting.parameter_posterior import ParameterPosterior
from soft_estimator.estimation.fitting.uncertainty import Estimate, shown_label
from soft_estimator.estimation.residuals.observed_frame import ObservedFrame
from soft_estimator.pictures.result_plots import draw_posterior, png_of
from soft_estimator.pictures.wording import choose_unit, plain_name, with_deviation
from soft_estimator.recordings.observed_frames import FrameSet
from soft_estimator.scene.files import read_scene as read_scene_file
from soft_estimator.scene.scene import Scene, build_scene
from soft_estimator.schema import load
from soft_estimator.schema.section import shown
from soft_estimator.schema.units import UnitError, parse_quantity

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from soft_estimator.studies.simulate import SimulationResult

__all__ = ["Quantity", "Result", "Simulated", "estimate", "measure", "read_scene", "simulate"]

AnyScene = str | Path | Mapping[str, Any] | SceneConfig | Scene
# A frame: seconds since the scene's time 0, points (n, 3) [m], and optionally their deviation [m], one or (n,)
Points = tuple[float, np.ndarray] | tuple[float, np.ndarray, float | np.ndarray]


@dataclass(frozen=True, eq=False)
class Quantity:
    """A parameter as it is known.

    Attributes:
        name, unit: of the parameter. value, std: the answer and its standard deviation. interval: of 95 %.
        observable: whether the data could tell it. reason: why not, else "".
    """

    name: str
    unit: str
    value: float
    std: float
    interval: tuple[float, float]
    observable: bool
    reason: str
    _draw: Callable[[int, int], np.ndarray] = field(repr=False)

    def samples(self, count: int, seed: int = 0) -> np.ndarray:
        """Draws from the posterior, (count,); the same for the same seed."""
        return self._draw(count, seed)

    def plot(self, ax: Axes | None = None) -> Axes:
        """Its posterior as a curve, the interval shaded."""
        return draw_posterior(ax, self.name, self.unit, self.value, self.interval, self.samples(2000))

    def __float__(self) -> float:
        return self.value

    def __repr__(self) -> str:
        factor, unit = choose_unit(self.unit, [self.value])
        value, std = with_deviation(self.value / factor, self.std / factor)
        low, high = (f"{bound / factor:.4g}" for bound in self.interval)
        unseen = "" if self.observable else f", not observable: {self.reason}"
        return f"{plain_name(self.name)} {value} ± {std} {unit}".rstrip() + f" (95 %: {low} to {high}){unseen}"

    def _repr_png_(self) -> bytes:
        return png_of(self.plot().figure)


class Result(Mapping[str, Quantity]):
    """What was estimated, by the parameters' names; its own value, std, interval and samples are the first one's.

    Attributes:
        posterior: of all parameters together. detail: the whole result of the study it comes from.
    """

    def __init__(
        self,
        answers: Sequence[Estimate],
        posterior: ParameterPosterior,
        detail: Any,
        save: Callable[[Path], object],
        title: str,
    ) -> None:
        self.posterior, self.detail, self._save, self._title = posterior, detail, save, title
        self._all = {shown_label(e.label, answers): e for e in answers}

    def __getitem__(self, name: str) -> Quantity:
        if name not in self._all:
            raise KeyError(f"'{name}' was not estimated; there are {', '.join(self._all)}")
        e, index = self._all[name], list(self._all).index(name)

        def draw(count: int, seed: int) -> np.ndarray:
            drawn = self.posterior.draw(count, seed)
            return np.array([self.posterior.variables.natural_of(parameters)[index] for parameters in drawn])

        return Quantity(name, e.unit, e.value, e.std, (e.low, e.high), e.observable, e.reason, draw)

    def __iter__(self) -> Iterator[str]:
        return iter(self._all)

    def __len__(self) -> int:
        return len(self._all)

    @property
    def first(self) -> Quantity:
        """The first parameter: Young's modulus of a measurement."""
        return self[next(iter(self._all))]

    @property
    def value(self) -> float:
        """The first parameter's value, in the unit of its name."""
        return self.first.value

    @property
    def std(self) -> float:
        """Its standard deviation."""
        return self.first.std

    @property
    def interval(self) -> tuple[float, float]:
        """Its 95 % interval."""
        return self.first.interval

    def samples(self, count: int, seed: int = 0) -> np.ndarray:
        """Draws of the first parameter, (count,); `posterior.draw` gives all of them together."""
        return self.first.samples(count, seed)

    def plot(self) -> Figure:
        """The posteriors of all parameters, one below the other."""
        from matplotlib.figure import Figure

        figure = Figure(figsize=(6, 2.2 * len(self)), layout="constrained")
        for ax, quantity in zip(np.atleast_1d(figure.subplots(len(self), 1)), self.values()):
            quantity.plot(ax)
        return figure

    def save(self, folder: Path | str) -> Path:
        """Write the result's files into a folder, which is made if needed; the folder."""
        self._save(Path(folder))
        return Path(folder)

    def __repr__(self) -> str:
        return "\n".join([self._title, *(f"  {quantity!r}" for quantity in self.values())])

    def _repr_png_(self) -> bytes:
        return png_of(self.plot())


@dataclass(frozen=True, eq=False)
class Simulated:
    """A simulated motion.

    Attributes:
        scene: what was simulated. times_s: of the kept surfaces (F,). surfaces_m: their vertices (F, V, 3) [m].
        faces: triangles (T, 3). energy_j: total energy after every step (K,). warnings: what was noticed.
    """

    scene: Scene
    times_s: np.ndarray
    surfaces_m: np.ndarray
    faces: np.ndarray
    energy_j: np.ndarray
    warnings: tuple[str, ...]
    detail: SimulationResult = field(repr=False)

    def save(self, folder: Path | str) -> Path:
        """Write pictures, an animation and summary.json into a folder; the folder."""
        from soft_estimator.studies.simulate import write_result

        write_result(self.detail, folder)
        return Path(folder)

    def __repr__(self) -> str:
        body = self.scene.body
        return (
            f"{self.scene.config.name}: {body.cell_count} cells, {len(self.energy_j) - 1} steps, "
            f"{len(self.times_s)} surfaces up to {self.times_s[-1]:.3g} s"
        )


def read_scene(given: AnyScene, folder: Path | str = ".") -> Scene:
    """A scene made ready.

    Args:
        given: its name, path or content. folder: where files that a dictionary names are looked for.
    """
    if isinstance(given, Scene):
        return given
    if isinstance(given, SceneConfig):
        return build_scene(given, Path(folder))
    if isinstance(given, Mapping):
        return build_scene(load(SceneConfig, {"name": "scene", **given}, name="scene"), Path(folder))
    return build_scene(*read_scene_file(str(given)))


def simulate(given: AnyScene, *, steps: int | None = None, backend: str = "auto", every: int = 1) -> Simulated:
    """Simulate a scene.

    Args:
        steps: how many; those of the scene's duration by default.
        every: steps between two kept surfaces; those that `save` draws are kept, too: `times_s` tells when each was.
    """
    from soft_estimator.studies import simulate as study

    made = read_scene(given)
    total = made.config.time.steps if steps is None else steps
    if every < 1 or total < 1:
        raise ValueError(f"steps = {total} and every = {every} must be at least 1")
    kept = sorted({*range(0, total + 1, every), total, *study.strip_steps(made, total), *study.gif_steps(made, total)})
    result = study.simulate(made, choose_backend(backend, made.config.solver.precision), keep=kept, steps=total)
    shown = [result.frames[step] for step in sorted(result.frames)]
    return Simulated(
        made, np.array([frame.time_s for frame in shown]), np.array([frame.vertices_m for frame in shown]),
        made.body.surface.faces, np.array([balance.total_j for balance in result.balances]), result.warnings, result,
    )  # fmt: skip


def estimate(
    given: AnyScene,
    frames: Path | str | Sequence[Points] | None = None,
    *,
    noise_m: float | None = None,
    backend: str = "auto",
) -> Result:
    """Estimate what the scene's `estimate` section names.

    Args:
        frames: what was seen: (seconds since the scene's time 0, points (n, 3) [m]) of each, with the points'
            deviation [m], one or (n,), as a third entry or in noise_m; a folder with stamps.csv; what the scene's own
            cameras would see where left out.
    """
    from soft_estimator.studies.estimate import estimate_scene
    from soft_estimator.studies.estimate_files import write_estimate

    made = read_scene(given)
    where = choose_backend(backend, made.config.solver.precision)
    if frames is None or isinstance(frames, str | Path):
        folder = None if frames is None else Path(frames)
        found = estimate_scene(made, where, frames_dir=folder, noise_m=noise_m)
    else:
        found = estimate_scene(made, where, frames=_frame_set(frames, noise_m))
    variables = found.problem.variables
    posterior = ParameterPosterior(variables, found.posterior.theta, found.posterior.covariance)
    verdict = found.posterior.verdict
    title = made.config.name if verdict.fits else f"{made.config.name}: the model does not fit: {verdict.reason}"
    return Result(found.estimates, posterior, found, lambda out: write_estimate(found, out, plots=False), title)


def measure(
    recording: Path | str,
    mass: float | str,
    *,
    backend: str = "auto",
    cells: int | None = None,
    topic: str | None = None,
    fixed_frame: str | None = None,
    up: Sequence[float] | None = None,
    name: str = "my_object",
    friction: float | None = None,
    **more: Any,
) -> Result:
    """Measure an object from one recording in which it lies still on a table and is dropped.

    Args:
        recording: a bag, or a folder of frames. mass: in kilograms, or with a unit: "158 g".
        cells: grid cells of the body; as many as its shape needs by default.
        topic, fixed_frame: of a bag, where there are several.
        up: direction against gravity in the recording's frame; the table's normal by default.
        friction: first guess of the table's coefficient of friction, which is estimated then; smooth by default.
        name: of the scene that `save` writes. more: finder and choice of `MeasureOptions`.
    """
    from soft_estimator.measuring.looking import MeasureOptions
    from soft_estimator.measuring.measure import measure as measure_recording

    try:
        mass_kg = parse_quantity(mass, "kg") if isinstance(mass, str) else float(mass)
    except UnitError as error:
        raise ValueError(f"mass {mass!r} {error}") from None
    direction = None if up is None else (float(up[0]), float(up[1]), float(up[2]))
    options = MeasureOptions(
        cells=cells, topic=topic, fixed_frame=fixed_frame, up=direction, name=name, friction=friction, **more
    )
    made = measure_recording(recording, mass_kg, options, backend)
    return Result(made.parameters, made.posterior, made, made.save, made.sentence)


def _frame_set(frames: Sequence[Points], noise_m: float | None) -> FrameSet:
    """Points in memory as frames to explain."""
    out = [_observed(number, row, noise_m) for number, row in enumerate(frames)]
    if not out:
        raise ValueError("there are no frames; give (seconds, points) of at least one")
    times = [frame.time_s for frame in out]
    if any(b <= a for a, b in pairwise(times)) or times[0] < 0:
        raise ValueError(f"frames must be in order of time from 0 s on; their seconds are {times[:6]}")
    return FrameSet(tuple(out), tuple(f"frame {k}" for k in range(len(out))))


def _observed(number: int, row: Any, noise_m: float | None) -> ObservedFrame:
    """One of them, by its number."""
    if not isinstance(row, tuple | list) or len(row) not in (2, 3):
        raise ValueError(
            f"frame {number} is of type {type(row).__name__}; give (seconds, points), and their deviation [m] if known"
        )
    if not isinstance(row[0], int | float | np.number) or not np.isfinite(row[0]):
        raise ValueError(f"frame {number} has the time {shown(row[0])}; give seconds since the scene's time 0")
    points = np.asarray(row[1], dtype=np.float64)
    if points.ndim != 2 or points.shape[1] != 3 or not np.isfinite(points).all():
        raise ValueError(f"frame {number} has points of shape {points.shape}; give finite numbers of shape (n, 3)")
    std = row[2] if len(row) > 2 else noise_m
    if std is None:
        raise ValueError(f"frame {number} has no noise; give (seconds, points, deviation [m]), or noise_m")
    std = np.asarray(std, dtype=np.float64)
    if std.shape not in ((), (len(points),)) or not (np.isfinite(std) & (std > 0)).all():
        raise ValueError(
            f"frame {number} has a noise of {shown(std.tolist())}; give metres above 0, one for all or for each of its "
            f"{len(points)} points"
        )
    return ObservedFrame.of(float(row[0]), points, std)
