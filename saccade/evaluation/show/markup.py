"""Text -> HTML and SVG: elements that are well formed by construction, with everything that isn't markup already escaped."""

import re
from html import escape

VOID = frozenset(("meta", "img", "br", "hr"))  # HTML knows no end of these
# XML forbids these characters, and a file name may hold them; halves of surrogate pairs stand for bytes that were no UTF-8.
_UNPRINTABLE = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")


class Markup(str):
    """Markup that needs no escaping; all other text is what somebody wrote."""

    __slots__ = ()


def text(value: str) -> Markup:
    return value if isinstance(value, Markup) else Markup(escape(_UNPRINTABLE.sub("\ufffd", value)))


def joined(*children: str) -> Markup:
    return Markup("".join(map(text, children)))


def element(name: str, /, *children: str, **attributes: str | float | None) -> Markup:
    """<name attributes>children</name>. `class_` is class, `stroke_width` is stroke-width; None leaves an attribute out."""
    opening = name + "".join(
        f' {_attribute(key)}="{text(value if isinstance(value, str) else f"{value:g}")}"'
        for key, value in attributes.items()
        if value is not None
    )
    if name in VOID:
        return Markup(f"<{opening}/>")
    return Markup(f"<{opening}>{joined(*children)}</{name}>")


def _attribute(name: str) -> str:
    return name.rstrip("_").replace("_", "-")
