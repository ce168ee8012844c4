"""The generated parts of the documentation: `python -m docs.generate` (or `make docs`) writes them, tests/test_docs.py compares.

docs/reference.md: signatures and docstrings of the public API, read from the source without importing it.
docs/contributing.md: the tree between two marks, one line per folder, then per file: the first sentence of each docstring.
"""

import ast
import re
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
REFERENCE, CONTRIBUTING = ROOT / "docs/reference.md", ROOT / "docs/contributing.md"
BEGIN, END = "<!-- tree: written by `python -m docs.generate` -->\n", "<!-- end of the tree -->\n"
WIDTH = 100  # of a signature on one line
ARGUMENT = r"[A-Za-z_*]+(?:, [a-z_]+)*:(?= )"  # "width, height: the sensor"
Definition = ast.FunctionDef | ast.ClassDef

# Sections of the reference, in the order in which a program calls them.
SECTIONS = {
    "Recordings": ("open_events", "windows", "frames"),
    "Detectors and streams": ("load_detector", "Stream"),
    "Data sets, training, scores": ("open_dataset", "train", "evaluate"),
    "Values": ("Events", "Window", "Detections", "Labels", "InputError"),
}
USAGE = {
    "open_events": 'with saccade.open_events("drive.raw") as recording:\n    piece = recording.between(1_000_000, 1_050_000)',
    "windows": "for window in saccade.windows(recording, rate_hz=200):\n    window.start_us, window.end_us, len(window)",
    "frames": "for frame in saccade.frames(recording, rate_hz=200):\n    frame.data  # uint8 (20, height, width)",
    "load_detector": 'detector = saccade.load_detector("nano")',
    "Stream": 'stream = saccade.Stream("nano", rate_hz=200)\nfor detections in stream.run("drive.raw"):\n    print(detections.table())',
    "open_dataset": 'dataset = saccade.open_dataset("streets", "train")\nprint(dataset.classes, len(dataset.recordings))',
    "train": 'saccade.train("streets", "run", "synthetic", steps=300)  # -> run/final.safetensors',
    "evaluate": 'found = saccade.evaluate("nano", "streets", rates_hz=(20, 200))\nprint([result.scores.mAP for result in found.results])',
    "Events": "events = saccade.Events(t, x, y, p, width=640, height=480)\nevents.between(1_000_000, 1_050_000)",
    "Window": "window.start_us, window.end_us, window.t",
    "Detections": "detections.boxes, detections.scores, detections.classes, detections.time_us",
    "Labels": "labels.t, labels.boxes, labels.classes, labels.tracks",
    "InputError": "try:\n    saccade.open_events(path)\nexcept saccade.InputError as error:\n    print(error)",
}


class Public(NamedTuple):
    name: str
    file: Path
    node: Definition


