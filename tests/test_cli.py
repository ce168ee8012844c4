"""The command line as a user meets it: what it prints, what it writes, and how it refuses."""

import os
import shutil
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from saccade import cli
from saccade.events.open import open_events
from saccade.events.write import write_events
from saccade.outputs import sheet
from saccade.samples import STREET
from saccade.types import Events, InputError
from tests.make.events import assert_equal, collect, random_events

ROOT = Path(__file__).parents[1]


def run(*arguments: object, **environment: str) -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", "saccade.cli", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=os.environ | environment, timeout=300)


def test_wrong_input_is_one_line_and_exit_code_2(tmp_path: Path) -> None:
    result = run("info", tmp_path / "nothing.raw")
    assert result.returncode == 2
    assert result.stdout == ""
    assert result.stderr == f"saccade: {tmp_path / 'nothing.raw'}: no such file\n"


def test_help_names_every_command_and_option() -> None:
    text = run("--help").stdout
    assert all(name in text for name in cli.COMMANDS)
    assert "--drop-duplicates" in run("convert", "--help").stdout


def test_a_mistyped_option_is_pointed_out() -> None:
    result = run("convert", STREET, "x.h5", "--srot")
    assert result.returncode == 2
    assert "--sort" in result.stderr


def test_info_of_the_sample(capsys: pytest.CaptureFixture) -> None:
    cli.info(STREET)
    text = capsys.readouterr().out
    assert "160 x 128 pixels" in text
    assert "196,638" in text
    assert "warning" not in text


def test_info_warns_and_convert_mends(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    """What `info` warns of is what `convert` with the option it names takes away."""
    good = random_events(5000, width=64, height=48, start_us=1000)
    t, x = np.repeat(good.t, 2), np.repeat(good.x, 2)
    y, p = np.repeat(good.y, 2), np.repeat(good.p, 2)
    t[1000], x[77] = t[1200], 64
    bad, mended = tmp_path / "bad.dat", tmp_path / "mended.h5"
    write_events([Events(t, x, y, p, 64, 48)], bad)
    cli.info(bad)
    warned = capsys.readouterr().out
    assert all(option in warned for option in ("--sort", "--drop-duplicates", "--clip-to-sensor"))
    cli.convert(bad, mended, sort=True, drop_duplicates=True, clip_to_sensor=True)
    told = capsys.readouterr().out
    assert "1 events outside the sensor were left out" in told
    cli.info(mended)
    assert "warning" not in capsys.readouterr().out
    with open_events(mended) as reader:
        events = collect(reader)
    assert (np.diff(events.t) >= 0).all()
    assert 4990 <= len(events) <= 5001


FEW_FILES = "import resource, sys; from saccade import cli; resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3)); cli.main()"


def test_too_many_open_files_are_said_in_a_line() -> None:
    command = [sys.executable, "-c", FEW_FILES, "convert", str(STREET), "x.csv"]
    result = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=300)
    assert (result.returncode, result.stderr.count("\n")) == (2, 1), result.stderr
    assert "Too many open files" in result.stderr


@pytest.mark.parametrize("suffix", [".h5", ".dat", ".npz", ".csv"])
def test_convert_there_and_back(tmp_path: Path, suffix: str) -> None:
    cli.convert(STREET, tmp_path / f"a{suffix}")
    cli.convert(tmp_path / f"a{suffix}", tmp_path / "b.h5")
    with open_events(STREET) as one, open_events(tmp_path / "b.h5") as other:
        assert_equal(collect(other), collect(one))


def test_convert_cuts_a_piece_out(tmp_path: Path) -> None:
    cli.convert(STREET, tmp_path / "piece.h5", start_s=0.5, end_s=0.75)
    with open_events(STREET) as whole, open_events(tmp_path / "piece.h5") as piece:
        begin_us = whole.start_us + 500_000
        assert_equal(collect(piece), whole.between(begin_us, begin_us + 250_000))
    with pytest.raises(InputError, match="nothing between --from and --to"):
        cli.convert(STREET, tmp_path / "none.h5", start_s=9.0)
    assert not (tmp_path / "none.h5").exists()


def test_convert_overwrites_nothing_unasked(tmp_path: Path) -> None:
    out = tmp_path / "out.h5"
    out.write_text("precious")
    result = run("convert", STREET, out)
    assert result.returncode == 2
    assert "--overwrite" in result.stderr
    assert out.read_text() == "precious"


def test_ctrl_c_leaves_nothing_behind(tmp_path: Path) -> None:
    source = tmp_path / "long.dat"
    write_events((random_events(200_000, start_us=i * 100_000, seed=i) for i in range(50)), source)
    command = [sys.executable, "-m", "saccade.cli", "convert", str(source), str(tmp_path / "out.csv")]
    # Background jobs of a shell ignore Ctrl-C, and so would what they start.
    heed = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    process = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True, preexec_fn=heed)
    for _ in range(3000):  # often: on a busy machine the file may be whole before this wakes up
        if list(tmp_path.glob(".out.csv*")):
            break
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "interrupted" in errors
    assert [path.name for path in tmp_path.iterdir()] == ["long.dat"]


