"""`soft-estimator replay`: estimate from recorded bags, the same each time, and measure how well it went."""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from soft_estimator.backends.choose import BACKENDS, WHERE_TO_COMPUTE
from soft_estimator.commands.console import EXIT_INTERRUPTED, HelpFormatter, ProgressBar, stderr_line
from soft_estimator.commands.numbers import between, count
from soft_estimator.commands.recording_options import add_recording_options, finder_of
from soft_estimator.commands.replay_report import lines_about, why_none
from soft_estimator.commands.scene_setup import add_progress, check_data, check_out

if TYPE_CHECKING:
    from soft_estimator.live.replay_job import ReplayJob, ReplayOutcome

DESCRIPTION = """Run the live estimator over recordings without ROS, as fast as the machine allows: ROS 2 bags (MCAP or
SQLite), or folders of point files or depth images.

The same bag and configuration give the same bytes in estimates.csv, whatever the number of threads. Where a bag holds
ground truth (see `soft-estimator record`), errors are measured against it."""

EPILOG = """exit code:
  1  not one frame gave an estimate; the lines on stderr say why, the most frequent reason first

files written to DIR (of several bags: to DIR/<bag>, and metrics.json and metrics.csv over all to DIR):
  estimates.csv   an estimate a line: stamp, status, and of each parameter value, std, 95 % interval, observable
  metrics.json    errors, interval coverage, time to converge, surface error, prediction of the last frames without
                  looking at them (--hold-out), dropped frames, time a frame took
  report.html     the same as a page, with pictures
  replay.yaml     the configuration with every default filled in, for --config
  rest_shape.npz  the signed distance grid it was simulated with; soft-estimator export takes it from there
  unfinished.json how far a replay has come, while it runs or where it was ended (Ctrl-C, --time-limit); estimates.csv
                  and metrics.json then hold what is known, with finished: false, and --resume goes on to the same bytes

configuration (--config FILE): the keys scene (a name, a file or the scene itself), finder, window, topic, fixed_frame
and hold_out; all but scene may be left out.

examples:
  soft-estimator replay bags/ball --scene bouncing_ball --out out/ball
  soft-estimator replay bags/* --config replay.yaml --out out/fleet --workers 4
  soft-estimator replay bags/* --scene my.yaml --out out/fleet --engine dask:tcp://head:8786
  soft-estimator replay bags/ball --play --rate 0.5      # publish it to running nodes, with /clock (needs rclpy)"""


