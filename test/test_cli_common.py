"""What every command keeps to: help with examples, --json, exit codes, NO_COLOR, completion. It loops over all."""

from __future__ import annotations

import argparse
import json
import os
import pty
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from soft_estimator.cli import COMMANDS, build_parser, main

ROOT = Path(__file__).resolve().parent.parent


def subparsers() -> dict[str, argparse.ArgumentParser]:
    parser = build_parser()
    return next(dict(a.choices) for a in parser._actions if isinstance(a, argparse._SubParsersAction))


NAMES = sorted(subparsers())


def test_every_command_of_the_list_is_mounted() -> None:
    assert len(NAMES) == len(COMMANDS) >= 9


@pytest.mark.parametrize("name", NAMES)
def test_help_shows_an_example_of_this_command(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([name, "--help"]) == 0
    text = capsys.readouterr().out
    examples = text.partition("\nexamples:\n")[2].splitlines()
    assert any(line.startswith(f"  soft-estimator {name}") or f"(soft-estimator {name}" in line for line in examples)
    assert all(len(line) <= 120 for line in text.splitlines())


def example_lines() -> list[str]:
    lines = []
    for parser in (build_parser(), *subparsers().values()):
        epilog = parser.epilog or ""
        lines += [
            s.strip() for s in epilog.partition("examples:\n")[2].splitlines() if s.startswith("  soft-estimator")
        ]
    return lines


@pytest.mark.parametrize("line", example_lines())
def test_every_example_is_understood(line: str) -> None:
    """The words up to a pipe, a redirection or a remark go through the parser without an error."""
    import shlex

    words = shlex.split(line, comments=True)[1:]
    for end in ("|", ">", "2>"):
        words = words[: words.index(end)] if end in words else words
    build_parser().parse_args(words)


@pytest.mark.parametrize("name", NAMES)
def test_every_command_takes_json(name: str) -> None:
    assert any("--json" in action.option_strings for action in subparsers()[name]._actions)


@pytest.mark.parametrize(
    "arguments",
    [
        ["scenes", "--json"],
        ["scenes", "--show", "cantilever", "--json"],
        ["scene-format", "--json"],
        ["completion", "bash", "--json"],
    ],
)
def test_quick_commands_print_json_and_nothing_else(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 0
    printed = capsys.readouterr()
    assert json.loads(printed.out) and printed.err == ""


def test_the_version_is_that_of_the_package(capsys: pytest.CaptureFixture[str]) -> None:
    from importlib.metadata import version

    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"soft-estimator {version('soft_estimator')}\n"


@pytest.mark.parametrize("name", [[], *([name] for name in NAMES)])
def test_a_wrong_option_is_exit_code_2(name: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*name, "--no-such-option"]) == 2
    printed = capsys.readouterr()
    assert "Traceback" not in printed.err and printed.out == ""


def test_the_exit_codes_are_in_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    codes = capsys.readouterr().out.partition("exit codes")[2]
    assert [line.split()[0] for line in codes.splitlines()[1:5]] == ["0", "1", "2", "130"]


@pytest.mark.parametrize("no_color", ["", "1"])
def test_a_terminal_gets_colours_unless_it_asks_for_none(no_color: str) -> None:
    """A real terminal: the command writes to a pseudo-terminal's end."""
    reader, writer = pty.openpty()
    environment = {**os.environ, "NO_COLOR": no_color, "TERM": "xterm", "FORCE_COLOR": "", "PYTHON_COLORS": "0"}
    done = subprocess.run(
        [sys.executable, "-m", "soft_estimator", "scenes"], stdout=writer, env=environment, cwd=ROOT, timeout=120
    )
    os.close(writer)
    text = os.read(reader, 100_000).decode()
    os.close(reader)
    assert done.returncode == 0 and "cantilever" in text
    assert ("\033[" in text) == (no_color == "")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts_are_accepted_by_their_shell(
    shell: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out
    assert all(name in script for name in NAMES) and "--out" in script
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed; its script was made, not tried")
    path = tmp_path / "script"
    path.write_text(script)
    subprocess.run([shell, "-n", str(path)], check=True, timeout=30)


def test_bash_completes_commands_options_and_scenes(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    if shutil.which("bash") is None:
        pytest.skip("bash is not installed")
    assert main(["completion", "bash"]) == 0
    path = tmp_path / "script"
    path.write_text(capsys.readouterr().out)

    def complete(*words: str) -> set[str]:
        program = f"""source {path}
COMP_WORDS=(soft-estimator {" ".join(repr(w) for w in words)}); COMP_CWORD={len(words)}
$(complete -p soft-estimator | sed -E 's/.*-F ([^ ]+).*/\\1/')
printf '%s\\n' "${{COMPREPLY[@]}}"
"""
        done = subprocess.run(["bash", "-c", program], capture_output=True, text=True, timeout=30, cwd=tmp_path)
        return {line.strip() for line in done.stdout.splitlines()}

    assert complete("sim") == {"simulate"}
    assert {"--out", "--json"} <= complete("simulate", "--")
    assert complete("simulate", "swing") == {"swinging_torus"}


def test_a_missing_shtab_is_said_in_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "shtab", None)
    assert main(["completion", "bash"]) == 2
    assert "pip install shtab" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (["mesure", "x", "--mass", "3 g"], "did you mean 'measure'?"),
        (["replay", "x", "--otu", "y"], "did you mean '--out'?"),
        (["scan", "x", "--out", "y", "--prior", "mirrror"], "did you mean 'mirror'?"),
        (["scan", "x", "--out", "y", "--prior", "qqqqqq"], "invalid choice"),
        (["studies", "beam", "--out", "y", "--scene", "x"], "unrecognized arguments: --scene x"),
    ],
)
def test_a_wrong_word_names_the_nearest_right_one(
    words: list[str], meant: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 2
    said = capsys.readouterr().err
    assert meant in said and ("did you mean" in said) == ("did you mean" in meant)


def test_a_log_file_holds_what_was_called_said_and_raised(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """stderr has the one line it always has; the file has it, too, with call, traceback and exit code, and a
    second call is added to it."""
    log = tmp_path / "se.log"
    assert main(["--log", str(log), "simulate", "no_such_scene", "--out", str(tmp_path / "out")]) == 2
    printed = capsys.readouterr().err
    assert printed.count("\n") == 1 and "no_such_scene" in printed
    assert main(["scenes", "--log", str(log)]) == 0
    text = log.read_text(encoding="utf-8")
    assert "'simulate', 'no_such_scene'" in text and "Traceback" in text
    assert [line.split()[-4] for line in text.splitlines() if "exit code" in line] == ["2", "0"]
    assert capsys.readouterr().err == ""


def test_verbose_tells_on_stderr_what_library_code_logs(capsys: pytest.CaptureFixture[str]) -> None:
    """Once with -v before or behind the command, and not at all without it."""
    assert main(["-vv", "scenes"]) == 0 and "exit code 0" in capsys.readouterr().err
    assert main(["scenes", "-vv"]) == 0 and capsys.readouterr().err.count("exit code 0") == 1
    assert main(["scenes"]) == 0 and capsys.readouterr().err == ""


def test_a_log_file_that_cannot_be_written_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["scenes", "--log", str(tmp_path / "nowhere" / "se.log")]) == 2
    assert "nowhere/se.log cannot be written (No such file or directory)" in capsys.readouterr().err


def test_the_reference_of_the_python_interface_is_up_to_date(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["python-api"]) == 0
    written = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    assert written == capsys.readouterr().out, "run: make docs"