def test_view_writes_a_sheet_and_a_video(tmp_path: Path) -> None:
    av = pytest.importorskip("av")
    cli.view(STREET, tmp_path / "a.png", rate_hz=200)
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    cli.view(STREET, tmp_path / "a.mp4", rate_hz=100, start_s=0.5, end_s=1.0, clock="absolute", slow=4)
    with av.open(str(tmp_path / "a.mp4")) as video:
        assert video.streams.video[0].codec_context.name == "h264"
        assert sum(1 for _ in video.decode(video=0)) == 50
        assert video.streams.video[0].average_rate == 25


def test_view_draws_a_sequence_of_dsec_at_several_rates_with_what_is_found(
    tmp_path: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One command, the folder of a sequence as downloaded; the same instants one below the other."""
    (tmp_path / "city_04_a/events/left").mkdir(parents=True)
    shutil.copy(STREET, tmp_path / "city_04_a/events/left/events.h5")
    shown: list[tuple[str, np.ndarray]] = []
    monkeypatch.setattr(sheet, "_write", lambda path, images, titles, *_, **__: shown.extend(zip(titles, images, strict=True)))
    cli.view(tmp_path / "city_04_a", tmp_path / "found.png", rates=(20, 100), end_s=1.0)
    cli.view(tmp_path / "city_04_a", tmp_path / "found.png", rates=(20, 100), weights="nano", end_s=1.0)
    assert [title.split(",")[0] for title, _ in shown] == 2 * (4 * ["20 Hz"] + 4 * ["100 Hz"])
    seconds = [float(title.split()[2]) for title, _ in shown]
    for row, longest_s in ((seconds[:4], 0.05), (seconds[4:8], 0.01), (seconds[8:12], 0.05), (seconds[12:], 0.01)):
        assert all(0 <= instant - found <= longest_s + 1e-3 for instant, found in zip((0.125, 0.375, 0.625, 0.875), row, strict=True))
    plain, boxed = (np.stack([picture for _, picture in part]) for part in (shown[:8], shown[8:]))
    assert (plain != boxed).any(axis=(1, 2, 3)).sum() >= 6, "boxes are drawn over the same events"
    assert "8 pictures at 20, 100 Hz" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("a.gif",), "expected .png or .mp4"),
        (("a.mp4", "--start-s", "99"), "nothing between --from and --to"),
        (("a.png", "--from", "99"), "the recording is 2.499962 s long"),
        (("a.png", "--to", "0", "--clock", "absolute"), "clock goes from 0.000038 to 2.500000 s"),
        (("a.png", "--rate-hz", "0"), "expected a number above 0"),
        (("a.mp4", "--slow", "0"), "expected a number above 0"),
        (("a.mp4", "--window-ms", "nan"), "expected a number above 0"),
        (("a.mp4", "--end-s", "nan"), "expected seconds"),
        (("a.mp4", "--rates", "20,200"), "for a .png"),
        (("a.png", "--rates", "20", "0"), "expected a number above 0"),
    ],
)
def test_view_refuses(tmp_path: Path, arguments: tuple[str, ...], message: str) -> None:
    result = run("view", STREET, tmp_path / arguments[0], *arguments[1:])
    assert result.returncode == 2
    assert message in result.stderr
    assert not list(tmp_path.iterdir())


def test_demo(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    out = tmp_path / "demo"
    cli.demo(seed=3, rate_hz=100, recordings=1, seconds=0.6, out=out)
    said = capsys.readouterr().out
    assert {"detections.mp4", "report.html", "rates.png", "table.md"} <= {path.name for path in out.iterdir()}
    assert said.count("$ saccade ") == 3  # each step as a command that can be repeated
    assert said.count("100 Hz") >= 4  # ours and the baseline, in both tables


@pytest.mark.parametrize(("option", "value"), [("--seed", 0), ("--rate", 0.5), ("--rate", 5000)])
def test_demo_refuses_what_it_cannot_show(tmp_path: Path, option: str, value: float) -> None:
    result = run("demo", option, value, "--out", tmp_path / "demo")
    assert result.returncode == 2
    assert option in result.stderr


def test_demo_says_where_it_cannot_write(tmp_path: Path) -> None:
    (tmp_path / "demo").write_text("a file")
    result = run("demo", "--out", tmp_path / "demo")
    assert result.returncode == 2
    assert "--out" in result.stderr


def test_the_sample_is_what_its_script_makes() -> None:
    """But for a few events: logarithms of another machine differ in their last digit."""
    code = "from make_sample import record; e = record(steps=200); print(len(e), e.t.sum(), e.x.sum(), e.p.sum())"
    command = [sys.executable, "-c", code]
    said = subprocess.run(command, capture_output=True, text=True, cwd=ROOT / "examples", check=True).stdout
    with open_events(STREET) as reader:
        events = reader.between(0, 200 * 500)
    assert [float(word) for word in said.split()] == pytest.approx([len(events), events.t.sum(), events.x.sum(), events.p.sum()], rel=0.002)