def add_parser(commands: Any) -> argparse.ArgumentParser:
    """Add the command to the parser."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "replay",
        help="estimate from recordings, measure against their ground truth",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=HelpFormatter,
    )
    parser.add_argument(
        "bags",
        metavar="BAG",
        nargs="+",
        type=Path,
        help="folder of a bag, its .mcap or .db3 file, or a folder of frames with stamps.csv",
    )
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--scene", metavar="SCENE", help="a scene file, or the name of a built-in scene")
    what.add_argument("--config", metavar="FILE", type=Path, help="a replay configuration")
    parser.add_argument("--out", metavar="DIR", type=Path, help="folder for the results; made if needed")
    parser.add_argument(
        "--hold-out",
        metavar="SHARE",
        type=between(0.0, 0.95, "a share from 0 to 0.95"),
        help="share of the frames that is predicted (default: 0.3)",
    )
    parser.add_argument("--backend", choices=BACKENDS, default="auto", help=f"{WHERE_TO_COMPUTE} (default: auto)")
    parser.add_argument("--threads", metavar="N", type=count, help="threads of each bag (default: the cores shared)")
    parser.add_argument("--workers", metavar="N", type=count, default=1, help="bags at a time (default: 1)")
    parser.add_argument(
        "--engine", type=_engine, default="processes", metavar="E", help="processes (default), dask or dask:ADDRESS"
    )
    parser.add_argument("--data", metavar="DIR", type=Path, help="folder with the mesh and .sdf files a scene names")
    add_recording_options(parser)
    parser.add_argument(
        "--time-limit",
        metavar="S",
        type=between(1e-9, 1e9, "a number of seconds above 0"),
        help="end after so many seconds with what is known by then",
    )
    parser.add_argument("--resume", action="store_true", help="go on from where an earlier replay into DIR was ended")
    parser.add_argument("--play", action="store_true", help="publish the bag into a running graph instead")
    parser.add_argument(
        "--wait-for-nodes",
        action="store_true",
        help="with --play: begin when cloud_node and estimator_node are ready, end when every frame was used",
    )
    speed = between(1e-3, 1e3, "a rate from 0.001 to 1000")
    parser.add_argument("--rate", metavar="X", type=speed, default=1.0, help="speed of --play (default: 1)")
    parser.add_argument("--loop", action="store_true", help="with --play: begin anew at the end")
    parser.add_argument("--json", action="store_true", help="print metrics.json on stdout, and nothing else")
    add_progress(parser)
    return parser


def _engine(text: str) -> str:
    if text == "processes" or text.partition(":")[0] == "dask":
        return text
    raise argparse.ArgumentTypeError(f"'{text}' is no engine; use processes, dask or dask:ADDRESS")


def run(args: argparse.Namespace) -> int:
    """Run the command."""
    if args.play:
        return _play(args)
    if args.out is None or (args.scene is None and args.config is None):
        raise ValueError("replay needs --out DIR and one of --scene SCENE and --config FILE; or --play to publish")
    check_data(args)
    check_out(args)
    jobs = _jobs(args)

    from soft_estimator.live.fleet import run_in_processes
    from soft_estimator.live.fleet_dask import run_on_dask
    from soft_estimator.live.replay_job import Watch

    threads = args.threads or _threads_each(min(args.workers, len(jobs)))
    done = [0.0] * len(jobs)
    with ProgressBar(args.progress) as progress:
        progress("replaying", 0, 100 * len(jobs))

        def tell(number: int, part: float, note: str) -> None:
            done[number] = max(done[number], part)
            progress("replaying", int(100 * sum(done)), 100 * len(jobs), note if len(jobs) == 1 else "")

        watch = Watch(tell, lambda outcome: _write(outcome, _folder(args, outcome.name)), _ending)
        if args.engine == "processes":
            outcomes = run_in_processes(jobs, args.workers, threads, watch, args.time_limit)
        else:
            address = args.engine.partition(":")[2] or None
            outcomes = run_on_dask(jobs, address, args.workers, threads, watch, args.time_limit)
    return _finish(args, outcomes)


def _folder(args: argparse.Namespace, name: str) -> Path:
    """Where the results of a bag go."""
    out: Path = args.out
    return out if len(args.bags) == 1 else out / name


def _write(outcome: ReplayOutcome, folder: Path) -> None:
    """Write a bag's files."""
    from soft_estimator.live.replay_keeping import forget

    for name, content in outcome.files.items():
        folder.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    if outcome.metrics is not None and not outcome.stopped:
        forget(folder)


def _ending() -> None:
    stderr_line("ending after the frame at hand with what is known; Ctrl-C once more ends at once")


def _jobs(args: argparse.Namespace) -> list[ReplayJob]:
    from dataclasses import replace

    from soft_estimator.commands.replay_report import ReportListener
    from soft_estimator.live.replay_config import load_replay
    from soft_estimator.live.replay_job import ReplayJob
    from soft_estimator.recordings.opening import open_recording
    from soft_estimator.schema import read_yaml

    if args.config is not None:
        config, folder = load_replay(read_yaml(args.config), args.config.parent, str(args.config))
    else:
        config, folder = load_replay({"scene": args.scene}, Path())
    given = {"topic": args.topic, "fixed_frame": args.fixed_frame, "hold_out": args.hold_out}
    given |= {"frames": args.frames or None, "sensor_pose": args.sensor_pose}
    config = replace(config, **{key: value for key, value in given.items() if value is not None})
    config = replace(config, finder=finder_of(args, config.finder))
    names: list[str] = []
    for bag in args.bags:
        open_recording(bag)  # what is no recording at all is said before the work starts
        stem = bag.resolve().name.partition(".")[0] or "bag"
        taken = sum(name == stem or name.startswith(f"{stem}_again_") for name in names)
        names.append(stem if not taken else f"{stem}_again_{taken}")
    data = None if args.data is None else str(args.data.resolve())
    folder_text = str(folder.resolve())
    # A Dask worker may be another machine: its results come here when a bag is done.
    kept = [str(_folder(args, name).resolve()) if args.engine == "processes" else None for name in names]
    return [
        ReplayJob(name, str(bag.resolve()), config, folder_text, data, args.backend, ReportListener, keep, args.resume)
        for name, bag, keep in zip(names, args.bags, kept)
    ]


