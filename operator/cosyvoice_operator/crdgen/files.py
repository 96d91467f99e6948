"""The generated files of the project: written, or compared with what is there."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from cosyvoice_operator import api
from cosyvoice_operator.crdgen.crd import custom_resource_definition
from cosyvoice_operator.crdgen.reference import api_reference

CRD_FILE = Path("crds", f"{api.GROUP}_{api.PLURAL}.yaml")
CHART_FILE = Path("charts", "cosyvoice-operator-crds", "templates", f"{api.PLURAL}.yaml")
REFERENCE_FILE = Path("docs", "api-reference.md")

_NOTICE = "Generated from the models by `cosyvoice-operator crdgen`: edit operator/cosyvoice_operator/api instead."
_KEEP = """\
  {{- if .Values.keep }}
  annotations:
    # Deleting the CRDs would delete every CosyVoiceDeployment of the cluster.
    helm.sh/resource-policy: keep
  {{- end }}
"""


class _Dumper(yaml.SafeDumper):
    """Writes YAML without anchors, which reviewers and other tools stumble over."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ANN401, ARG002 - the base class's signature
        return True


def main(out_dir: Path, check: bool) -> int:  # noqa: FBT001 - the shape that the command line hands over
    """Write all generated files below the project's root, or compare them.

    Args:
        out_dir: Root of the project.
        check: Write nothing; print how the files differ.

    Returns:
        The exit status: 1 when a checked file differs.
    """
    contents = generated_files()
    if check:
        return _compare(out_dir, contents)
    for path, content in contents.items():
        (out_dir / path).parent.mkdir(parents=True, exist_ok=True)
        (out_dir / path).write_text(content, encoding="utf-8")
    return 0


def generated_files() -> dict[Path, str]:
    """Give every generated file by its path in the project."""
    crd = yaml.dump(custom_resource_definition(), Dumper=_Dumper, sort_keys=False, width=110, allow_unicode=True)
    head, rest = crd.split("spec:\n", 1)
    return {
        CRD_FILE: f"# {_NOTICE}\n{crd}",
        CHART_FILE: f"{{{{- /* {_NOTICE} */ -}}}}\n{head}{_KEEP}spec:\n{rest}",
        REFERENCE_FILE: f"<!-- {_NOTICE} -->\n{api_reference()}",
    }


def _compare(out_dir: Path, contents: Mapping[Path, str]) -> int:
    stale = 0
    for path, content in contents.items():
        found = (out_dir / path).read_text(encoding="utf-8") if (out_dir / path).exists() else ""
        if found == content:
            continue
        stale = 1
        difference = difflib.unified_diff(found.splitlines(), content.splitlines(), str(path), "models", lineterm="")
        sys.stderr.write("\n".join([f"{path} is stale: run `cosyvoice-operator crdgen`", *difference, ""]))
    return stale
