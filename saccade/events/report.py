"""Statistics and repairs -> the text that `saccade info` and `saccade convert` print."""

from saccade.events.mend import Mended
from saccade.events.reader import Reader
from saccade.events.statistics import Statistics, sparkline


def report(reader: Reader, statistics: Statistics) -> str:
    """A few lines for people: what it is, how much of it, how it varies, what is wrong."""
    s = statistics
    pixels = s.width * s.height
    lines = [
        ("file", f"{reader.path}, {reader.path.stat().st_size / 1e6:,.1f} MB"),
        ("format", reader.format),
        ("sensor", f"{s.width} x {s.height} pixels"),
        ("events", f"{s.count:,}"),
    ]
    if s.count:
        share = s.positive / s.count * 100
        lines += [
            ("time", f"{s.start_us / 1e6:.6f} to {s.end_us / 1e6:.6f} s, {s.duration_us / 1e6:.6f} s long"),
            ("rate", f"{_rate(s.mean_rate)} on average, {_rate(s.peak_rate)} at the peak"),
            ("", f"{sparkline(s.rates)}  {_time(s.bar_us)} a bar"),
            ("polarity", f"{share:.1f} % brighter, {100 - share:.1f} % darker"),
            ("pixels", f"{s.active_pixels / pixels * 100:.1f} % active{_hot(s)}"),
        ]
    text = "\n".join(f"{name:9}{value}" for name, value in lines)
    return "\n".join([text, *(f"warning: {warning}" for warning in s.warnings(reader.path))])


def report_mended(mended: Mended) -> list[str]:
    """What was changed, a line each; nothing for what was not."""
    done = {
        "events came after one of a later time and were moved": mended.late,
        "events equal to one before were left out": mended.duplicates,
        "events outside the sensor were left out": mended.outside,
        "us were subtracted from every time": mended.shift_us,
    }
    return [f"{number:,} {what}" for what, number in done.items() if number]


def _hot(s: Statistics) -> str:
    return f", {s.hot_pixels} hot with {s.hot_events / s.count * 100:.1f} % of the events" if s.hot_pixels else ""


def _rate(events_per_second: float) -> str:
    for size, unit in ((1e6, "M"), (1e3, "k")):
        if events_per_second >= size:
            return f"{events_per_second / size:.2f} {unit} events/s"
    return f"{events_per_second:.1f} events/s"


def _time(microseconds: int) -> str:
    for size, unit in ((1_000_000, "s"), (1_000, "ms")):
        if microseconds >= size:
            return f"{microseconds / size:g} {unit}"
    return f"{microseconds} us"