def _threads_each(workers: int) -> int:
    asked = os.environ.get("NUMBA_NUM_THREADS", "")
    return int(asked) if asked.isdigit() and int(asked) else max(1, (os.cpu_count() or 1) // workers)


def _finish(args: argparse.Namespace, outcomes: list[ReplayOutcome]) -> int:
    """Write the files, tell what came of it."""
    from soft_estimator.estimation.long_work import CTRL_C
    from soft_estimator.live.replay_files import METRICS, fleet_csv, fleet_rows, fleet_table

    alone = len(outcomes) == 1
    for outcome in outcomes:
        if outcome.error and args.traceback and outcome.trace:
            print(outcome.trace, file=sys.stderr)
    unfinished = [o for o in outcomes if o.stopped]
    for outcome in unfinished:
        stderr_line(f"{outcome.name} is not finished ({outcome.stopped}): --resume goes on from here", label="warning")
    interrupted = any(o.stopped == CTRL_C for o in unfinished)
    if alone:
        metrics = outcomes[0].metrics
        if metrics is None:
            if interrupted:
                raise KeyboardInterrupt
            raise ValueError(outcomes[0].error or f"nothing is known yet: {outcomes[0].stopped}; give it more time")
        for line in why_none(metrics):
            stderr_line(line, label="error")
        for note in metrics["notes"]:
            stderr_line(note, label="note")
        print(json.dumps(metrics) if args.json else lines_about(metrics, outcomes[0], args.out))
        return EXIT_INTERRUPTED if interrupted else 0 if metrics["estimates"] else 1
    rows = fleet_rows([(o.name, o.metrics, o.error) for o in outcomes])
    args.out.mkdir(parents=True, exist_ok=True)
    summary = {"bags": rows}
    (args.out / METRICS).write_text(json.dumps(summary, indent=1) + "\n", encoding="utf-8")
    (args.out / "metrics.csv").write_bytes(fleet_csv(rows))
    print(json.dumps(summary) if args.json else fleet_table(rows))
    failed = [o.name for o in outcomes if o.error]
    if failed:
        stderr_line(f"{len(failed)} of {len(outcomes)} bags failed: {', '.join(failed)}", label="error")
    without = [o.name for o in outcomes if not o.stopped and o.metrics is not None and not o.metrics["estimates"]]
    if without:
        stderr_line(
            f"{len(without)} of {len(outcomes)} bags gave no estimate: {', '.join(without)}; see not_used_because in "
            "their metrics.json",
            label="error",
        )
    return EXIT_INTERRUPTED if interrupted else 2 if failed else 1 if without else 0


def _play(args: argparse.Namespace) -> int:
    if len(args.bags) != 1:
        raise ValueError(f"--play takes one bag, not {len(args.bags)}; name one")
    from soft_estimator.ros.ending import MOST_END_S, exit_after

    try:
        from soft_estimator.ros.play import play_bag
    except ModuleNotFoundError as error:
        raise ValueError(
            f"--play needs ROS 2 ('{error.name}' is missing); source a ROS install, or pip install soft_estimator[ros]"
        ) from None

    def ended(published: dict[str, int]) -> None:
        print(json.dumps(published) if args.json else f"published {sum(published.values())} messages", flush=True)
        exit_after(MOST_END_S, 0)  # nothing is left to do, and a graph waits for this process' end

    play_bag(
        args.bags[0], rate=args.rate, loop=args.loop, say=stderr_line, wait_for_nodes=args.wait_for_nodes, ended=ended
    )
    return 0
