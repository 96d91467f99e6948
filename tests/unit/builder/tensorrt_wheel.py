"""TensorRT's own classes on a machine without TensorRT: the bindings of its wheel, over libraries that hold nothing.

The bindings are 1 MB and describe every call in their docstrings. They need nine functions of libraries of 2 GB, which are never
called before a builder or a runtime is made; here they are empty. Nothing of TensorRT's behaviour is imitated.

Run as a program it prints type stubs of the bindings: `python tensorrt_wheel.py`.
"""

from __future__ import annotations

import importlib.util
import inspect
import keyword
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

FUNCTIONS = (
    "createInferBuilder_INTERNAL",
    "createInferRefitter_INTERNAL",
    "createInferRuntime_INTERNAL",
    "createNvOnnxParserRefitter_INTERNAL",
    "createNvOnnxParser_INTERNAL",
    "getBuilderPluginRegistry",
    "getNvOnnxParserVersion",
    "getPluginRegistry",
    "initLibNvInferPlugins",
)
LIBRARIES = ("nvinfer", "nvonnxparser", "nvinfer_plugin")
KNOWN = {"None", "int", "float", "bool", "str", "bytes", "object", "Any", "memoryview", "Sequence", "tuple", "list"}


def missing() -> str | None:
    """Why the bindings cannot be used here."""
    if importlib.util.find_spec("tensorrt_bindings") is None:
        return "TensorRT's bindings have no wheel for this platform"
    return None if shutil.which("cc") else "no C compiler (package gcc)"


def environment(folder: Path) -> dict[str, str]:
    """An environment in which `import tensorrt_bindings` works; the empty libraries are made in the folder."""
    source = folder / "empty.c"
    source.write_text("".join(f"void *{name}(void) {{ return 0; }}\n" for name in FUNCTIONS))
    for library in LIBRARIES:
        target = f"lib{library}.so.10"
        command = ["cc", "-shared", "-fPIC", f"-Wl,-soname,{target}", "-o", str(folder / target), str(source)]
        subprocess.run(command, check=True)
    return os.environ | {"LD_LIBRARY_PATH": str(folder)}


def stubs(folder: Path) -> str:
    """Type stubs of everything in the bindings, as their docstrings tell it."""
    command = [sys.executable, str(Path(__file__).resolve())]
    return subprocess.run(command, check=True, capture_output=True, text=True, env=environment(folder)).stdout


def _annotation(text: str, *, given: bool) -> str:
    """A type as the bindings write it, in Python; what a caller gives may be wider than what it gets."""
    text = text.replace("tensorrt_bindings.tensorrt.", "").strip()
    if text == "Dims" and given:
        return "Sequence[int]"
    if text == "buffer":
        return "bytes | memoryview"
    return text if re.fullmatch(r"[A-Z]\w*(\.[A-Z]\w*)*", text) or text in KNOWN else "Any"


def _split(text: str) -> list[str]:
    """Parameters, of which defaults may hold commas within brackets."""
    depth, parts = 0, [""]
    for char in text:
        depth += (char in "[(<{") - (char in "])>}")
        if char == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += char
    return [part.strip() for part in parts if part.strip()]


def _parameters(text: str) -> str:
    made, optional = [], False
    for part in _split(text):
        name, _, rest = part.partition(":")
        kind, equals, _ = rest.partition(" = ")
        optional = optional or bool(equals)
        if not name.lstrip("*").isidentifier() or keyword.iskeyword(name):
            return "self, *args: Any, **kwargs: Any"  # a name that Python has for itself
        annotation = "" if name == "self" or name.startswith("*") else f": {_annotation(kind, given=True)}"
        made.append(f"{name}{annotation}{' = ...' if optional else ''}")
    return ", ".join(made)


def _method(name: str, doc: str) -> list[str]:
    found = re.findall(rf"^(?:\d+\. )?{name}\((self[^\n]*|)\) -> ([^\n]+)$", doc, re.MULTILINE)
    lines = [f"def {name}({_parameters(args)}) -> {_annotation(result, given=False)}: ..." for args, result in found]
    return [line for one in lines for line in (["@overload"] if len(lines) > 1 else []) + [one]]


def _class(cls: type, indent: str = "") -> list[str]:
    bases = "(tuple[int, ...])" if cls.__name__ == "Dims" else ""
    body = [
        f"{name}: ClassVar[{cls.__qualname__}]"
        for name in getattr(cls, "__members__", ())
        if not keyword.iskeyword(name)
    ]
    if body:
        body.append("def __int__(self) -> int: ...")
    if cls.__name__ == "IHostMemory":
        body.append("def __buffer__(self, flags: int, /) -> memoryview: ...")
    for name, value in vars(cls).items():
        if isinstance(value, property):
            result = re.search(r"-> ([^\n]+)", getattr(value.fget, "__doc__", None) or "")
            annotation = _annotation(result[1], given=False) if result else "Any"
            body.append(f"{name}: {annotation}")
        elif inspect.isclass(value):
            body += _class(value)
        elif callable(value) and (not name.startswith("__") or name == "__init__") and name not in body:
            body += _method(name, value.__doc__ or "")
    return [f"{indent}class {cls.__name__}{bases}:", *(f"{indent}    {line}" for line in body or ["..."])]


def main() -> None:
    """Print the stubs."""
    import tensorrt_bindings as trt

    lines = [
        "# mypy: ignore-errors",
        "from typing import Any, ClassVar, overload",
        "from collections.abc import Sequence",
        "__version__: str",
    ]
    lines.append("def nptype(trt_type: DataType) -> Any: ...")
    for value in vars(trt).values():
        if inspect.isclass(value) and value.__module__ == "tensorrt_bindings.tensorrt":
            lines += _class(value)
    print("\n".join(lines))


if __name__ == "__main__":
    main()
