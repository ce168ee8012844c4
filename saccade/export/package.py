""".pt2 FILES: the traced graph for torch itself, as `torch.export` saves it or compiled by AOTInductor. Load only those you trust."""

import json
import shutil
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
from torch.export import ExportedProgram

from saccade.export.exported import ExportedRuntime, Signature, exported_file
from saccade.types import InputError

NOTE = "saccade.json"


def write_program(program: ExportedProgram, signature: Signature, path: Path) -> None:
    """The graph as torch.export saves it: loads wherever torch of this version does."""
    torch.export.save(program, path, extra_files={NOTE: json.dumps(signature.to_metadata())})


def write_compiled(program: ExportedProgram, signature: Signature, path: Path) -> None:
    """Compiled for this machine's processor: no Python needed to run it."""
    if not (shutil.which("g++") or shutil.which("clang++")):
        raise InputError("AOTInductor compiles C++ and found neither g++ nor clang++; install one, or export without --compile")
    options = {"aot_inductor.metadata": signature.to_metadata()}
    torch._inductor.aoti_compile_and_package(program, package_path=str(path), inductor_configs=options)


def open_package(path: Path | str, threads: int | None = None) -> ExportedRuntime:
    """A .pt2 file that `saccade export` wrote, of either kind."""
    path = exported_file(path, ".pt2", "package")
    if threads is not None:
        torch.set_num_threads(threads)  # torch knows only a number for the whole process
    try:
        with zipfile.ZipFile(path) as archive:
            is_compiled = any("/aotinductor/" in name for name in archive.namelist())
        if is_compiled:
            module: Callable[..., Sequence[torch.Tensor]] = torch._inductor.aoti_load_package(str(path))
            metadata = module.loader.get_metadata()  # type: ignore[attr-defined]
        else:
            files = {NOTE: ""}
            module = torch.export.load(path, extra_files=files).module()
            metadata = json.loads(files[NOTE] or "{}")
    except (zipfile.BadZipFile, RuntimeError, ValueError, KeyError, OSError) as error:
        raise InputError(f"{path}: torch can't load it ({error!s:.200}); damaged, or no package of `saccade export`?") from error
    signature = Signature.from_metadata(path, metadata)

    def run(frames: np.ndarray, dt: np.ndarray, states: Sequence[np.ndarray]) -> Sequence[np.ndarray]:
        with torch.inference_mode():
            pixels = torch.from_numpy(frames if frames.flags.writeable else frames.copy())
            found = module(pixels, torch.from_numpy(dt), tuple(torch.from_numpy(state) for state in states))
        return [tensor.numpy() for tensor in found]

    return ExportedRuntime(path, signature, run)
