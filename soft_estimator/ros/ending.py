"""A last resort: the end of this process after a time, whatever its threads wait for."""

from __future__ import annotations

import ctypes
import faulthandler
import signal
import sys

MOST_END_S = 4.5  # from Ctrl-C to the end of a process; `ros2 launch` takes harder measures after 5 s

_SIGEV_THREAD = 2  # as glibc and musl number it
_CLOCK_MONOTONIC = 1
_SHOW_BEFORE_S = 0.2  # the stacks are shown this long before the end

_armed = False


class _Event(ctypes.Structure):
    """struct sigevent: at the end of the time call `function(value)` in a thread of its own."""

    _fields_ = (
        ("value", ctypes.c_void_p),
        ("signal", ctypes.c_int),
        ("notify", ctypes.c_int),
        ("function", ctypes.c_void_p),
        ("attributes", ctypes.c_void_p),
        ("padding", ctypes.c_char * 32),
    )


class _Times(ctypes.Structure):
    """struct itimerspec: period and first time, each in seconds and nanoseconds."""

    _fields_ = tuple((name, ctypes.c_long) for name in ("period_s", "period_ns", "first_s", "first_ns"))


def exit_after(seconds: float, code: int) -> None:
    """Let the process end with `code` after a time [s], if it has not ended by then; the first call holds.

    Neither a thread of Python nor a handler of Python would do: rclpy keeps the interpreter's lock while the
    middleware sends, or destroys what it made, and the middleware may wait there for ever. Fast DDS's shared memory is
    guarded by mutexes that a process which is killed, or ends in the middle of its work, leaves locked for the others.
    Where the threads stand is shown shortly before, for who looks for the cause.
    """
    global _armed
    if _armed:
        return
    _armed = True
    if sys.__stderr__ is not None:
        faulthandler.dump_traceback_later(max(seconds - _SHOW_BEFORE_S, 0.1), file=sys.__stderr__)
    if not _call_after(seconds, code):
        # The signal's own action ends a process, too, but its exit code says so.
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_REAL, seconds)


def _call_after(seconds: float, code: int) -> bool:
    """Have the system call `_exit(code)` after a time; whether it can."""
    try:
        system = ctypes.CDLL(None)
        create, start, leave = system.timer_create, system.timer_settime, system._exit
    except (OSError, AttributeError):
        return False
    timer = ctypes.c_void_p()
    event = _Event(value=code, notify=_SIGEV_THREAD, function=ctypes.cast(leave, ctypes.c_void_p))
    if create(_CLOCK_MONOTONIC, ctypes.byref(event), ctypes.byref(timer)) != 0:
        return False
    whole, rest = divmod(seconds, 1.0)
    times = _Times(first_s=int(whole), first_ns=int(1e9 * rest))
    return bool(start(timer, 0, ctypes.byref(times), None) == 0)
