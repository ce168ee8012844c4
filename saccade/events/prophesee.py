"""What Prophesee's DAT and RAW files share: the text header, and which sensor has how many pixels."""

import re
from pathlib import Path

from saccade.types import InputError

LONGEST_HEADER = 1 << 16

# Sensor generations, as they appear in plugin names ("hal_plugin_gen41_evk3") and in "sensor_generation 4.2".
SENSORS = {
    r"gen3|^3\.": (640, 480),
    r"genx320|^320": (320, 320),
    r"gen4|imx636|imx646|^4\.": (1280, 720),
}


def read_header(path: Path) -> tuple[dict[str, str], int]:
    """The header's keywords (lower case) and the position of the first byte after it."""
    with path.open("rb") as file:
        data = file.read(LONGEST_HEADER)
    fields: dict[str, str] = {}
    position = 0
    while data[position : position + 1] == b"%":
        end = data.find(b"\n", position)
        if end < 0:
            raise InputError(f"{path}: the header line at byte {position} never ends; the file is cut off or no Prophesee file")
        keyword, _, value = data[position + 1 : end].decode("latin-1").strip().partition(" ")
        position = end + 1
        if keyword.lower() == "end":
            break
        fields[keyword.lower()] = value.strip()
        if data[position : position + 2] != b"% ":  # event data may begin with the byte of a percent sign
            break
    return fields, position


def stated_size(fields: dict[str, str]) -> tuple[int, int] | None:
    """Width and height as the header says or implies by naming the sensor; None if it does neither."""
    if match := re.fullmatch(r"(\d{1,5})x(\d{1,5})", fields.get("geometry", "")):
        return int(match[1]), int(match[2])
    options = dict(re.findall(r"(width|height)=(\d{1,5})", fields.get("format", "")))
    options |= {name: fields[name] for name in ("width", "height") if re.fullmatch(r"\d{1,5}", fields.get(name, ""))}
    if len(options) == 2:
        return int(options["width"]), int(options["height"])
    named = [fields.get(key, "").lower() for key in ("sensor_name", "plugin_name", "sensor_generation", "generation")]
    return next((size for pattern, size in SENSORS.items() for name in named if re.search(pattern, name)), None)
