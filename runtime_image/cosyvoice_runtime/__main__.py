"""Entry point of the gateway: `python -m cosyvoice_runtime` or `cosyvoice-gateway`."""

from __future__ import annotations

import sys

from pydantic import ValidationError

from cosyvoice_runtime import logs
from cosyvoice_runtime.settings import Settings


def main() -> None:
    """Run the gateway with the settings of the environment."""
    try:
        settings = Settings()
    except ValidationError as error:
        for problem in error.errors(include_url=False):
            name = "COSYVOICE_" + "_".join(str(part) for part in problem["loc"]).upper()
            print(f"{name}: {problem['msg']}", file=sys.stderr)
        sys.exit(2)
    logs.configure(settings.log_level)
    from cosyvoice_runtime import server  # noqa: PLC0415 - a wrong setting should be told before anything is loaded

    sys.exit(server.run(settings))


if __name__ == "__main__":
    main()
