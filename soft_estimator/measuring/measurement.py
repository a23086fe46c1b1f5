"""A measurement: what was found of an object in one recording, and the files that go on from it."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from soft_estimator.camera.scene_cameras import scene_cameras
from soft_estimator.estimation.fitting.parameter_posterior import ParameterPosterior
from soft_estimator.estimation.fitting.uncertainty import Estimate
from soft_estimator.estimation.window.live_estimate import LiveEstimate
from soft_estimator.estimation.window.refusals import Refusals
from soft_estimator.geometry.body_file import body_bytes
from soft_estimator.geometry.rigid import quaternion
from soft_estimator.measuring.phases import Drop, Poke
from soft_estimator.perception.scan import ScannedBody
from soft_estimator.pictures.wording import choose_unit, plain_name, with_deviation
from soft_estimator.scene.rest_shape import REST_SHAPE, rest_shape_bytes
from soft_estimator.scene.scene import Scene

SCENE_FILE, RESULT_FILE, BODY_FILE = "scene.yaml", "measurement.json", "body.npz"


@dataclass(frozen=True, eq=False)
class Measurement:
    """What one recording tells of an object.

    Attributes:
        recording: its path. mass_kg: as it was weighed. body: its rest shape. scene: what explained the drops.
        plain: the scene as its file says it, with what was found as guesses. parameters: the answers.
        posterior: of the parameters together. drops: that were used. estimates: all, in order of time;
            after_drops: the last of each drop.
        frames, used: frames in the recording, and of its drops that were used. refusals: why others were not.
        notes: what a reader should know. pokes: that were found and left out. stopped: why it was ended before its last
            drop was worked out, "" where it was not.
    """

    recording: Path
    mass_kg: float
    body: ScannedBody
    scene: Scene
    plain: dict[str, Any]
    parameters: tuple[Estimate, ...]
    posterior: ParameterPosterior
    drops: list[Drop]
    estimates: list[LiveEstimate]
    after_drops: list[LiveEstimate]
    frames: int
    used: int
    refusals: Refusals
    notes: list[str] = field(default_factory=list)
    pokes: list[Poke] = field(default_factory=list)
    stopped: str = ""

    @property
    def stiffness(self) -> Estimate:
        """Young's modulus [Pa]."""
        return self.parameters[0]

    @property
    def sentence(self) -> str:
        """What was found, in one sentence."""
        e = self.stiffness
        size = " × ".join(f"{1e3 * side:.0f}" for side in np.ptp(self.body.vertices_m, axis=0))
        volume, std = with_deviation(1e6 * self.body.volume_m3, 1e6 * (self.body.volume_std_m3 or 0.0))
        drops = "1 drop" if len(self.drops) == 1 else f"{len(self.drops)} drops"
        shape = {"ball": "a ball", "box": "a box", "capsule": "a capsule", "ring": "a ring"}.get(
            self.body.prior, "a body"
        )
        what = f"{shape} of {size} mm ({volume} ± {std} cm³, {1e3 * self.mass_kg:.4g} g) seen in {drops}"
        if not e.observable:
            return f"The stiffness of {what} could not be told: {e.reason}."
        factor, unit = choose_unit(e.unit, [e.value])
        value, deviation = with_deviation(e.value / factor, e.std / factor)
        low, high = (f"{bound / factor:.3g}" for bound in (e.low, e.high))
        return f"Young's modulus is {value} ± {deviation} {unit} (95 %: {low} to {high} {unit}), of {what}."

    @property
    def sensor_pose(self) -> str:
        """Where the camera stood in the scene's frame, as --sensor-pose takes it: x y z qx qy qz qw."""
        camera = scene_cameras(self.scene.config)[0]
        turn = quaternion(camera.rotation)
        return " ".join(f"{x:.5f}" for x in (*camera.position_m, *turn))

    def next_commands(self, folder: Path | str) -> list[str]:
        """Commands that go on from the files in a folder, quoted for a shell."""
        scene, bag = shlex.quote(str(Path(folder) / SCENE_FILE)), shlex.quote(str(self.recording))
        pose = shlex.quote(self.sensor_pose)
        return [
            f"soft-estimator replay {bag} --scene {scene} --out {shlex.quote(str(Path(folder) / 'replay'))}",
            f"soft-estimator run live --preset realsense_d435 --scene {scene} --sensor-pose {pose}",
            f"soft-estimator view --replay {shlex.quote(str(folder))}",
            f"soft-estimator export {shlex.quote(str(folder))} --to mjcf --samples 20",
        ]

    def summary(self) -> dict[str, Any]:
        """For measurement.json and --json."""
        body = self.body
        return {
            "recording": str(self.recording),
            "sentence": self.sentence,
            "finished": not self.stopped,
            "stopped": self.stopped,
            "mass_kg": self.mass_kg,
            "density_kg_m3": self.scene.parameters.density_kg_m3,
            "shape": {
                "kind": body.prior,
                "size_m": np.ptp(body.vertices_m, axis=0).tolist(),
                "volume_m3": float(body.volume_m3),
                "volume_std_m3": body.volume_std_m3,
                "seen": float(body.coverage),
                "misfit_m": body.misfit_m,
            },
            "parameters": [_row(e) for e in self.parameters],
            "posterior": self.posterior.as_plain(),
            "drops": _drops(self),
            "pokes_left_out": [poke.as_plain() for poke in self.pokes],
            "frames": {"in_recording": self.frames, "used": self.used, "not_used_because": self.refusals.as_plain()},
            "notes": list(self.notes),
        }

    def files(self) -> dict[str, bytes]:
        """Name and content of the files that `replay` and `run live` go on from, and of the result."""
        head = (
            "# Written by soft-estimator measure: the object as it was found, z up from the table it lay on.\n"
            f"# The first guesses are what was found. The camera stood at --sensor-pose '{self.sensor_pose}'\n"
        )
        names = ("vertices_m", "faces", "seen", "coverage", "volume_m3", "rotation", "translation_m", "voxel_m")
        content: Mapping[str, Any] = {name: getattr(self.body, name) for name in names}
        return {
            SCENE_FILE: (head + yaml.safe_dump(self.plain, sort_keys=False, allow_unicode=True)).encode(),
            BODY_FILE: body_bytes(self.body.grid, self.body.detail, **content),
            REST_SHAPE: rest_shape_bytes(self.scene.body),
            RESULT_FILE: (json.dumps(self.summary(), indent=1) + "\n").encode(),
        }

    def save(self, folder: Path | str) -> list[Path]:
        """Write the files into a folder, which is made if needed; their paths."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        for name, data in self.files().items():
            (folder / name).write_bytes(data)
        return [folder / name for name in self.files()]


def _row(e: Estimate) -> dict[str, Any]:
    return {
        "name": e.label, "title": plain_name(e.label), "unit": e.unit, "value": e.value, "std": e.std,
        "low_95": e.low, "high_95": e.high, "observable": e.observable, "reason": e.reason,
    }  # fmt: skip


def _drops(made: Measurement) -> list[dict[str, Any]]:
    """Every drop: its frames and speed, E after it, and how well it was fitted."""
    return [
        {
            "frames": drop.last - drop.first + 1,
            "speed_m_s": drop.speed_m_s,
            "last_stamp_s": e.stamp_s,
            "youngs_modulus_pa": e.parameters[0].value,
            "std": e.parameters[0].std,
            "noise_scale": e.noise_scale,
        }
        for drop, e in zip(made.drops, made.after_drops)
    ]
