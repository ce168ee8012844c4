"""`saccade live` as a user meets it: an address is printed, the page is there, Ctrl-C ends it without an error; wrong input is named."""

import signal
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from saccade import cli
from saccade.types import InputError

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_it_prints_its_address_serves_the_page_and_ends_with_ctrl_c() -> None:
    command = [sys.executable, "-m", "saccade.cli", "live", "street@0.1", "--port", "0", "--rate", "20"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT) as process:
        try:
            assert process.stdout is not None
            address = process.stdout.readline().strip()
            assert address.startswith("http://127.0.0.1:")
            assert "saccade live" in httpx.get(address, timeout=120).text
            process.send_signal(signal.SIGINT)
            out, errors = process.communicate(timeout=240)
        finally:
            process.kill()
    assert process.returncode == 0, errors
    assert "Traceback" not in errors
    assert "nano: " in out


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"rate_hz": 0.5}, "--rate 0.5: expected 1 to 1000"),
        ({"rate_hz": float("nan")}, "--rate nan"),
        ({"beside": ("nano",)}, "two have the same name"),
        ({"threads": -1}, "--threads -1"),
        ({"source": "ros1:/events"}, "expected one of"),
        ({"foxglove": 70000}, "--foxglove 70000: expected a port"),
        ({"publish": "/detections"}, "expected a topic of ROS 2"),
        ({"publish": "ros2:/1"}, "name of a topic"),
        ({"save_into": Path("nowhere")}, "no such folder"),
        ({"port": 70000}, "can't listen"),
        ({"host": "192.0.2.1", "port": 0}, "can't listen"),
    ],
)
def test_wrong_input_is_named(options: dict, match: str) -> None:
    with pytest.raises(InputError, match=match):
        cli.live(**{"source": "street", "port": 0, **options})


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("saccade.machine.find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"saccade-events\[live\]"):
        cli.live("street", port=0)