def public() -> dict[str, Public]:
    """What `saccade/__init__.py` imports, at once or later, with its definition."""
    found = {}
    for node in ast.walk(ast.parse((ROOT / "saccade/__init__.py").read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("saccade."):
            file = ROOT / f"{(node.module or '').replace('.', '/')}.py"
            body = ast.parse(file.read_text()).body
            for alias in node.names:
                found[alias.name] = Public(alias.name, file, next(d for d in body if isinstance(d, Definition) and d.name == alias.name))
    return found


def reference() -> str:
    known = public()
    said = [
        "# Reference",
        "Generated from the docstrings by `python -m docs.generate`. Everything here is an attribute of `saccade`; what needs torch is "
        "imported when it is first asked for. Times are whole microseconds, boxes `left, top, right, bottom` in pixels of the sensor.",
    ]
    for section, names in SECTIONS.items():
        said += [f"## {section}", *(entry(known[name]) for name in names)]
    return "\n\n".join([*said, commands()]) + "\n"


def entry(one: Public) -> str:
    parts = [f"### {one.name}", code(USAGE[one.name])]
    if isinstance(one.node, ast.FunctionDef):
        parts += [code(signature(one.node)), text(one.node)]
        return "\n\n".join(parts)
    parts.append(text(one.node))
    fields = columns(one)
    if fields:
        parts.append("\n".join(["| field | type | |", "|---|---|---|", *fields]))
    for node in one.node.body:
        if not isinstance(node, ast.FunctionDef) or (node.name.startswith("_") and node.name != "__init__"):
            continue
        decorators = [ast.unparse(decorator) for decorator in node.decorator_list]
        if any(decorator.endswith(".setter") for decorator in decorators):
            continue
        if "property" in decorators:
            parts += [f"**`{one.name}.{node.name}`**: {text(node)}"]
        else:
            head = "" if node.name == "__init__" else f"**`{one.name}.{node.name}`**"
            parts += [part for part in (head, code(signature(node, one.name if not head else None)), text(node)) if part]
    return "\n\n".join(parts)


def columns(one: Public) -> list[str]:
    """Rows for the fields of a dataclass: name, type, the comment behind it."""
    assert isinstance(one.node, ast.ClassDef)
    source = one.file.read_text()
    lines, rows = source.splitlines(), []
    aliases = re.findall(r'^(\w+) = (\w+)\[np\.ndarray, "(.*?)"\](?:  # (.*))?$', source, re.MULTILINE)
    arrays = {name: (f"{kind.lower()} ({shape})", comment) for name, kind, shape, comment in aliases}
    for node in one.node.body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            alias, _, rest = ast.unparse(node.annotation).partition(" | ")
            kind, meaning = arrays.get(alias, (alias, ""))
            comment = lines[node.lineno - 1].partition("# ")[2] or meaning
            rows.append(f"| `{node.target.id}` | {kind}{' or ' * bool(rest)}{rest} | {comment} |")
    return rows


def signature(node: ast.FunctionDef, name: str | None = None) -> str:
    arguments = node.args
    given = [a for a in (*arguments.posonlyargs, *arguments.args) if a.arg not in ("self", "cls")]
    defaults: list[ast.expr | None] = [None] * (len(given) - len(arguments.defaults)) + list(arguments.defaults)
    words = [_argument(a, default) for a, default in zip(given, defaults[-len(given) :] if given else [], strict=True)]
    if arguments.vararg:
        words.append(f"*{_argument(arguments.vararg, None)}")
    elif arguments.kwonlyargs:
        words.append("*")
    words += [_argument(a, default) for a, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)]
    if arguments.kwarg:
        words.append(f"**{_argument(arguments.kwarg, None)}")
    back = "" if name or node.returns is None else f" -> {_annotation(node.returns)}"
    line = f"{name or node.name}({', '.join(words)}){back}"
    if len(line) <= WIDTH:
        return line
    return f"{name or node.name}(\n" + "".join(f"    {word},\n" for word in words) + f"){back}"


def _argument(argument: ast.arg, default: ast.expr | None) -> str:
    said = argument.arg if argument.annotation is None else f"{argument.arg}: {_annotation(argument.annotation)}"
    return said if default is None else f"{said} = {ast.unparse(default)}"


def _annotation(node: ast.expr) -> str:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ast.unparse(node)


def text(node: ast.FunctionDef | ast.ClassDef) -> str:
    """A docstring as Markdown: lines that explain an argument become a list."""
    paragraphs = []
    for paragraph in (ast.get_docstring(node) or "").split("\n\n"):
        if paragraph.startswith("    ") or re.match(r"\w+ = ", paragraph):
            paragraphs.append(code("\n".join(line.removeprefix("    ") for line in paragraph.splitlines())))
        elif re.match(ARGUMENT, paragraph):
            said = re.split(rf"\n(?={ARGUMENT})", paragraph)
            paragraphs.append("\n".join("* " + re.sub(rf"^({ARGUMENT})", r"**\1**", " ".join(one.split())) for one in said))
        else:
            paragraphs.append(paragraph)
    return "\n\n".join(paragraphs)


def code(written: str) -> str:
    return f"```py\n{written}\n```"


def commands() -> str:
    """A row for each command: the first sentence of its docstring."""
    order = re.search(r"MODULES = \{(.*?)\}", (ROOT / "saccade/cli.py").read_text(), re.DOTALL)
    assert order, "saccade/cli.py lists its commands in `MODULES = {...}`"
    functions = {
        node.name: node
        for file in sorted((ROOT / "saccade/commands").glob("*.py"))
        for node in ast.parse(file.read_text()).body
        if isinstance(node, ast.FunctionDef)
    }
    rows = [f"| `saccade {name}` | {sentence(ast.get_docstring(functions[name]) or '')} |" for name in re.findall(r'"(\w+)":', order[1])]
    head = "## Commands\n\n`saccade COMMAND --help` lists the options of each.\n\n| command | what it does |\n|---|---|\n"
    return head + "\n".join(rows)


def sentence(written: str) -> str:
    """The first line, or its first sentence."""
    line = written.strip().partition("\n")[0]
    return re.split(r"(?<=[\w)`\"])\. (?=[A-Z])", line)[0].rstrip(".").replace("|", "\\|")


def tree() -> str:
    """Folders first, then each with its files."""
    package = ROOT / "saccade"
    folders = [package, *sorted((file.parent for file in package.rglob("__init__.py") if file.parent != package), key=_flow)]
    rows = [f"| `{_name(folder).removeprefix('saccade/')}` | {_first(folder / '__init__.py')} |" for folder in folders[1:]]
    said = ["\n".join(["| folder of saccade | what it does |", "|---|---|", *rows])]
    for folder in folders:
        files = sorted(file for file in folder.glob("*.py") if file.name != "__init__.py")
        if files:
            lines = [f"| `{file.name}` | {_first(file)} |" for file in files]
            said.append("\n".join([f"### {_name(folder)}", "", "| file | what it does |", "|---|---|", *lines]))
    return "\n\n".join(said) + "\n"


def _flow(folder: Path) -> tuple[int, str]:
    """In the order in which data flows, as tests/test_architecture.py has it."""
    listed = re.search(r"LAYERS = \[(.*?)\]", (ROOT / "tests/test_architecture.py").read_text(), re.DOTALL)
    assert listed
    layers = re.findall(r'"(\w+)"', listed[1])
    name = _name(folder)
    return layers.index(name.split("/")[1]), name


def _name(folder: Path) -> str:
    return f"{folder.relative_to(ROOT)}/"


def _first(file: Path) -> str:
    return sentence(ast.get_docstring(ast.parse(file.read_text())) or "")


def contributing() -> str:
    """The page with a fresh tree."""
    before, rest = CONTRIBUTING.read_text().split(BEGIN)
    return before + BEGIN + "\n" + tree() + "\n" + END + rest.split(END)[1]


def main() -> None:
    REFERENCE.write_text(reference())
    CONTRIBUTING.write_text(contributing())


if __name__ == "__main__":
    main()
