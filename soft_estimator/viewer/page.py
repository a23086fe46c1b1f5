"""The page: a 3D scene with points, twin and plane, and a panel with buttons and plots, served by viser."""

from __future__ import annotations

import importlib
import io
import threading
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from time import monotonic
from typing import Any

import numpy as np

from soft_estimator.viewer.history import History, Moment
from soft_estimator.viewer.markdown import as_text
from soft_estimator.viewer.plots import ParameterPlot
from soft_estimator.viewer.twin import TwinDrawing, mesh_glb
from soft_estimator.viewer.updates import MeshNow, ParameterNow, ViewUpdate

# What a browser redraws without stutter: ten times a second, so many points, so many charts.
DRAW_EVERY_S = 0.1
MOST_POINTS = 20_000
MOST_PLOTS = 40
POINT_COLOUR, PLANE_COLOUR = (40, 48, 60), (150, 165, 185)
TOOL_COLOUR = (115, 128, 140)
_LEGEND = (
    "**dark points**: what the camera saw · **coloured body**: the model at that moment, by how far the points lie off "
    "it, or by its strain (Show) · **grey plane**: where it touches"
)
_STATES = {"tracking": "● tracking", "starting": "○ starting", "lost": "**✕ object lost**", "ended": "■ ended"}


class Viewer:
    """Serves the page and draws the newest update, at most ten times a second.

    Attributes:
        paused: whether the user asked for a standstill. resets: how often they asked to start anew.
    """

    def __init__(
        self,
        host: str = "127.0.0.1",
        port: int = 8080,
        *,
        title: str = "soft_estimator",
        up: Sequence[float] = (0.0, 0.0, 1.0),
        on_reset: Callable[[], str] | None = None,
        on_pause: Callable[[bool], str] | None = None,
    ) -> None:
        viser = require_viser()
        with redirect_stdout(io.StringIO()):  # its greeting
            self._server = viser.ViserServer(host=host, port=port, label=title, verbose=False)
        self.host, self.paused, self.resets = host, False, 0
        self._on_reset, self._on_pause = on_reset, on_pause
        self._lock, self._closed = threading.Lock(), threading.Event()
        self._news: dict[str, Any] = {}
        self._plots: dict[str, ParameterPlot] = {}
        self._history = History()
        self._shown: Moment | None = None
        self._back_to_s: float | None = None  # the time the user looks at; None: the newest
        self._twin = TwinDrawing(self._server.scene)
        self._their_points: np.ndarray | None = None  # of the mesh that the browser unpacks
        self._placed = False
        self._server.scene.set_up_direction(tuple(float(x) for x in up))
        self._up = np.asarray(up, dtype=np.float64) / np.linalg.norm(up)
        self._build_scene()
        self._build_panel(title)
        self._thread = threading.Thread(target=self._draw_again_and_again, name="viewer", daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        """The port it listens on; another than asked for where that one was taken."""
        return int(self._server.get_port())

    @property
    def url(self) -> str:
        """Where to look."""
        return f"http://{'127.0.0.1' if self.host in ('0.0.0.0', '::') else self.host}:{self.port}"

    def show(self, update: ViewUpdate) -> None:
        """Take news from any thread; what is not drawn yet is replaced, parameters are all plotted."""
        with self._lock:
            if self.paused:
                return
            self._news["time_s"] = update.time_s
            for name in ("status", "line", "points_m", "plane"):
                value = getattr(update, name)
                if value is not None:
                    self._news[name] = value
            moment = self._history.add(update)
            if moment is not None:
                self._news["moment"] = moment
            if update.parameters:
                self._news.setdefault("parameters", []).append((update.time_s, update.parameters))

    def clear(self) -> None:
        """Forget what was plotted: a new run begins."""
        with self._lock:
            self._news.pop("parameters", None)
            self._news["clear"] = True
            self._history.clear()
            self._back_to_s = self._shown = None

    def close(self) -> None:
        """End the page."""
        self._closed.set()
        self._thread.join(5.0)
        with redirect_stdout(io.StringIO()):
            self._server.stop()

    def _build_scene(self) -> None:
        scene = self._server.scene
        # Lamps of our own: the usual surroundings are a picture that would come from the network.
        scene.configure_environment_map(None)
        scene.configure_default_lights(True, cast_shadow=False)
        scene.add_light_ambient("/light", intensity=0.6)
        self._points = scene.add_point_cloud(
            "/points", np.zeros((1, 3), np.float32), POINT_COLOUR, point_size=0.0012, point_shape="circle",
            precision="float32", point_shading="flat", visible=False,
        )  # fmt: skip
        self._tools: dict[int, Any] = {}
        self._plane = scene.add_mesh_simple(
            "/plane", np.zeros((4, 3), np.float32), np.array([[0, 1, 2], [0, 2, 3]]), color=PLANE_COLOUR, opacity=0.45,
            side="double", flat_shading=True, visible=False, cast_shadow=False,
        )  # fmt: skip

    def _build_panel(self, title: str) -> None:
        gui = self._server.gui
        gui.configure_theme(control_width="large", show_logo=False, dark_mode=False,
                            show_share_button=False, brand_color=(31, 143, 148))  # fmt: skip
        if hasattr(gui, "main_panel"):
            gui.main_panel.dock_right()
        self._title = as_text(title)
        self._head = gui.add_markdown(f"### {self._title}\nwaiting for the first frame …")
        self._pause = gui.add_button("Pause", hint="stand still; again to go on")
        self._pause.on_click(lambda _: self._toggle_pause())
        reset = gui.add_button("Reset", hint="forget everything and start from the first guesses")
        reset.on_click(lambda _: self._reset())
        self._said = gui.add_markdown("")
        self._time = gui.add_slider(
            "Time [s]", 0.0, 1.0, 0.01, 1.0, hint="look back at an earlier moment; the right end is the newest"
        )
        self._time.on_update(lambda event: self._look_back(event.client is not None))
        gui.add_markdown(_LEGEND)
        with gui.add_folder("Show", expand_by_default=False):
            self._colour = gui.add_dropdown("Colour by", ("residual", "strain"))
            self._boxes = {name: gui.add_checkbox(name, True) for name in ("points", "twin", "plane", "tools")}
        for box in self._boxes.values():
            box.on_update(lambda _: self._apply_boxes())
        self._folder = gui.add_folder("Parameters")

    def _toggle_pause(self) -> None:
        with self._lock:
            self.paused = not self.paused
        self._pause.label = "Go on" if self.paused else "Pause"
        said = self._on_pause(self.paused) if self._on_pause else "paused" if self.paused else ""
        self._said.content = as_text(said)

    def _look_back(self, by_user: bool) -> None:
        """Show the moment that the slider is at; at its right end, what comes."""
        if not by_user:
            return
        with self._lock:
            at_end = self._time.value >= self._time.max - self._time.step
            self._back_to_s = None if at_end else float(self._time.value)
            moment = self._history.at(float(self._time.value))
            if moment is not None:
                self._news |= {"moment": moment, "asked": True, "time_s": self._history.newest_s}

    def _reset(self) -> None:
        self.resets += 1
        self.clear()
        self._said.content = as_text(self._on_reset() if self._on_reset else "started anew")

    def _apply_boxes(self) -> None:
        self._points.visible = self._boxes["points"].value
        self._plane.visible = self._boxes["plane"].value
        for tool in self._tools.values():
            tool.visible = self._boxes["tools"].value
        self._twin.show(self._boxes["twin"].value)

    def _draw_again_and_again(self) -> None:
        while not self._closed.wait(DRAW_EVERY_S):
            with self._lock:
                news, self._news = self._news, {}
            begun = monotonic()
            with self._server.atomic():
                if self._twin.waiting:
                    self._twin.swap(self._boxes["twin"].value)
                    if self._their_points is not None:
                        self._draw_points(self._their_points)
                if news:
                    self._draw_or_say_why_not(news)
            # A browser is told no more than half of the time, so that estimating goes on beside it.
            self._closed.wait(monotonic() - begun)

    def _draw_or_say_why_not(self, news: dict[str, Any]) -> None:
        try:
            self._draw(news)
        except Exception as error:  # what came cannot be drawn; what comes next may
            self._head.content = f"### {self._title}\nnot drawn: {as_text(str(error) or type(error).__name__)}"

    def _draw(self, news: dict[str, Any]) -> None:
        if news.get("clear"):
            for plot in self._plots.values():
                plot.clear()
        if self._back_to_s is None or news.get("asked"):
            self._draw_moment(news)
        for time_s, parameters in news.get("parameters", ()):
            self._plot(time_s, parameters)
        for plot in self._plots.values():
            plot.draw()
        if "time_s" in news:
            self._status, self._line = news.get("status", self._status), news.get("line", self._line)
            status = _STATES.get(self._status) or as_text(self._status)
            lines = [f"### {self._title}", f"{status} at {news['time_s']:.2f} s  ", as_text(self._line)]
            if self._shown is not None:
                looking = "looking back: " if self._back_to_s is not None else ""
                lines[1] += f"\n{looking}{self._history.age_in_words(self._shown)}  "
            self._head.content = "\n".join(lines)
            self._move_slider()

    def _draw_moment(self, news: dict[str, Any]) -> None:
        """The twin with the points of its own moment; before there is one, the newest points."""
        moment: Moment | None = news.get("moment")
        self._their_points = None
        if moment is not None:
            self._shown, self._their_points = moment, moment.points_m
            self._draw_mesh(moment.mesh)
        elif "points_m" in news and self._shown is None:
            self._draw_points(news["points_m"])
        plane = news.get("plane") if moment is None else moment.plane
        if plane is not None:
            self._draw_plane(*plane)
        for number, (vertices, faces) in enumerate(moment.tools.values() if moment is not None else ()):
            self._draw_tool(number, vertices, faces)

    def _move_slider(self) -> None:
        """Let the slider reach up to the newest moment, and stay there unless the user looks back."""
        newest = max(self._history.newest_s, 0.01)
        if newest > self._time.max or newest < 0.5 * self._time.max:
            self._time.max = newest
        if self._back_to_s is None and self._time.value != newest:
            self._time.value = newest

    def _draw_points(self, points_m: np.ndarray) -> None:
        points = np.asarray(points_m, dtype=np.float32)
        points = points[:: max(1, -(-len(points) // MOST_POINTS))]
        if len(points):
            if not self._placed:
                self._place(points)
            self._points.points = points
            self._points.colors = np.tile(np.array(POINT_COLOUR, dtype=np.uint8), (len(points), 1))
        self._points.visible = bool(len(points)) and self._boxes["points"].value

    def _draw_mesh(self, mesh: MeshNow) -> None:
        if not self._placed:
            self._place(mesh.vertices_m)
        names = tuple(mesh.colours)
        if names and names != tuple(self._colour.options):
            self._colour.options = names
        colours = mesh.colours.get(self._colour.value) if names else None
        data = mesh_glb(mesh, colours if colours is not None else next(iter(mesh.colours.values()), None))
        self._twin.send(data)

    def _draw_tool(self, number: int, vertices_m: np.ndarray, faces: np.ndarray) -> None:
        points, known = np.asarray(vertices_m, dtype=np.float32), self._tools.get(number)
        if known is None or len(known.vertices) != len(points):
            known = self._tools[number] = self._server.scene.add_mesh_simple(
                f"/tools/{number}", points, np.asarray(faces, dtype=np.uint32), color=TOOL_COLOUR, side="double",
                cast_shadow=False,
            )  # fmt: skip
        known.vertices = points
        known.visible = self._boxes["tools"].value

    def _draw_plane(self, normal: np.ndarray, offset_m: float) -> None:
        unit = np.asarray(normal, dtype=np.float64) / np.linalg.norm(normal)
        across = np.cross(unit, np.eye(3)[int(np.argmin(np.abs(unit)))])
        across /= np.linalg.norm(across)
        along, foot = np.cross(unit, across), self._centre - (unit @ self._centre + offset_m) * unit
        corners = [foot + 2 * self._size * (a * across + b * along) for a, b in ((-1, -1), (1, -1), (1, 1), (-1, 1))]
        self._plane.vertices = np.array(corners, dtype=np.float32)
        self._plane.visible = self._boxes["plane"].value

    _status = _line = ""
    _centre, _size = np.zeros(3), 0.2

    def _place(self, vertices_m: np.ndarray) -> None:
        """Put the eye where the body is seen well, for clients that come now and later."""
        low, high = vertices_m.min(axis=0), vertices_m.max(axis=0)
        self._centre, self._size = 0.5 * (low + high), max(float(np.linalg.norm(high - low)), 1e-3)
        across = np.cross(self._up, np.eye(3)[int(np.argmin(np.abs(self._up)))])
        across /= np.linalg.norm(across)
        eye = self._centre + 1.25 * self._size * (across + 0.6 * np.cross(self._up, across) + 0.5 * self._up)
        self._points.point_size = 0.006 * self._size
        cameras = [self._server.initial_camera, *(c.camera for c in self._server.get_clients().values())]
        for camera in cameras:
            camera.position, camera.look_at, camera.up = eye, self._centre, self._up
            camera.near, camera.far = 0.01 * self._size, 100 * self._size
        self._placed = True

    def _plot(self, time_s: float, parameters: Sequence[ParameterNow]) -> None:
        for parameter in parameters:
            if parameter.name not in self._plots:
                if len(self._plots) >= MOST_PLOTS:
                    continue  # a chart takes the browser milliseconds; no scene has as many parameters
                with self._folder:
                    self._plots[parameter.name] = ParameterPlot(self._server.gui, time_s, parameter)
            self._plots[parameter.name].add(time_s, parameter)


def require_viser() -> Any:
    """The library, or one line that says how to get it."""
    try:
        return importlib.import_module("viser")
    except ModuleNotFoundError as error:
        raise ValueError(
            f"the viewer needs the Python package {error.name}; python -m pip install 'soft_estimator[viewer]'"
        ) from None
