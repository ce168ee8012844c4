"""Small csv and txt files."""

from pathlib import Path

from saccade.events.text import TextReader


def text_file(folder: Path, content: str | bytes, name: str = "events.csv") -> Path:
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def open_text(folder: Path, content: str | bytes, **options) -> TextReader:
    return TextReader(text_file(folder, content), **options)
