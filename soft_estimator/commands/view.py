"""`soft-estimator view`: a page on localhost with points, twin, plane and parameters, live."""

from __future__ import annotations

import argparse
import importlib.util
import json
import threading
from pathlib import Path
from typing import Any

from soft_estimator.commands.console import HelpFormatter, stderr_line
from soft_estimator.commands.recording_options import add_recording_options, finder_of
from soft_estimator.commands.scene_setup import add_computing

DESCRIPTION = """Serve a page that shows the observed points, the twin coloured by residual or strain, the contact
plane, and the parameters over time with their 95 % bands, while they are estimated. Buttons: Pause, Reset.

  --topics        the live graph, by its ROS 2 topics (default where a graph is what you have)
  --replay BAG    a recorded bag, run through the live estimator here, without ROS; or a folder that measure wrote,
                  with the recording and the scene it names
  --demo          the simulated camera of the scene, without ROS

The page is for this machine only (127.0.0.1) unless --host says otherwise. It loads nothing from the network."""

EPILOG = """examples:
  soft-estimator view --demo
  soft-estimator view --replay bags/ball --scene bouncing_ball
  soft-estimator view --replay out/mine                        # what measure found, and what it saw
  soft-estimator view --topics
  soft-estimator view --topics --host 0.0.0.0 --port 9000      # for the whole network: everyone may press Reset"""


def add_parser(commands: Any) -> argparse.ArgumentParser:
    """Add the command to the parser."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "view",
        help="show points, twin and parameters live in a browser",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=HelpFormatter,
    )
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--topics", action="store_true", help="show the live graph (needs rclpy)")
    source.add_argument("--replay", metavar="BAG|DIR", type=Path, help="run this bag through the live estimator")
    source.add_argument("--demo", action="store_true", help="run the scene's simulated camera")
    parser.add_argument(
        "--scene", metavar="SCENE", help="of --replay and --demo (default: demo_drop, or the one that measure wrote)"
    )
    parser.add_argument("--namespace", metavar="NAME", default="", help="of --topics: the graph's namespace")
    parser.add_argument("--rate", metavar="X", type=_rate, default=1.0, help="speed of --replay, --demo (default: 1)")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: 127.0.0.1)")
    parser.add_argument("--port", type=_port, default=8080, help="port, or the next free one (default: 8080)")
    parser.add_argument("--seconds", metavar="S", type=float, help="end after this time")
    add_computing(parser)
    add_recording_options(parser)
    parser.add_argument("--json", action="store_true", help="print where to look as JSON on stdout, and nothing else")
    return parser


def _rate(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 1e-3 <= number <= 1e3:
        raise argparse.ArgumentTypeError(f"'{text}' is not a rate from 0.001 to 1000")
    return number


def _port(text: str) -> int:
    if not (text.isdecimal() and 0 < int(text) < 65536):
        raise argparse.ArgumentTypeError(f"'{text}' is not a port from 1 to 65535")
    return int(text)


def run(args: argparse.Namespace) -> int:
    """Run the command."""
    from soft_estimator.viewer.page import Viewer, require_viser

    require_viser()
    source, title = _topics(args) if args.topics else _recording(args)
    up = source.up if args.up is None else args.up
    viewer = Viewer(args.host, args.port, title=title, up=up, on_reset=source.reset, on_pause=source.pause)
    stop, failure = threading.Event(), []

    def work() -> None:
        try:
            source.run(viewer, stop)
        except Exception as error:  # told by the main thread, which ends the page
            failure.append(error)
            stop.set()

    if args.json:
        print(json.dumps({"url": viewer.url, "title": title}), flush=True)
    else:
        print(f"{title}: look at {viewer.url} (Ctrl-C ends it)", flush=True)
    if args.host not in ("127.0.0.1", "localhost", "::1"):
        stderr_line(f"everyone who reaches {args.host}:{viewer.port} can look and press Reset", label="warning")
    thread = threading.Thread(target=work, name="source", daemon=True)
    thread.start()
    try:
        stop.wait(args.seconds)
    finally:
        stop.set()
        thread.join(10.0)
        viewer.close()
    if failure:
        raise failure[0]
    return 0


def _topics(args: argparse.Namespace) -> tuple[Any, str]:
    if importlib.util.find_spec("rclpy") is None:
        raise ValueError("--topics needs rclpy; python -m pip install 'soft_estimator[ros]', or source a ROS 2 install")
    from soft_estimator.ros.view_source import TopicSource

    return TopicSource(args.namespace), "live graph" + (f" /{args.namespace}" if args.namespace else "")


def _recording(args: argparse.Namespace) -> tuple[Any, str]:
    from dataclasses import replace

    from soft_estimator.backends import choose_backend
    from soft_estimator.live.replay_config import load_replay
    from soft_estimator.scene.scene import build_scene
    from soft_estimator.viewer.replay_source import ReplaySource

    if args.replay is not None and not args.replay.exists():
        raise ValueError(f"--replay {args.replay} does not exist; give the folder of a bag, or its .mcap or .db3 file")
    recording, scene_file = measured(args.replay)
    config, folder = load_replay({"scene": args.scene or scene_file}, Path())
    given = {"topic": args.topic, "fixed_frame": args.fixed_frame, "sensor_pose": args.sensor_pose}
    given["frames"] = args.frames or None
    config = replace(config, **{key: value for key, value in given.items() if value is not None})
    config = replace(config, finder=finder_of(args, config.finder))
    scene = build_scene(config.scene, folder, args.data)
    backend = choose_backend(args.backend, config.scene.solver.precision)
    what = config.scene.name if recording is None else f"{recording.name} as {config.scene.name}"
    return ReplaySource(scene, config, backend, recording, args.rate), what


def measured(path: Path | None) -> tuple[Path | None, str]:
    """The recording and the scene of a folder that `measure` wrote; of anything else itself, and the demo's scene."""
    result = None if path is None else path / "measurement.json"
    if path is None or result is None or not result.is_file():
        return path, "demo_drop"
    try:
        recording = Path(str(json.loads(result.read_text(encoding="utf-8"))["recording"]))
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{result} is no result of measure ({error}); measure the recording again") from error
    if not recording.exists():
        raise ValueError(f"{result} names the recording {recording}, which is not there; go to where it was measured")
    return recording, str(path / "scene.yaml")
