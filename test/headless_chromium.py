"""A real browser for tests: Chromium without a window, driven by Selenium; tests skip where either is missing."""

from __future__ import annotations

import base64
import io
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-sync",
    "--disable-component-update",
    "--disable-dev-shm-usage",
    "--use-angle=swiftshader",
    "--enable-unsafe-swiftshader",
)
# Pixels drawn for each of the page, each way: all of them take a processor without a graphics card twice as long.
DRAWN = 0.5
# Advice about speed from inside the drawing library, not a fault.
HARMLESS = ("willReadFrequently", "GPU stall due to ReadPixels", "THREE.Clock: This module has been deprecated")


@contextmanager
def chromium(profile: Path, width: int = 1280, height: int = 900) -> Iterator[Any]:
    """A driver of a fresh Chromium whose page is width x height pixels."""
    webdriver = pytest.importorskip("selenium.webdriver", reason="needs Selenium: pip install selenium")
    from selenium.webdriver.chrome.service import Service

    binary, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if binary is None or driver is None:
        pytest.skip("needs Chromium and its driver: apt-get install chromium chromium-driver")
    options = webdriver.ChromeOptions()
    for flag in (*FLAGS, f"--window-size={width},{height}", f"--user-data-dir={profile}"):
        options.add_argument(flag)
    options.binary_location = binary
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    page = webdriver.Chrome(options=options, service=Service(driver))
    page.set_script_timeout(180)  # where others are busy a first picture takes longer than Selenium's 30 s
    try:
        _show_as(page, width, height)
        yield page
    finally:
        page.quit()


def _show_as(page: Any, width: int, height: int, dark: bool = False) -> None:
    size = {"width": width, "height": height, "deviceScaleFactor": DRAWN, "mobile": width < 600}
    page.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    if dark:
        scheme = {"name": "prefers-color-scheme", "value": "dark"}
        page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})


@contextmanager
def shown_as(page: Any, width: int, height: int, dark: bool) -> Iterator[Any]:
    """The page as another screen has it; opened anew, it would compile all its shaders again, for twenty seconds."""
    before = page.execute_script("return [window.innerWidth, window.innerHeight]")
    _show_as(page, width, height, dark)
    try:
        yield page
    finally:
        _show_as(page, *before)
        page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


def wait_until(condition: Callable[[], Any], seconds: float = 180.0, what: str = "the page") -> Any:
    """The condition's value once it is true."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        value = condition()
        if value:
            return value
        time.sleep(0.1)
    raise AssertionError(f"waited {seconds:g} s for {what}")


def complaints(page: Any) -> list[str]:
    """Errors and warnings in the browser's console since the last call."""
    lines = [entry["message"] for entry in page.get_log("browser") if entry["level"] in ("SEVERE", "WARNING")]
    return [line for line in lines if not any(known in line for known in HARMLESS)]


def pixels(page: Any, element: Any) -> np.ndarray:
    """An element as it is drawn, (DRAWN height, DRAWN width, 3)."""
    page.execute_script("arguments[0].scrollIntoView({block: 'center'})", element)
    return np.asarray(Image.open(io.BytesIO(element.screenshot_as_png)).convert("RGB")).astype(int)


def printed(page: Any) -> bytes:
    """The page as PDF, on A4."""
    paper = {"printBackground": True, "paperWidth": 8.27, "paperHeight": 11.69}
    return base64.b64decode(page.execute_cdp_cmd("Page.printToPDF", paper)["data"])
